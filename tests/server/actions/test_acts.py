"""People's part over the true wire: what a verdict would have done is listed, approved, dismissed and undone by commands."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hangdog.main import main
from hangdog_models.actions.caps import Mode
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, Verdict
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.actions import policy
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.backend import IsolationCase
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.listener import LOCAL
from support.servers.cast import PATIENT, Stage, stage, trainer, verdict
from support.servers.cast_acting import WIDE

pytestmark = [pytest.mark.slow, pytest.mark.parallel]


def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
    return replace(verdict(snapshot, topology, Kind.MACHINE), evict=Eviction(("a",), 0.97))


async def ask(on: Stage, *words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, [*words, "--server", on.address])


async def until(on: Stage, incident: str, state: str) -> None:
    async with asyncio.timeout(60):
        while True:
            told = json.loads((await ask(on, "actions", incident, "--format", "json")).stdout)
            if [one["state"] for one in told["actions"]] == [state]:
                return
            await asyncio.sleep(0.02)


@pytest.fixture
def does(tmp_path: Path) -> ActionsConfig:
    return ActionsConfig(Mode.APPROVE, WIDE, (ExcludeFile(tmp_path / "excluded"),), tmp_path / "stop")


@asynccontextmanager
async def incident(on: Stage) -> AsyncIterator[str]:
    """A machine of llama, one without a job, and a verdict upon the first; the incident's name."""
    async with on.agent("a") as a, on.agent("x") as x:
        await a.hello(llama=[0])
        await x.hello()
        await on.knows("a")
        asking = asyncio.create_task(on.snapshot("llama"))
        await a.answer(await a.order(), trainer(0), last=True)
        yield (await asking)[-1].incident


async def test_from_a_verdict_to_a_machine_that_is_back(tmp_path: Path, does: ActionsConfig) -> None:
    door = replace(LOCAL, audit=tmp_path / "audit.jsonl")
    async with (
        stage(tmp_path / "s.db", judge, replace(PATIENT, returned_s=0.0), door, does=does) as on,
        incident(on) as name,
    ):
        await until(on, name, "waiting")
        shown = await ask(on, "actions")
        assert "waiting" in shown.stdout and "mode approve, by exclude-file" in shown.stdout
        assert (await ask(on, "approve", name[:6], "--because", "seen by eye")).exit_code == 0
        await until(on, name, "done")
        assert (tmp_path / "excluded").read_text().startswith(f"a  # hangdog: {name} machine")
        again = await ask(on, "approve", name)
        assert again.exit_code == 64 and f"{name} " in again.stderr and "[nothing-to-decide]\n" in again.stderr
        assert (
            json.loads((await ask(on, "release", "a", "--format", "json")).stdout)["actions"][0]["state"] == "releasing"
        )
        await until(on, name, "released")
        assert (tmp_path / "excluded").read_text() == ""
        assert " a [machine-not-isolated]\n" in (await ask(on, "release", "a")).stderr
        assert (await ask(on, "dismiss", name, "--because", "x")).exit_code == 0, (
            "the incident is closed; no act is left"
        )
        await on.store.do(policy.set_breaker, "half of all machines were asked for", "", 1.0)
        assert (await ask(on, "actions", "--close-breaker", "--because", "it was me")).exit_code == 0
        closed = await on.store.ask(policy.breaker)
        late = await ask(on, "actions", "--close-breaker")
        assert late.exit_code == 64 and "[nothing-to-decide]\n" in late.stderr
        assert closed[0] == "" and closed[1] > 1.0 and await on.store.ask(policy.breaker) == closed, "nothing was done"
        assert "[conflicting-options]\n" in (await ask(on, "actions", name, "--close-breaker")).stderr
    recorded = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    told = [(one["what"], one["who"].split()[0], one["outcome"]) for one in recorded if one["what"] != "snapshot"]
    assert told[:5] == [
        ("isolate a", "hangdog", "waiting"), ("approve", "the", "asked"), ("approve", "the", "a pending"),
        ("isolate a", "the", "marked: out of use"), ("isolate a", "the", "done: out of use"),
    ]  # fmt: skip
    assert ("approve", "seen by eye") in [(one["what"], one["why"]) for one in recorded]


class Foretelling(ExcludeFile):
    async def preview_restart(self, cases: Sequence[IsolationCase]) -> str:
        return f"costs-a-restart-of-{cases[0].job}"


async def test_what_a_restart_costs_is_listed_beside_why(tmp_path: Path, does: ActionsConfig) -> None:
    tells = replace(does, actors=(Foretelling(tmp_path / "excluded"),))
    async with (
        stage(tmp_path / "s.db", judge, replace(PATIENT, returned_s=0.0), does=tells) as on,
        incident(on) as name,
    ):
        await until(on, name, "waiting")
        async with asyncio.timeout(60):
            while not (one := json.loads((await ask(on, "actions", "--format", "json")).stdout)["actions"][0])[
                "message"
            ]:
                await asyncio.sleep(0.02)
        assert one["message"] == "costs-a-restart-of-llama" and one["reason"].startswith("machine (")
        listed = "".join((await ask(on, "actions")).stdout.split())
    assert "costs" in listed and "machine(" in listed


async def test_what_is_dismissed_is_never_done(tmp_path: Path, does: ActionsConfig) -> None:
    async with stage(tmp_path / "s.db", judge, replace(PATIENT, returned_s=0.0), does=does) as on, incident(on) as name:
        await until(on, name, "waiting")
        assert (await ask(on, "dismiss", name)).exit_code == 64, "a reason is wanted"
        assert "[text-missing]\n" in (await ask(on, "dismiss", name, "--because", " ")).stderr
        assert (await ask(on, "dismiss", name, "--because", "the job was being debugged")).exit_code == 0
        told = json.loads((await ask(on, "actions", name, "--format", "json")).stdout)
    (one,) = told["actions"]
    assert (one["state"], one["message"], one["marked"]) == ("dismissed", "the job was being debugged", False)
    assert told["schema"] == "hangdog.actions/1" and not (tmp_path / "excluded").exists()


async def test_a_server_that_was_told_nothing_touches_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", judge, replace(PATIENT, returned_s=0.0)) as on, incident(on) as name:
        shown = await ask(on, "actions", name)
        assert "mode dry-run, by none" in shown.stdout
        refused = await ask(on, "approve", name)
        assert refused.exit_code == 64 and "mode dry-run [acting-disabled]\n" in refused.stderr


@pytest.mark.parametrize(
    ("boot", "state", "words"),
    [
        ("start of a", "waiting", ""),
        ("an earlier one", "refused", "a was started "),
        ("", "refused", "which start of a "),
    ],
)
async def test_what_a_machine_recorded_by_itself_counts_for_the_start_it_is_of(
    tmp_path: Path, does: ActionsConfig, boot: str, state: str, words: str
) -> None:
    captured = pb.Captured(last=True, capture=pack([trainer(0)]))
    job = pb.LocalJob(job="llama", ranks=[0], world_size=1)
    said = pb.Spooled(id="1", stall="s", job=job, captured=captured, rounds=1, age_s=30.0, boot=boot)
    settings = replace(PATIENT, returned_s=0.0)
    async with stage(tmp_path / "s.db", judge, settings, does=does) as on, on.agent("a") as a, on.agent("x") as x:
        await a.hello()
        await x.hello()
        await a.say(spooled=said)
        assert (await a.next()).ack.refused == ""
        async with asyncio.timeout(60):
            while not (found := await on.store.latest("", 1)):
                await asyncio.sleep(0.02)
        await until(on, found[0].id, state)
        (told,) = json.loads((await ask(on, "actions", "--format", "json")).stdout)["actions"]
        assert words in told["message"]
