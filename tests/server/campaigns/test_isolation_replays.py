"""Where the other levels convict none of the isolated machines, level 5 follows by itself, as far as policy allows."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.machine_history import MentionKind
from hangdog_proto.client.campaigns import WantedReplay
from hangdog_server import isolation_tests
from hangdog_server.actions import reconcile
from hangdog_server.actions.backends.actions_config import PolicyOfReplays, PolicyOfTests
from hangdog_server.store import campaigns, machine_history
from hangdog_server.store.campaigns import Campaign
from support.servers.cast import NOON, Stage
from support.servers.cast_acting import ISOLATING, concluded, evicted, rows, serving, until
from support.servers.tested import Answer, Machine, broken, campaign, machine, report, sound

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

FOUR = ("m0", "m1", "m2", "m3")
LLAMA = PolicyOfReplays({"llama*": "llama", "mixtral": ""}, machines=8, time_s=60.0, group_size=0)
ALL = PolicyOfTests(test=True, release=True, replay=LLAMA)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation_tests, "TICK_S", 0.05)
    monkeypatch.setattr(reconcile, "TICK_S", 0.05)


def in_a_job(bad: str = "") -> Answer:
    """A machine that passes alone, in a cluster in which every replay fails that `bad` is in."""
    return lambda order: report(order.levels[0], "fail" if order.levels[0] == 5 and bad in order.members else "pass")


@asynccontextmanager
async def four(on: Stage, answer: Answer, names: tuple[str, ...] = FOUR) -> AsyncIterator[dict[str, Machine]]:
    """Machines that know what replays the job."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        yield {name: await enter(machine(on, name, answer, replays=("other", "llama"))) for name in names}


async def held(on: Stage, count: int) -> tuple[Campaign, ...]:
    """The campaigns about the incident, once there are so many; replays come last."""
    async with asyncio.timeout(40):
        while len(found := await on.store.ask(campaigns.about, ISOLATING)) < count:
            await asyncio.sleep(0.05)
    return tuple(sorted(found, key=lambda one: 5 in one.asked["levels"]))  # the clock of the stage stands still


async def standing(on: Stage, name: str) -> list[tuple[MentionKind | str, str]]:
    """What the ledger says of a machine, the oldest first, each by its kind."""
    lines = await on.store.ask(machine_history.of, name, NOON - 3600.0, 9)
    return [(line.mention, line.kind) for line in reversed(lines)]


async def test_who_fails_in_a_job_alone_stays_out_and_the_others_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path, ALL) as on, four(on, in_a_job("m1")) as played:
        await evicted(on, *FOUR)
        found = await until(on, m0="released", m1="done", m2="released", m3="released")
        first, second = await held(on, 2)
        assert (first.convicted, second.convicted, second.who) == ((), ("m1",), "hangdog")
        assert second.asked["replay"] == {"name": "llama", "size": 0, "seconds": 60.0}
        assert (second.asked["budget_s"], second.why) == (360.0, f"campaign {first.id} convicted nobody")
        assert {order.replay for one in played.values() for order in one.orders if 5 in order.levels} == {"llama"}
        assert re.findall(r"campaign (\w+) found nothing", found["m0"].message) == [first.id, second.id]
        last = (await concluded(on, "m1")).message
        assert f"campaign {first.id} found nothing" in last and last.endswith(f"campaign {second.id} convicted it")
        guilty, innocent = await standing(on, "m1"), await standing(on, "m2")
        assert guilty[-1] == (MentionKind.CONVICTED, "diagnosis")
        assert innocent == [(MentionKind.CONVICTED, "group"), (MentionKind.CLEARED, "diagnosis")]
        await asyncio.sleep(0.5)
        assert len(await on.store.ask(campaigns.about, ISOLATING)) == 2


async def test_a_sound_set_comes_back_after_both_and_not_between_them(tmp_path: Path) -> None:
    waits = asyncio.Event()
    silent: Answer = lambda order: sound(order) if 5 not in order.levels or waits.is_set() else None
    async with serving(tmp_path, ALL, lost_s=30.0) as on:  # that long they may be away
        async with four(on, silent):
            await evicted(on, *FOUR)
            await held(on, 2)
            await asyncio.sleep(0.5)
            assert {str(row.state) for row in (await rows(on)).values()} == {"done"}
            waits.set()
        async with four(on, silent):  # agents that come back are asked again
            await until(on, **dict.fromkeys(FOUR, "released"))
        assert await standing(on, "m0") == [(MentionKind.CONVICTED, "group")], "nobody else was found guilty of it"


async def test_who_was_convicted_before_is_followed_by_no_replay(tmp_path: Path) -> None:
    async with serving(tmp_path, ALL) as on, four(on, sound, FOUR[:3]), machine(on, "m3", broken(1), ("llama",)):
        await evicted(on, *FOUR)
        await until(on, m0="released", m1="released", m2="released", m3="done")
        assert len(await on.store.ask(campaigns.about, ISOLATING)) == 1


NEVER = [
    (replace(LLAMA, machines=3), FOUR, "4 machines, and 3 at most"),
    (LLAMA, FOUR[:2], "'llama': 2 machines; level 5 needs 3"),
    (replace(LLAMA, group_size=3), FOUR, "'llama': 4 machines; groups of 3"),
    (replace(LLAMA, jobs={"*": "unheard of"}), FOUR, "'unheard of': 0 machines"),
    (replace(LLAMA, jobs={"mixtral": "llama"}), FOUR, "nothing is named"),
]


@pytest.mark.parametrize(("policy", "names", "because"), NEVER, ids=["many", "few", "groups", "unknown", "unnamed"])
async def test_where_no_replay_can_follow_the_act_says_why_and_the_other_levels_decide(
    tmp_path: Path, policy: PolicyOfReplays, names: tuple[str, ...], because: str
) -> None:
    async with serving(tmp_path, replace(ALL, replay=policy)) as on, four(on, in_a_job("m1")):
        await evicted(on, *names)
        found = await until(on, **dict.fromkeys(names, "released"))
        message = found["m0"].message
        assert "found nothing" in message and "level 5 " in message and because in message
        assert len(await on.store.ask(campaigns.about, ISOLATING)) == 1


async def test_without_a_word_of_policy_no_replay_follows(tmp_path: Path) -> None:
    async with serving(tmp_path, PolicyOfTests(test=True, release=True)) as on, four(on, in_a_job("m1")):
        await evicted(on, *FOUR)
        found = await until(on, **dict.fromkeys(FOUR, "released"))
        assert "level 5" not in found["m0"].message
        assert len(await on.store.ask(campaigns.about, ISOLATING)) == 1


async def test_the_small_gpt_needs_no_name_on_the_machines(tmp_path: Path) -> None:
    policy = replace(ALL, replay=replace(LLAMA, jobs={"*": ""}))
    async with serving(tmp_path, policy) as on, AsyncExitStack() as stack:
        for name in FOUR:
            await stack.enter_async_context(machine(on, name, in_a_job("m2")))
        await evicted(on, *FOUR)
        await until(on, m0="released", m1="released", m2="done", m3="released")


async def test_who_is_left_out_of_the_replay_does_not_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path, ALL) as on, four(on, in_a_job("m1")), machine(on, "m4", sound):
        await evicted(on, *FOUR, "m4")
        await until(on, m0="released", m1="done", m2="released", m3="released", m4="done")
        _, second = await held(on, 2)
        async with asyncio.timeout(20):
            while f"campaign {second.id} did not test it" not in (await rows(on))["m4"].message:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        assert str((await rows(on))["m4"].state) == "done"


async def test_a_program_that_fails_in_every_group_brings_nobody_back(tmp_path: Path) -> None:
    fails: Answer = lambda order: report(order.levels[0], "fail" if 5 in order.levels else "pass")
    async with serving(tmp_path, ALL) as on, four(on, fails):
        await evicted(on, *FOUR)
        _, second = await held(on, 2)
        async with asyncio.timeout(40):
            while f"campaign {second.id} did not decide" not in (await rows(on))["m0"].message:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        assert {str(row.state) for row in (await rows(on)).values()} == {"done"}


async def test_people_who_had_it_replayed_are_not_overruled(tmp_path: Path) -> None:
    """They test with a server that leaves level 5 to them, and are followed by one that does not."""
    answer = in_a_job("m1")
    async with serving(tmp_path, PolicyOfTests(test=True)) as on, four(on, answer):
        await evicted(on, *FOUR)
        await concluded(on, "m0")
        await campaign(on, *FOUR, incident=ISOLATING, levels=[5], replay=WantedReplay("llama"))
    async with serving(tmp_path, ALL) as on, four(on, answer):
        await until(on, m0="released", m1="done", m2="released", m3="released")
        assert [one.who for one in await on.store.ask(campaigns.about, ISOLATING)].count("hangdog") == 1


@pytest.mark.parametrize("level", [1, 5])
async def test_a_server_that_ends_in_either_is_followed_by_one_that_goes_on(tmp_path: Path, level: int) -> None:
    silent: Answer = lambda order: None if level in order.levels else sound(order)
    async with serving(tmp_path, ALL) as on, four(on, silent) as played:
        await evicted(on, *FOUR)
        async with asyncio.timeout(40):
            while not any(level in order.levels for order in played["m0"].orders):
                await asyncio.sleep(0.05)
    async with serving(tmp_path, ALL, returned_s=5.0) as on, four(on, in_a_job("m3")):
        await until(on, m0="released", m1="released", m2="released", m3="done")
        assert len(await on.store.ask(campaigns.about, ISOLATING)) == 2
