"""What libraries counted, on its way: from the ranks' own pipes to the judge, in the last look's message and behind it."""

import asyncio
import json
import os
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.collectives import INSPECTOR
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.collectives import progress_json
from hangdog_models.snapshot import Job, Snapshot
from hangdog_models.stack import Missing, Reason
from hangdog_proto.client.incidents import ProgressStep
from hangdog_proto.codec import collectives
from hangdog_proto.codec.collectives import Statement, StatementKind
from hangdog_proto.codec.traces import pack, unpack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.gather import Gathering, RoundAnswer, RoundPlan, Waiting, conclude, ready, take
from hangdog_server.incidents.replay import StoredRound, opened
from support.cases.evidence import flight
from support.cases.rings import communicator, operation
from support.fakes.dumper import own_job, pickled, played
from support.servers.cast import PATIENT, QUICK, Agent, Listener, Stage, stage, trainer
from support.worded import names

#: A report in which rank 1 of the communicator is dead.
REPORT = (
    b'{"nccl_version": "2.29.1", "communicators": [{"hash": "0xab", "size": 2, "ranks": [], "missing_ranks": '
    b'[{"rank": 1, "host": "h", "pid": 7, "status": {"considered_dead": true}}]}]}'
)
LATE = Missing(Reason.TIMED_OUT, "no new dump within 4 s")


def record(rank: int, enqueued: int = 5) -> Statement:
    return Statement(StatementKind.RECORD, Rank(rank), flight(enqueued, enqueued - 1))


def looked(
    *ranks: int, number: int = 0, said: tuple[Statement, ...] = (), last: bool = False, more: bool = False
) -> pb.Captured:
    """One message of an answer."""
    capture = pack([trainer(rank) for rank in ranks])
    capture.statements.extend(collectives.pack(each) for each in said)
    return pb.Captured(round=number, capture=capture, last=last, more=more)


async def asked(on: Stage, agent: Agent, *messages: pb.Captured, rounds: int = 1) -> list[ProgressStep]:
    """A snapshot that one machine with ranks 0 and 1 answers so."""
    await agent.hello(llama=[0, 1])
    await on.knows(agent.machine)
    asking = asyncio.create_task(on.snapshot(rounds=rounds))
    order = await agent.order()
    for message in messages:
        message.order = order.order
        await agent.say(captured=message)
    return await asking


def seen(listener: Listener) -> Snapshot:
    assert listener.snapshot is not None
    return listener.snapshot


def enqueued(snapshot: Snapshot) -> dict[int, int]:
    return {record.rank: record.enqueued["0"] for record in snapshot.counters}


async def test_counters_come_with_the_last_look(tmp_path: Path) -> None:
    listener = Listener()
    ras = Statement(StatementKind.RAS, None, REPORT)
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as agent:
        first = looked(0, 1)
        last = looked(0, 1, number=1, said=(record(0), record(1, 6), ras), last=True)
        await asked(on, agent, first, last, rounds=2)
    snapshot = seen(listener)
    assert enqueued(snapshot) == {0: 5, 1: 6}
    assert [[member.pid for member in report.lost] for report in snapshot.ras] == [[7]]
    assert len(snapshot.rounds) == 2
    assert snapshot.account.unreadable == {} and snapshot.account.notes == ()


async def test_how_old_a_record_was_comes_with_it(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as agent:
        await asked(on, agent, looked(0, 1, said=(replace(record(0), age_s=12), record(1)), last=True))
    assert {one.rank: one.age_s for one in seen(listener).counters} == {0: 12, 1: 0}


async def test_counters_behind_the_last_look_are_waited_for_and_kept(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as agent:
        ahead = looked(0, 1, more=True)
        behind = looked(number=1, said=(record(0),))
        further = looked(number=2, said=(record(1, 6),), last=True)
        steps = await asked(on, agent, ahead, behind, further)
        plan, kept = await on.store.recall(steps[0].incident)
    assert enqueued(seen(listener)) == {0: 5, 1: 6}
    assert len(seen(listener).rounds) == 1
    # what is kept is enough to put the same together again
    there = {machine: tuple(map(Rank, known["ranks"])) for machine, known in plan["asked"].items()}
    again = Gathering(RoundPlan("again", Job("llama"), plan["rounds"], plan["interval_s"], there), 0.0)
    for one in kept:
        capture = pb.Capture.FromString(one.packed)
        how = RoundAnswer(
            one.machine, one.round, unpack(capture), counters=collectives.unpack_all(capture), more=one.round == 0
        )
        assert not take(again, how)
    assert conclude(again).counters == seen(listener).counters


async def test_one_that_cannot_be_read_is_named_and_costs_no_other(tmp_path: Path) -> None:
    listener = Listener()
    bomb = collectives.pack(Statement(StatementKind.RECORD, Rank(1), b"0" * 1_000_000))
    bomb.size = 100
    strange = pb.Statement(kind="tarot", size=0)
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as agent:
        said = (
            record(0),
            Statement(StatementKind.RECORD, Rank(1), pickled(7, 6)[:-40]),
            Statement(StatementKind.RAS, None, b"<html>"),
        )

        message = looked(0, 1, said=said, last=True)
        message.capture.statements.extend((bomb, strange))
        await asked(on, agent, message)
    snapshot = seen(listener)
    assert enqueued(snapshot) == {0: 5}
    assert snapshot.ras == ()
    unreadable = dict(snapshot.account.unreadable)
    size, kind, dump, report = sorted(unreadable)
    assert (size, kind) == ("a, statement 3", "a, statement 4")
    assert names(unreadable[size], "100 bytes") and names(unreadable[kind], "'tarot'")
    assert names(dump, "a", "flight record", "rank 1") and names(unreadable[dump], "pickle")
    assert names(report, "a", "RAS") and names(unreadable[report], "ncclras")
    assert len(snapshot.rounds[0].traces) == 2 and not [t for t in snapshot.rounds[0].traces if t.missing]


async def test_what_rings_show_comes_with_the_rest_and_one_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    listener = Listener()
    ring = json.dumps(progress_json.written([communicator(0, 2, 8, operation(7))])).encode()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as agent:
        said = (
            record(0),
            Statement(StatementKind.PROGRESS, Rank(0), ring),
            Statement(StatementKind.PROGRESS, Rank(1), b'{"schema": "hangdog.progress/1"}'),
            Statement(StatementKind.PROGRESS, Rank(1), missing=Missing(Reason.TOOL_FAILED, "a ring of version 9")),
        )
        await asked(on, agent, looked(0, 1, said=said, last=True))
    snapshot = seen(listener)
    assert enqueued(snapshot) == {0: 5}
    assert [(one.rank, one.communicators[0].collectives) for one in snapshot.progress] == [(0, 8)]
    ((whose, why),) = snapshot.account.unreadable.items()
    assert names(whose, "a", "ring", "rank 1") and why == "a ring of version 9"


async def test_what_inspector_wrote_comes_with_the_rest(tmp_path: Path) -> None:
    listener = Listener()
    header = '{"header":{"id":"0x7f","rank":%d,"n_ranks":2},"metadata":{"inspector_output_format_version":"v4.2"},'
    line = (header + '"coll_perf":{"coll":"AllReduce","coll_sn":9}}\n').encode()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as agent:
        said = [Statement(StatementKind.INSPECTOR, Rank(rank), line % rank) for rank in (0, 1)]
        said.append(Statement(StatementKind.INSPECTOR, Rank(1), missing=LATE))
        await asked(on, agent, looked(0, 1, said=tuple(said), last=True))
    counters = seen(listener).counters
    assert [(one.rank, one.source, one.completed) for one in counters] == [
        (rank, INSPECTOR, {"0x7f AllReduce": 9}) for rank in (0, 1)
    ]
    ((whose, why),) = seen(listener).account.unreadable.items()
    assert names(whose, "a", "NCCL Inspector", "rank 1") and why == LATE.message


def test_a_bomb_is_never_inflated() -> None:
    bomb = collectives.pack(Statement(StatementKind.RECORD, Rank(1), bytes(20_000_000)))
    bomb.size = 100
    tracemalloc.start()
    try:
        assert collectives.unpack_all(pb.Capture(statements=[bomb])) is not None
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


async def test_why_there_are_none_is_a_note(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as agent:
        lacking = Statement(StatementKind.RECORD, Rank(1), missing=LATE)
        await asked(on, agent, looked(0, 1, said=(record(0), lacking), last=True))
    assert enqueued(seen(listener)) == {0: 5}
    (note,) = seen(listener).account.notes
    assert names(note, "no flight record", "rank 1", LATE.message)


async def test_promised_counters_that_never_come_are_waited_for_no_longer_than_patience(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, replace(QUICK, patience_s=0.5)) as on, on.agent("a") as agent:
        steps = await asked(on, agent, looked(0, 1, more=True))
    assert "1 of 1 machine answered" in [step.text for step in steps]
    (note,) = seen(listener).account.notes
    assert names(note, "counted", "on a", "in time")
    assert not [trace for trace in seen(listener).rounds[0].traces if trace.missing]


def test_promised_counters_are_waited_for_behind_the_look_and_patience_is_not_used_up() -> None:
    ranks = (Rank(0), Rank(1))
    begun = Gathering(RoundPlan("order", Job("llama"), 1, 2.0, {"a": ranks}, patience_s=20.0, counters_s=12.0), 100.0)
    assert take(begun, RoundAnswer("a", 0, (trainer(0), trainer(1)), more=True)) == ""
    for now in (101.0, 112.0):
        waiting = ready(begun, now)
        assert isinstance(waiting, Waiting) and waiting.until == 113.0 and names(waiting.reason, "0 of 1")
    assert isinstance(ready(begun, 113.0), Snapshot)


async def test_an_agent_lost_behind_its_last_look_is_not_waited_for(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on:  # PATIENT: only the loss can end the waiting
        async with on.agent("a") as agent:
            await agent.hello(llama=[0, 1])
            await on.knows("a")
            asking = asyncio.create_task(on.snapshot())
            ahead = looked(0, 1, more=True)
            ahead.order = (await agent.order()).order
            await agent.say(captured=ahead)
            await agent.announce()
            await on.until(lambda seen: not seen[0].jobs)  # the server has read the look before
        async with asyncio.timeout(30):
            await asking
    assert len(seen(listener).account.notes) == 1
    assert not [trace for trace in seen(listener).rounds[0].traces if trace.missing]


async def test_numbers_behind_the_last_look_are_for_counters_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as agent:
        stray = looked(0, 1, number=1)
        far = looked(number=5000, said=(record(1),))
        behind = looked(number=1, said=(record(0),))
        again = looked(number=1, said=(record(0, 99),))
        end = looked(number=2, said=(record(1),), last=True)
        await asked(on, agent, looked(0, 1, more=True), stray, far, behind, again, end)
    assert enqueued(seen(listener)) == {0: 5, 1: 5}
    refused = [message.partition("refused: ")[2] for message in caplog.messages if "refused" in message]
    stray_look, far_look, again_look = refused
    assert names(stray_look, "look 1", "not asked") and names(far_look, "look 5000", "not asked")
    assert names(again_look, "a answered", "look 1")


async def test_an_agent_that_knows_no_counters_is_done_with_its_last_look(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as agent:
        await asked(on, agent, looked(0, 1), looked(0, 1, number=1, last=True), rounds=2)
    assert seen(listener).counters == () and seen(listener).account.notes == ()


@given(
    st.builds(
        Statement,
        st.just(StatementKind.RECORD),
        st.integers(0, MAX_RANK).map(Rank),
        st.binary(min_size=1, max_size=2000),
        st.none() | st.builds(Missing, st.sampled_from(Reason), st.text(max_size=20)),
    )
)
def test_unpacking_gives_back_what_was_packed(said: Statement) -> None:
    travelled = pb.Statement.FromString(collectives.pack(said).SerializeToString())
    expected = said if said.missing is None else replace(said, data=b"")
    if said.missing is not None:
        words = said.missing.message.encode("utf-8", "replace").decode()
        expected = replace(expected, missing=Missing(said.missing.reason, words))
    assert collectives.unpack(travelled) == expected


@given(st.binary(max_size=60), st.integers(0, 1 << 40), st.binary(max_size=60))
def test_whatever_arrives_only_our_error_comes_of_it(deflated: bytes, size: int, kind: bytes) -> None:
    packed = pb.Statement(kind=kind.decode("latin-1"), rank=1 << 31, deflated=deflated, size=size)
    with pytest.raises(UnreadableEvidence):
        collectives.unpack(packed)
    packed = pb.Statement(kind=StatementKind.RECORD, deflated=deflated, size=size)
    assert collectives.unpack_all(pb.Capture(statements=[packed])) is not None


async def test_from_the_ranks_own_pipes_to_the_judge(tmp_path: Path) -> None:
    """A server, the agent as it is shipped, and two played ranks: the judge is given what they counted."""
    listener = Listener()
    job = own_job() | {"WORLD_SIZE": "2", "NCCL_RAS_ADDR": "localhost:9"}
    async with stage(tmp_path / "s.db", listener, replace(PATIENT, heartbeat_s=5.0, rounds=2)) as on:
        with (
            played(tmp_path, 0, pickled(7, 6), **job),
            played(tmp_path, 1, pickled(6, 6), "late", **job),
        ):
            agent = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hangdog_agent.main", "--server", on.address, "--machine", "gpu-a17"),
                *("--match-env", f"HANGDOG_JOB={job['HANGDOG_JOB']}"),
                env=os.environ | {"NO_COLOR": "1"},
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                await on.knows("gpu-a17")
                steps = await on.snapshot()
            finally:
                agent.terminate()
                assert await agent.wait() == 0
        _, kept = await on.store.recall(steps[0].incident)
    snapshot = seen(listener)
    assert enqueued(snapshot) == {0: 7, 1: 6}
    assert [counted.members["0"] for counted in snapshot.counters] == [(0, 1), (0, 1)]
    assert [len(round_.traces) for round_ in snapshot.rounds] == [2, 2]
    assert any(
        collectives.unpack_all(pb.Capture.FromString(one.packed))
        for one in opened(StoredRound(one.machine, one.round, one.packed) for one in kept)[1]
    )
