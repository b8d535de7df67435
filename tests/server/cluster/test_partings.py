"""A silent agent is evidence against its machine, a lost line is not, and neither is an agent that said goodbye."""

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.errors import WrongUse
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, ProcessTrace, Reason, Thread
from hangdog_models.verdict import Kind
from hangdog_proto.client.incidents import MachineLine
from hangdog_proto.codec import findings
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster.connection import Connection
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.protocol.commands import Pace
from hangdog_server.protocol.disconnects import BACK_S, Disconnect, meaning
from hangdog_server.protocol.jobs import AnnouncedJob
from support.servers.cast import PATIENT, QUICK, Listener, stage, trainer
from support.worded import names

B = Disconnect("b", 1000.0, 1.0)


def others(count: int, at: float = 1001.0, **state: bool) -> list[Disconnect]:
    return [Disconnect(f"m{number}", at, 1.0, **state) for number in range(count)]


@pytest.mark.parametrize(
    ("parting", "lost", "connected", "now", "reason", "named"),
    [
        (None, [], 3, 1040.0, Reason.NO_AGENT, ("not connected",)),
        (B, [], 3, 1040.0, Reason.NO_AGENT, ("not connected", "broke 40 s")),
        (B, [], 3, 4600.0, Reason.NO_AGENT, ("not connected", "broke 60 min")),
        (
            Disconnect("b", 1000.0, 15.0),
            [],
            3,
            1040.0,
            Reason.NO_AGENT,
            ("not connected", "silent 55 s", "given up 40 s"),
        ),
        (
            Disconnect("b", 1000.0, 1.0, goodbye=True),
            [],
            3,
            1040.0,
            Reason.NO_EVIDENCE,
            ("in order 40 s",),
        ),
        (
            B,
            others(5),
            4,
            1040.0,
            Reason.NO_EVIDENCE,
            ("together with 5", "40 s", "server's line"),
        ),
        (B, others(5, at=1100.0), 4, 1140.0, Reason.NO_AGENT, ("not connected", "broke 140 s")),
        (
            B,
            others(5, goodbye=True),
            4,
            1040.0,
            Reason.NO_AGENT,
            ("not connected", "broke 40 s"),
        ),
        (B, others(1), 8, 1040.0, Reason.NO_AGENT, ("not connected", "broke 40 s")),
        (
            B,
            others(5, back=True),
            9,
            1000.0 + BACK_S,
            Reason.NO_AGENT,
            ("together with 5", "60 s", "5 of them are back"),
        ),
        (
            Disconnect("b", 1000.0, 1.0, back=True),
            [],
            3,
            1040.0,
            Reason.NO_EVIDENCE,
            ("back too late",),
        ),
    ],
    ids=[
        *(
            "never seen",
            "one of four",
            "an hour ago",
            "half-open",
            "in order",
            "with most",
            "most later",
            "most in order",
        ),
        *("two of ten", "alone not back", "back"),
    ],
)
def test_what_it_means_that_an_agent_is_gone(
    parting: Disconnect | None,
    lost: list[Disconnect],
    connected: int,
    now: float,
    reason: Reason,
    named: tuple[str, ...],
) -> None:
    missing = meaning(parting, lost, connected, 5.0, now)
    assert missing.reason is reason and names(missing.message, *named)
    assert re.findall(r"\d+", missing.message) == re.findall(r"\d+", " ".join(named)), "and no other number"


GONE = Finding("NVML", "GPU lost", Impact.CONVICTS, "GPU 3 is lost", "b", at_s=5.0)


def state(seen: tuple[MachineLine, ...], name: str) -> tuple[bool, bool]:
    return next((line.connected, line.stopped) for line in seen if line.name == name)


@pytest.mark.parametrize("goodbye", [True, False])
async def test_a_machine_that_vanished_is_missing_with_how_and_its_findings_stay(tmp_path: Path, goodbye: bool) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as a, on.agent("c") as c:
        await a.hello(llama=[0, 1])
        await c.hello(llama=[4, 5])
        async with on.agent("b") as b:
            await b.hello(llama=[2, 3])
            await b.say(health=pb.Health(findings=findings.pack([GONE])))
            await on.until(lambda seen: any(line.findings == (GONE,) for line in seen))
            if goodbye:
                await b.say(presence=pb.Presence(jobs=[pb.LocalJob(job="llama", ranks=[2, 3])], leaving=True))
                await b.hang_up()
        await on.until(lambda seen: len(seen) == 3 and state(seen, "b") == (False, goodbye))
        asking = asyncio.ensure_future(on.snapshot("llama"))
        for agent, ranks in ((a, (0, 1)), (c, (4, 5))):
            await agent.answer(await agent.order(), *map(trainer, ranks), last=True)
        await asking
    assert listener.snapshot is not None
    (missing,) = {trace.missing for trace in listener.snapshot.rounds[0].traces if trace.missing}
    assert missing.reason is (Reason.NO_EVIDENCE if goodbye else Reason.NO_AGENT)
    assert names(missing.message, "stopped in order" if goodbye else "stream broke")
    assert listener.snapshot.findings == (GONE,)


async def test_losing_most_machines_in_the_middle_of_a_capture_blames_none_of_them(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, QUICK) as on, on.agent("a") as a:
        await a.hello(llama=[0, 1])
        async with on.agent("b") as b, on.agent("c") as c:
            await b.hello(llama=[2, 3])
            await c.hello(llama=[4, 5])
            await on.knows("a", "b", "c")
            asking = asyncio.ensure_future(on.snapshot("llama"))
            await a.answer(await a.order(), trainer(0), trainer(1), last=True)
            await b.order()
        await asking
    assert listener.snapshot is not None
    missing = {trace.rank: trace.missing for trace in listener.snapshot.rounds[0].traces if trace.missing}
    assert set(missing) == {2, 3, 4, 5}
    assert all(why.reason is Reason.NO_EVIDENCE and "together" in why.message for why in missing.values())


async def test_an_open_stream_is_no_sign_of_life(tmp_path: Path) -> None:
    listener, settings = Listener(), replace(QUICK, heartbeat_s=0.1, patience_s=0.6)
    async with stage(tmp_path / "s.db", listener, settings) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello(llama=[0, 1])
        await b.hello(llama=[2, 3])
        await on.knows("a", "b")
        asking = asyncio.ensure_future(on.snapshot("llama"))
        await a.answer(await a.order(), trainer(0), trainer(1), last=True)
        await asking
    assert listener.snapshot is not None
    missing = {trace.rank: trace.missing for trace in listener.snapshot.rounds[0].traces if trace.missing}
    assert set(missing) == {2, 3}
    mute = missing[Rank(2)]
    assert mute.reason is Reason.NO_AGENT and names(mute.message, "of b", "is connected", "said nothing")


def test_ranks_of_a_mute_machine_do_not_count_as_going_on() -> None:
    fleet = Fleet(replace(PATIENT, heartbeat_s=5.0))
    for machine, ranks in (("a", (0, 1)), ("b", (2, 3))):
        connection = fleet.connect(machine, "1", machine, 0.0)
        fleet.announce(connection, {"llama": AnnouncedJob("llama", tuple(map(Rank, ranks)), 4)}, 0.0)
    assert set(fleet.awake("llama", 12.0)) == {"a", "b"}
    connection.last_message = 10.0
    assert set(fleet.awake("llama", 13.0)) == {"b"}
    assert fleet.mute_s("a", 13.0) == 13.0 and fleet.mute_s("nobody", 13.0) == 0.0


#: Signs of life are a second apart in a cluster of five, and no further than ten seconds apart.
SMALL = replace(PATIENT, heartbeat_s=1.0, heartbeat_most_s=10.0, beats_per_s=5.0, max_machines=1000)


def joined(fleet: Fleet, count: int, now: float = 0.0, paced: bool = True) -> list[Connection]:
    there = fleet.counts(now)["connected"]
    return [fleet.connect(f"m{there + at}", "1", "here", now, paced) for at in range(count)]


def told(connection: Connection) -> list[object]:
    return [connection.line.get_nowait() for _ in range(connection.line.qsize())]


def test_signs_of_life_are_further_apart_in_a_large_cluster_and_agents_are_told() -> None:
    fleet = Fleet(SMALL)
    first, *_ = joined(fleet, 5)
    assert first.pace_s == fleet.pace_s == 1.0, "as ever in a small one"
    old, *_ = joined(fleet, 1, paced=False)
    joined(fleet, 14)
    fleet.hear(first, 1.0)
    fleet.hear(old, 1.0)
    assert told(first) == [Pace(4.0)] and told(old) == []
    joined(fleet, 4)
    fleet.hear(first, 2.0)
    assert told(first) == [], "not of every other one that joins"
    joined(fleet, 976)
    assert fleet.pace_s == 10.0
    assert joined(Fleet(SMALL), 1)[0].pace_s == 1.0


def test_an_agent_is_silent_by_the_pace_it_was_told_and_not_before() -> None:
    fleet = Fleet(SMALL)
    first, *others = joined(fleet, 50)
    fleet.hear(first, 0.0)
    assert told(first) == [Pace(10.0)]
    assert not fleet.mute_s("m0", 24.0) and fleet.mute_s("m0", 26.0) == 26.0
    assert fleet.counts(24.0)["silent"] == 47, "those that were told less and were not heard since"
    with pytest.raises(WrongUse, match="m0") as caught:
        fleet.connect("m0", "1", "there", 24.0)
    assert caught.value.code == "machine-name-taken"
    fleet.hear(first, 30.0)
    for other in others:
        fleet.disconnect(other, 30.0)
    first.last_message = 31.0
    fleet.hear(first, 40.0)
    assert told(first) == [Pace(1.0)]
    first.last_message = 31.0  # as far as it knew when it spoke last, it could be silent until now
    assert not fleet.mute_s("m0", 42.0) and fleet.mute_s("m0", 43.0) == 3.0


async def test_the_pace_travels_to_agents_that_follow_it_and_to_no_other(tmp_path: Path) -> None:
    settings = replace(PATIENT, heartbeat_s=20.0, heartbeat_most_s=40.0, beats_per_s=0.05)
    async with stage(tmp_path / "s.db", settings=settings) as on, on.agent("a") as new, on.agent("b") as old:
        await new.say(hello=pb.Hello(machine="a", version="1", paced=True))
        assert (await new.next()).welcome.heartbeat_s == 20.0
        assert (await old.hello(llama=[1])).heartbeat_s == 20.0, "the one that joins makes the cluster no larger yet"
        await on.knows("b")
        await new.announce(pb.LocalJob(job="llama", ranks=[0]))
        assert (await new.next()).heartbeat_interval.heartbeat_s == 40.0
        await on.knows("a", "b")
        asking = asyncio.ensure_future(on.snapshot("llama"))
        for agent, rank in ((new, 0), (old, 1)):
            await agent.answer(await agent.order(), trainer(rank), last=True)
        await asking


async def test_an_agent_that_comes_back_is_no_longer_gone(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on:
        async with on.agent("b") as b:
            await b.hello(llama=[2, 3])
            await on.knows("b")
        await on.until(lambda seen: state(seen, "b") == (False, False))
        async with on.agent("b") as b:
            await b.hello(llama=[2, 3])
            await on.until(lambda seen: state(seen, "b") == (True, False))


def waits(rank: int) -> ProcessTrace:
    """A rank in a collective, which waits for whoever has not come."""
    stack = (("<module>", "train.py"), ("step", "train.py"), ("all_reduce", "torch/distributed/distributed_c10d.py"))
    frames = tuple(Frame(function, file, 10) for function, file in stack)
    return ProcessTrace(Rank(rank), pid=1000 + rank, threads=(Thread("MainThread", 1, frames),))


@pytest.mark.parametrize("how", ["vanished", "stopped in order"])
async def test_the_verdict_names_a_machine_that_vanished_and_not_one_whose_agent_was_stopped(
    tmp_path: Path, how: str
) -> None:
    machines = [f"m{number}" for number in range(8)]
    settings = replace(PATIENT, rounds=2, interval_s=0.01)
    async with stage(tmp_path / "s.db", diagnose, settings) as on, AsyncExitStack() as there:
        agents = {}
        for number, name in enumerate(machines):
            agents[name] = await there.enter_async_context(on.agent(name))
            await agents[name].hello(llama=[2 * number, 2 * number + 1])
        await on.knows(*machines)
        silent = agents.pop("m5")
        if how == "stopped in order":
            await silent.say(presence=pb.Presence(jobs=[pb.LocalJob(job="llama", ranks=[10, 11])], leaving=True))
            await silent.hang_up()
        else:
            await silent.__aexit__()
        await on.until(lambda seen: not state(seen, "m5")[0])
        asking = asyncio.ensure_future(on.snapshot("llama"))
        for name, agent in agents.items():
            order, first = await agent.order(), 2 * int(name[1])
            for number in range(2):
                await agent.answer(order, waits(first), waits(first + 1), look=number, last=number == 1)
        verdict = (await asking)[-1].verdict
    assert verdict is not None
    if how == "vanished":
        assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("m5",))
        assert any("its stream broke" in words for words in verdict.coverage.failed.values())
    else:
        assert verdict.evict.machines == ()
