"""Machines that were taken out are tested without being asked where policy says so: the guilty one stays out, the sound one comes back."""

import asyncio
from pathlib import Path

import pytest

from hangdog_models.actions.caps import Mode
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server import isolation_tests
from hangdog_server.actions import reconcile
from hangdog_server.actions.backends.actions_config import PolicyOfTests
from hangdog_server.store import campaigns
from support.servers.cast_acting import ISOLATING, concluded, evicted, rows, serving, until
from support.servers.tested import Answer, broken, machine, machines, skipped, sound

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

BOTH = PolicyOfTests(test=True, release=True)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation_tests, "TICK_S", 0.05)
    monkeypatch.setattr(reconcile, "TICK_S", 0.05)


def out(folder: Path) -> set[str]:
    return set((folder / "excluded").read_text().split()) & {"m0", "m1"}


async def test_who_is_convicted_stays_out_and_who_passes_comes_back(tmp_path: Path) -> None:
    async with serving(tmp_path, BOTH) as on, machines(on, m0=sound, m1=broken(1)):
        await evicted(on, "m0", "m1")
        found = await until(on, m0="released", m1="done")
        (campaign,) = await on.store.ask(campaigns.about, ISOLATING)
        assert (campaign.who, campaign.convicted) == ("hangdog", ("m1",))
        assert f"campaign {campaign.id} found nothing" in found["m0"].message and found["m0"].who == "hangdog"
        assert (await concluded(on, "m1")).message.endswith(f"campaign {campaign.id} convicted it")
        assert out(tmp_path) == {"m1"}
        await asyncio.sleep(0.5)
        assert len(await on.store.ask(campaigns.about, ISOLATING)) == 1
        assert (await rows(on))["m1"].message.count("campaign") == 1, "it is told once"


async def test_without_a_word_of_policy_people_test_and_release(tmp_path: Path) -> None:
    async with serving(tmp_path, PolicyOfTests()) as on, machines(on, m0=sound):
        await evicted(on, "m0")
        await until(on, m0="done")
        await asyncio.sleep(0.5)
        assert not await on.store.ask(campaigns.about, ISOLATING)
    async with serving(tmp_path, PolicyOfTests(test=True)) as on, machines(on, m0=sound):
        row = await concluded(on, "m0")
        await asyncio.sleep(0.5)
        assert "found nothing" in row.message and out(tmp_path) == {"m0"}, "a person brings it back"


async def test_in_a_dry_run_nobody_is_tested(tmp_path: Path) -> None:
    async with serving(tmp_path, BOTH, Mode.DRY_RUN) as on, machines(on, m0=sound) as played:
        await evicted(on, "m0")
        await until(on, m0="dry-run")
        await asyncio.sleep(0.5)
        assert not played["m0"].orders and not await on.store.ask(campaigns.about, ISOLATING)


@pytest.mark.parametrize(
    "answer",
    [
        lambda order: skipped(order.levels[0], "no torch here"),
        lambda order: pb.Diagnosed(launch=order.launch, refused="job llama runs here (8 ranks)"),
    ],
)
async def test_who_was_not_tested_does_not_come_back(tmp_path: Path, answer: Answer) -> None:
    async with serving(tmp_path, BOTH) as on, machines(on, m0=answer):
        await evicted(on, "m0")
        row = await concluded(on, "m0")
        await asyncio.sleep(0.5)
        assert "did not decide" in row.message and out(tmp_path) == {"m0"}


async def test_a_machine_is_tested_once_its_job_has_left_it(tmp_path: Path) -> None:
    async with serving(tmp_path, BOTH) as on, machine(on, "m0") as m0, machine(on, "spare"):
        await m0.agent.announce(pb.LocalJob(job="llama", ranks=[0]))
        await on.knows("m0")
        await evicted(on, "m0")
        await until(on, m0="done")
        await asyncio.sleep(0.5)
        assert not m0.orders
        await m0.agent.announce()
        await until(on, m0="released")


async def test_machines_whose_agents_come_back_later_are_tested_with_the_others(tmp_path: Path) -> None:
    """As after a restart of the server: who was left out would stay out of use, though nothing was found of it."""
    await out_of_use(tmp_path)
    async with serving(tmp_path, BOTH) as on, machines(on, m1=broken(1)):
        await asyncio.sleep(0.5)
        assert not await on.store.ask(campaigns.about, ISOLATING)
        async with machines(on, m0=sound):
            await until(on, m0="released", m1="done")


async def test_who_stays_away_keeps_the_others_from_being_tested_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation_tests, "ABSENT_S", 0.3)
    await out_of_use(tmp_path)
    async with serving(tmp_path, BOTH) as on, machines(on, m1=broken(1)):
        assert (await concluded(on, "m1")).message.endswith("convicted it")


async def out_of_use(folder: Path) -> None:
    """Both machines, by a server that tests nobody."""
    async with serving(folder, PolicyOfTests()) as on, machines(on, m0=sound, m1=sound):
        await evicted(on, "m0", "m1")
        await until(on, m0="done", m1="done")


async def test_the_file_that_stops_everything_stops_this_too(tmp_path: Path) -> None:
    async with serving(tmp_path, BOTH) as on, machines(on, m0=sound) as played:
        await evicted(on, "m0")
        while "m0" not in await rows(on):
            await asyncio.sleep(0.01)
        (tmp_path / "stop").touch()
        await asyncio.sleep(0.6)
        begun = len(await on.store.ask(campaigns.about, ISOLATING))
        (tmp_path / "stop").unlink()
        await until(on, m0="released")
        assert begun <= 1 and played["m0"].orders


async def test_a_server_that_comes_after_goes_on_and_begins_none_twice(tmp_path: Path) -> None:
    async with serving(tmp_path, BOTH) as on, machines(on, m0=lambda _: None) as played:
        await evicted(on, "m0")
        await played["m0"].ordered()
    async with serving(tmp_path, BOTH) as on, machines(on, m0=sound):
        await until(on, m0="released")
        assert len(await on.store.ask(campaigns.about, ISOLATING)) == 1
