"""A job that became slower is looked at lightly, in one incident, by whichever server is there; and one that hangs meanwhile is let go."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog.supervising.watcher import WatchedCluster
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.incident import SLOWED_WHY, SUSPECTED_WHY, Incident, IncidentState
from hangdog_models.numbers.work_rate import WorkUnit
from hangdog_models.owner import UNKNOWN, Owner, OwnerKind
from hangdog_models.planning.slowdown import Slowdown
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Suspect, Verdict
from hangdog_proto.client.server_address import ServerAddress
from hangdog_proto.codec import slow_report, stall_signs
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster import stalls
from hangdog_server.cluster.slow_jobs import SlowJobs
from hangdog_server.incidents import stall_watch
from hangdog_server.incidents.triggers import slow_watch
from support.cases.reasons import reasons
from support.servers.cast import NOON, PATIENT, Agent, Listener, Stage, cluster, stage, trainer, verdict

SLOW = Slowdown(0.5, 0.75, 80.0)
LIGHT = replace(PATIENT, slow_rounds=5, slow_interval_s=0.05)
SUSPECT = Suspect((Rank(2),), ("b",), 0.99, reasons("it is late"))
#: So long nothing must happen to be sure that nothing does: many thoughts of the server. Seconds.
QUIET_S = 0.4


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits as long as in earnest."""
    monkeypatch.setattr(slow_watch, "TICK_S", 0.02)
    monkeypatch.setattr(slow_watch, "AGAIN_S", 0.05)
    monkeypatch.setattr(stall_watch, "TICK_S", 0.02)
    monkeypatch.setattr(stalls, "AGAIN_S", 0.05)


def naming(snapshot: Snapshot, topology: Topology) -> Verdict:
    """A judge that is sure of rank 2."""
    return replace(verdict(snapshot, topology, Kind.SLOW), confidence=0.99, suspects=(SUSPECT,))


def unsure(snapshot: Snapshot, topology: Topology) -> Verdict:
    return verdict(snapshot, topology, Kind.NONE)


async def tells(agent: Agent, slow: Mapping[str, Slowdown]) -> None:
    await agent.say(slow_report=slow_report.pack(slow, {}))


async def answers(agent: Agent, rank: int, seen: list[pb.CaptureOrder]) -> None:
    """Answers whatever is asked."""
    while True:
        message = await agent.next()
        if message.HasField("capture"):
            seen.append(message.capture)
            await agent.answer(message.capture, trainer(rank, f"layer_{len(seen)}"), last=True)


async def judged(on: Stage, count: int = 1) -> Incident:
    """The newest incident, once all have ended."""
    async with asyncio.timeout(30):
        while len(found := await on.store.latest("", 9)) < count or any(not one.kind for one in found):
            await asyncio.sleep(0.01)
    assert len(found) == count
    return await on.store.find(found[0].id)


async def test_a_slower_job_is_looked_at_lightly_and_once(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", Listener(naming), LIGHT) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        orders: list[pb.CaptureOrder] = []
        answering = [asyncio.create_task(answers(a, 0, orders)), asyncio.create_task(answers(b, 2, []))]
        await tells(a, {"llama": SLOW})
        incident = await judged(on)
        assert incident.why.startswith(f"{SLOWED_WHY} {SLOW.why}, for 8")
        assert incident.kind == Kind.SLOW and all(order.light for order in orders)
        assert len(orders) == 4, "two judgements agree after the fourth look"
        watched = WatchedCluster(ServerAddress(on.address))
        assert await asyncio.to_thread(watched.verdict, "llama") is None, (
            "`hangdog run` does not restart a job that trains"
        )
        for _ in range(5):
            await tells(a, {"llama": SLOW})
            await tells(b, {"llama": SLOW})
            await asyncio.sleep(QUIET_S / 5)
        assert len(await on.store.latest("", 9)) == 1, "one slowdown is one incident"
        for task in answering:
            task.cancel()


async def test_where_nobody_is_told_apart_it_ends_by_itself(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", Listener(unsure), LIGHT) as on, cluster(on, a=[0]) as (a,):
        orders: list[pb.CaptureOrder] = []
        answering = asyncio.create_task(answers(a, 0, orders))
        await tells(a, {"llama": SLOW})
        incident = await judged(on)
        assert incident.kind == Kind.NONE and incident.state == IncidentState.JUDGED and not incident.evict
        assert len(orders) == LIGHT.slow_rounds
        answering.cancel()


@pytest.mark.parametrize(
    ("earlier", "opens"),
    [
        (Incident("0a", "llama", NOON - 60.0, f"{SLOWED_WHY} before"), False),
        (Incident("0a", "llama", NOON - LIGHT.slow_again_s - 60.0, f"{SLOWED_WHY} long ago"), True),
        (Incident("0a", "llama", NOON - 60.0, f"{SUSPECTED_WHY} it stood"), True),
        (Incident("0a", "other", NOON - 60.0, f"{SLOWED_WHY} before"), True),
    ],
)
async def test_what_a_server_of_before_looked_at_is_not_looked_at_again(
    tmp_path: Path, earlier: Incident, opens: bool
) -> None:
    """As after a kill -9: the agent tells the same slowdown to the next server."""
    async with stage(tmp_path / "s.db", Listener(naming), LIGHT) as on:
        await on.store.begin(earlier, {})
        await on.store.move("0a", IncidentState.FAILED, earlier.began)
        async with cluster(on, a=[0]) as (a,):
            answering = asyncio.create_task(answers(a, 0, []))
            await tells(a, {"llama": SLOW})
            await asyncio.sleep(QUIET_S)
            assert len(await on.store.latest("llama", 9)) == opens + (earlier.job == "llama")
            answering.cancel()


async def test_what_the_server_s_end_cuts_short_the_next_one_takes_up_in_the_same_incident(tmp_path: Path) -> None:
    settings = replace(LIGHT, returned_s=20.0)
    async with stage(tmp_path / "s.db", Listener(naming), settings) as on, cluster(on, a=[0]) as (a,):
        await tells(a, {"llama": SLOW})
        order = await a.order()
        assert order.light  # and nobody answers before the server ends
    async with stage(tmp_path / "s.db", Listener(naming), settings) as on, cluster(on, a=[0]) as (a,):
        orders: list[pb.CaptureOrder] = []
        answering = asyncio.create_task(answers(a, 0, orders))
        await tells(a, {"llama": SLOW})
        incident = await judged(on)
        assert incident.kind == Kind.SLOW and all(order.light for order in orders)
        await asyncio.sleep(QUIET_S)
        assert len(await on.store.latest("", 9)) == 1
        answering.cancel()


async def test_it_is_switched_off_by_a_setting(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", Listener(naming), replace(LIGHT, slow_again_s=0.0)) as on:
        async with cluster(on, a=[0]) as (a,):
            await tells(a, {"llama": SLOW})
            await asyncio.sleep(QUIET_S)
        assert not await on.store.latest("", 9)


async def test_a_machine_has_no_other_s_job_looked_at(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", Listener(naming), LIGHT) as on, cluster(on, a=[0]), on.agent("liar") as liar:
        await liar.hello(other=[0])
        await tells(liar, {"llama": SLOW, "nobody's": SLOW})
        await asyncio.sleep(QUIET_S)
        assert not await on.store.latest("", 9)


async def test_a_job_that_stands_still_by_now_is_not_looked_at_lightly_any_longer(tmp_path: Path) -> None:
    settings = replace(LIGHT, slow_rounds=50, slow_interval_s=60.0, light_from=2)
    async with stage(tmp_path / "s.db", Listener(unsure), settings) as on, cluster(on, a=[0]) as (a,):
        orders: list[pb.CaptureOrder] = []
        answering = asyncio.create_task(answers(a, 0, orders))
        await tells(a, {"llama": SLOW})
        async with asyncio.timeout(30):
            while not orders:
                await asyncio.sleep(0.01)
        stuck = Sign(Doing.STILL, 6.0, overdue=True, place="all_reduce", waits=True)
        await a.say(stall_report=stall_signs.pack({"llama": {Rank(0): stuck}}))
        await judged(on, 2)
        whys = sorted(one.why for one in await on.store.latest("", 9))  # both began at one moment of this clock
        assert whys[0].startswith(SLOWED_WHY) and whys[1].startswith(SUSPECTED_WHY)
        assert [order.light for order in orders] == [True, True, False], (
            "it is looked at closely in an incident of its own"
        )
        answering.cancel()


async def test_a_job_that_stands_still_is_not_looked_at_for_its_pace(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", Listener(naming), LIGHT) as on, cluster(on, a=[0]) as (a,):
        answering = asyncio.create_task(answers(a, 0, []))
        stuck = Sign(Doing.STILL, 6.0, overdue=True, place="all_reduce", waits=True)
        await a.say(stall_report=stall_signs.pack({"llama": {Rank(0): stuck}}))
        await tells(a, {"llama": SLOW})
        assert (await judged(on)).why.startswith(SUSPECTED_WHY)
        await asyncio.sleep(QUIET_S)
        assert len(await on.store.latest("", 9)) == 1
        answering.cancel()


def test_what_machines_say_of_one_job_is_put_together() -> None:
    jobs = SlowJobs()
    jobs.note("a", {"llama": SLOW, "other": SLOW}, 10.0)
    jobs.note("b", {"llama": replace(SLOW, seconds=200.0)}, 20.0)
    found = jobs.slow(30.0)
    assert found["llama"].seconds == 210.0 and found["other"].seconds == 100.0
    jobs.note("a", {}, 31.0)
    jobs.forget("b")
    assert not jobs.slow(32.0)


def test_slow_jobs_survive_the_wire_and_nonsense_does_not() -> None:
    mine = Owner(OwnerKind.USER, "1000", 1000)
    assert slow_report.unpack(slow_report.pack({"llama": SLOW}, {})) == {("llama", UNKNOWN): SLOW}
    assert slow_report.unpack(slow_report.pack({"k": SLOW}, {"k": ("llama", mine)})) == {("llama", mine): SLOW}
    for usual_s, step_s, seconds in (
        (0.0, 1.0, 1.0), (2.0, 1.0, 1.0), (1.0, float("nan"), 1.0), (1.0, float("inf"), 1.0), (1.0, 2.0, -1.0),
        (1.0, 2.0, 1e300), (1e-300, 2e-300, 1.0),
    ):  # fmt: skip
        report = pb.SlowReport(jobs=[pb.SlowJob(job="j", usual_s=usual_s, step_s=step_s, seconds=seconds)])
        with pytest.raises(UnreadableEvidence):
            slow_report.unpack(report)
    fell = replace(SLOW, work=WorkUnit.TOKENS)
    assert slow_report.unpack(slow_report.pack({"llama": fell}, {})) == {("llama", UNKNOWN): fell}
    with pytest.raises(UnreadableEvidence):
        slow_report.unpack(pb.SlowReport(jobs=[pb.SlowJob(usual_s=1.0, step_s=2.0, seconds=1.0, work="cakes/s")]))
    with pytest.raises(UnreadableEvidence):
        slow_report.unpack(pb.SlowReport(jobs=[pb.SlowJob()] * (slow_report.MOST_JOBS + 1)))
