"""What the checks of a machine find opens one incident of its job, or of the machine, and nothing acts upon it by itself."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.actions.caps import Mode
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.incident import CHECKED_WHY, CRASHED_WHY, SUSPECTED_WHY, Incident, IncidentState
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Act, Kind, MachineCheck, Verdict, from_json
from hangdog_models.views.first_line import headline
from hangdog_proto.codec import findings as codec
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.cluster.check_strikes import CheckStrikes
from hangdog_server.incidents.replay import StoredRound
from hangdog_server.incidents.replay import replay as replayed
from support.servers.cast import NOON, PATIENT, Agent, Stage, stage
from support.servers.cast_acting import WIDE
from support.servers.spooled import handed_over, judged
from support.worded import names

QUICK = replace(PATIENT, check_settle_s=0.1)
LOST = Finding("NVML", "GPU lost", Impact.CONVICTS, "the driver has lost it", device="0000:1b:00.0", age_s=1.0)
XID = Finding(
    "kernel log", "Xid 79", Impact.CONVICTS, "the GPU has fallen off the bus", device="0000:1b:00.0", age_s=2.0
)
FLAP = Finding(
    "network", "link flap", Impact.SUSPECTS, "port mlx5_0/1 went down and came back", device="mlx5_0/1", age_s=1.0
)


async def tells(agent: Agent, *findings: Finding) -> None:
    await agent.say(health=pb.Health(findings=codec.pack(findings)))


async def runs(on: Stage, agent: Agent, *ranks: int) -> None:
    """A machine that is connected, and the ranks of llama there."""
    await agent.hello()
    if ranks:
        await agent.announce(pb.LocalJob(job="llama", ranks=ranks, world_size=4))
        await on.knows(agent.machine)


async def verdict_of(on: Stage, incident: Incident) -> Verdict:
    return from_json(json.loads((await on.store.find(incident.id)).verdict))


async def quiet(on: Stage, count: int) -> Sequence[Incident]:
    """The incidents, of which there are so many, a while later as well."""
    await asyncio.sleep(0.8)
    found = await on.store.latest("", 9)
    assert len(found) == count, [one.why for one in found]
    return found


async def test_a_lost_gpu_opens_one_incident_of_the_job_that_names_the_machine(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, QUICK) as on, on.agent("a") as a, on.agent("b") as b:
        await runs(on, a, 0, 1)
        await runs(on, b, 2, 3)
        await tells(a)
        await tells(a, LOST)
        (incident,) = await judged(on)
        assert incident.job == "llama" and incident.why == f"{CHECKED_WHY} a: {LOST.code}: {LOST.what}"
        verdict = await verdict_of(on, incident)
        assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("a",))
        assert round(verdict.evict.coverage, 2) == 0.97
        assert verdict.check == MachineCheck("a", ("GPU lost",))
        assert [step.do for step in verdict.next] == [Act.EVICT, Act.RESTART]
        for _ in range(3):  # as with each sign of life
            await tells(a, LOST)
        await quiet(on, 1)
        await tells(a, LOST, XID)  # of the same minute
        async with asyncio.timeout(30):
            while (check := (await verdict_of(on, incident)).check) is None or check.found != ("GPU lost", "Xid 79"):
                await asyncio.sleep(0.05)
        await quiet(on, 1)
        asked, captures = await on.store.recall(incident.id)
        again = replayed("llama", asked, (StoredRound(one.machine, one.round, one.packed) for one in captures))
        assert again.snapshot.checked == "a" and {one.code for one in again.snapshot.findings} == {"GPU lost", "Xid 79"}


async def test_a_machine_without_a_job_has_an_incident_of_its_own(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, QUICK) as on, on.agent("a") as a:
        await runs(on, a)
        await tells(a, LOST)  # it was found before this server was there
        (incident,) = await judged(on)
        verdict = await verdict_of(on, incident)
        assert incident.job == "" and incident.evict == ("a",)
        assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("a",))
        assert round(verdict.evict.coverage, 2) == 0.97
        assert verdict.check == MachineCheck("a", ("GPU lost",))
        assert [step.do for step in verdict.next] == [Act.EVICT]


async def test_what_does_not_convict_takes_two_strikes_and_evicts_nobody(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, QUICK) as on, on.agent("a") as a:
        await runs(on, a, 0, 1)
        await tells(a)
        for _ in range(3):  # it lasts
            await tells(a, FLAP)
        await quiet(on, 0)
        await tells(a, FLAP, replace(FLAP, age_s=60.0))
        (incident,) = await judged(on)
        verdict = await verdict_of(on, incident)
        assert incident.kind == Kind.UNDETERMINED and not incident.evict
        assert verdict.check == MachineCheck("a", ("link flap",))
        assert names(headline(verdict), "undetermined", "a", "link flap", "not tell")
        assert verdict.next[0].do is Act.TEST and verdict.next[0].machines == ("a",)


async def test_what_all_machines_of_a_job_show_convicts_none(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, QUICK) as on, on.agent("a") as a, on.agent("b") as b:
        await runs(on, a, 0, 1)
        await runs(on, b, 2, 3)
        common = replace(LOST, code="no driver", what="the GPU driver is not loaded any more")
        await tells(a, common)
        await tells(b, common)
        for one in await judged(on, 2):
            assert not one.evict


async def test_a_server_that_is_gone_before_the_verdict_loses_nothing_and_the_next_tells_once(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, QUICK) as on, on.agent("a") as a:
        await runs(on, a, 0, 1)
        await tells(a, LOST)
        (incident,) = await judged(on)
        await on.store.move(incident.id, IncidentState.RECORDED, NOON)  # as it is before it is judged
    async with stage(tmp_path / "s.db", diagnose, QUICK) as on, on.agent("a") as a:
        await runs(on, a, 0, 1)
        await tells(a, LOST)
        assert [one.id for one in await judged(on)] == [incident.id]
        assert (await quiet(on, 1))[0].evict == ("a",)
        assert (await verdict_of(on, incident)).check is not None


async def test_what_is_told_opens_no_incident_again_until_the_machine_is_started_anew(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, QUICK) as on, on.agent("a") as a:
        await runs(on, a, 0, 1)
        await tells(a, LOST)
        await judged(on)
    async with stage(tmp_path / "s.db", diagnose, QUICK, clock=lambda: NOON + 3 * 3600.0) as on:
        async with on.agent("a") as a:
            await runs(on, a, 0, 1)
            await tells(a, LOST)
            await quiet(on, 1)
        await on.until(lambda seen: not any(line.connected for line in seen))
        async with on.agent("a") as a:
            await a.say(hello=pb.Hello(machine="a", version="1", boot="another start"))
            await tells(a, LOST)
            await judged(on, 2)


async def test_a_job_that_is_looked_at_tells_it_and_nothing_is_opened_beside(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, QUICK) as on, on.agent("a") as a:
        await runs(on, a, 0, 1, 2, 3)
        await on.store.begin(Incident("stall", "llama", NOON, f"{SUSPECTED_WHY} it stands"), {})
        await tells(a, LOST)
        await quiet(on, 1)
        await on.store.move("stall", IncidentState.FAILED, NOON, "nobody answered")
        async with asyncio.timeout(30):
            while len(await on.store.latest("", 9)) < 2:
                await asyncio.sleep(0.05)


async def test_a_job_that_dies_of_it_has_one_incident(tmp_path: Path) -> None:
    settings = replace(PATIENT, check_settle_s=1.0, crash_s=0.2)
    async with stage(tmp_path / "s.db", diagnose, settings) as on, on.agent("a") as a, on.agent("b") as b:
        await runs(on, a, 0, 1)
        await runs(on, b, 2, 3)
        await tells(a, LOST)
        own = Finding("log", "CUDA error", Impact.CONVICTS, "the driver lost its GPU", rank=Rank(1))
        capture = pb.Capture(exits=[pb.Exit(rank=1, status=1, ran_s=60.0)], findings=codec.pack([own, LOST]))
        job = pb.LocalJob(job="llama", ranks=[0, 1], world_size=4)
        crash = pb.Spooled(
            id="c", stall="c", job=job, captured=pb.Captured(last=True, capture=capture), rounds=1, age_s=1.0,
            why="rank 1 ended", crash=True,
        )  # fmt: skip
        assert await handed_over(a, crash) == [""]
        (incident,) = await judged(on)
        await asyncio.sleep(3.0)
        assert [one.id for one in await on.store.latest("", 9)] == [incident.id]
        assert incident.why.startswith(CRASHED_WHY) and incident.evict == ("a",)


@pytest.mark.parametrize(("mode", "state"), [(Mode.AUTO, "waiting"), (Mode.DRY_RUN, "dry-run"), (Mode.OBSERVE, "")])
async def test_nothing_is_done_by_itself(tmp_path: Path, mode: Mode, state: str) -> None:
    does = ActionsConfig(mode, WIDE, (ExcludeFile(tmp_path / "excluded"),), tmp_path / "stop")
    async with stage(tmp_path / "s.db", diagnose, QUICK, does=does) as on, on.agent("a") as a, on.agent("b") as b:
        await runs(on, a, 0, 1)
        await runs(on, b)  # it can stand in
        await tells(a, LOST)
        (incident,) = await judged(on)
        assert incident.evict == ("a",)
        await asyncio.sleep(1.5)

        def asked() -> list[str]:
            with on.client() as client:
                return [one.state for one in client.actions(incident.id).lines]

        assert await asyncio.to_thread(asked) == ([state] if state else [])
        assert not (tmp_path / "excluded").exists() or "a" not in (tmp_path / "excluded").read_text()


def test_strikes_of_one_part_count_within_the_window() -> None:
    strikes = CheckStrikes(300.0)
    other = replace(FLAP, device="mlx5_1/1")
    assert not strikes.strike("a", [FLAP], True, 1000.0), "once may be chance"
    assert not strikes.strike("a", [FLAP, other], False, 1010.0), "another part"
    assert not strikes.strike("a", [], False, 1020.0)
    assert strikes.strike("a", [FLAP], False, 1100.0) == (FLAP,), "it came back"
    assert not strikes.strike("a", [], False, 1110.0)
    assert not strikes.strike("a", [FLAP], False, 1500.0), "long after"
    assert not strikes.strike("b", [FLAP], True, 1501.0), "another machine"
    for at in (1502.0, 1503.0, 1504.0):
        assert not strikes.strike("b", [FLAP], True, at), "an agent that comes back tells it again"
    assert strikes.strike("c", [FLAP, replace(FLAP, age_s=200.0)], True, 1600.0), "both before it was connected"
    assert not strikes.strike("d", [FLAP, replace(FLAP, age_s=400.0)], True, 1600.0)
    assert strikes.strike("e", [LOST], True, 1.0) == (LOST,) and not strikes.strike("e", [LOST], False, 2.0)
    worse = replace(FLAP, impact=Impact.CONVICTS)
    assert strikes.strike("d", [worse], False, 1700.0) == (worse,), "it grew worse"
