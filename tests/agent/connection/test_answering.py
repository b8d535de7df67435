"""One order answered: counters are asked for in the last look, travel with it if they are there, and never hold it up."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from hangdog_agent.capture import library_counters, ras, ring_statement
from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.flight_recorder import recorder
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.connection.answer import CaptureAnswer
from hangdog_agent.discovery.discover import ProcessRole as Kinds
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_models.ranks import Rank
from hangdog_models.stack import Missing, ProcessTrace, Reason
from hangdog_proto.codec import collectives
from hangdog_proto.codec.collectives import Statement, StatementKind
from hangdog_proto.generated import hangdog_pb2 as pb
from support.fakes import targets

RECORDS = tuple(Statement(StatementKind.RECORD, Rank(rank), bytes([rank]) * 100) for rank in range(4))


class Played(CaptureSeries):
    """A series whose looks come at once, and whose counters when the test says so."""

    def __init__(self, traces: int = 1) -> None:
        self.asked = 0
        self.looks = 0
        self.ready = threading.Event()
        self._seen = tuple(ProcessTrace(Rank(rank), pid=1) for rank in range(traces))

    def look(self) -> tuple[ProcessTrace, ...]:
        self.looks += 1
        return self._seen

    def addresses(self) -> tuple[str, ...]:
        return ("10.0.0.7",)

    def hear(self) -> tuple[pb.Statement, ...]:
        assert self.looks in (2, 3), "in the last look, and not before"
        self.asked += 1
        self.ready.wait(10.0)
        return tuple(map(collectives.pack, RECORDS))


@pytest.fixture
def lookers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def answered(
    series: Played, lookers: ThreadPoolExecutor, most: int = 0, each: Callable[[], object] = lambda: None
) -> list[pb.Captured]:
    order = pb.CaptureOrder(order="o", rounds=3)
    found = []
    async for captured in CaptureAnswer(cast("CaptureSeries", series), order, lookers, most).messages(3, 0.0):
        found.append(captured)
        each()
    return found


def told(messages: list[pb.Captured]) -> list[tuple[int, bool, bool, int, int]]:
    return [(m.round, m.last, m.more, len(m.capture.traces), len(m.capture.statements)) for m in messages]


async def test_counters_that_are_there_travel_with_the_last_look(lookers: ThreadPoolExecutor) -> None:
    series = Played()
    series.ready.set()
    messages = await answered(series, lookers)
    assert told(messages) == [(0, False, False, 1, 0), (1, False, False, 1, 0), (2, True, False, 1, 4)]
    assert series.asked == 1


async def test_counters_that_take_their_time_hold_no_look_up(lookers: ThreadPoolExecutor) -> None:
    series = Played()
    # only once the last look is out are the counters there: were it to wait for them, it would wait for ever
    began = time.monotonic()
    messages = await answered(series, lookers, each=lambda: None if series.looks < 3 else series.ready.set())
    assert time.monotonic() - began < 8.0
    assert told(messages)[2:] == [(2, False, True, 1, 0), (3, True, False, 0, 4)]


async def test_counters_larger_than_a_message_come_in_several(lookers: ThreadPoolExecutor) -> None:
    series = Played()
    series.ready.set()
    size = collectives.pack(RECORDS[0]).ByteSize()
    messages = await answered(series, lookers, most=2 * size + 20)
    assert [(m.round, m.last, m.more) for m in messages][2:] == [(2, False, True), (3, False, False), (4, True, False)]
    assert sum(len(m.capture.statements) for m in messages) == 4
    assert all(m.capture.ByteSize() <= 2 * size + 20 for m in messages)


async def test_a_record_larger_than_any_message_says_so(lookers: ThreadPoolExecutor) -> None:
    series = Played()
    series.ready.set()
    messages = await answered(series, lookers, most=10)
    said = [collectives.unpack(each) for m in messages for each in m.capture.statements]
    assert [each.rank for each in said] == [0, 1, 2, 3]
    assert {each.missing.reason for each in said if each.missing} == {Reason.TOOL_FAILED}
    assert isinstance(said[0].missing, Missing) and "longer than the 10" in said[0].missing.message


async def test_of_a_job_that_is_not_here_nobody_is_asked(lookers: ThreadPoolExecutor) -> None:
    series = Played(traces=0)
    assert told(await answered(series, lookers)) == [(0, True, False, 0, 0)]
    assert series.asked == 0


async def test_numbers_fit_the_wire_whatever_was_ordered(lookers: ThreadPoolExecutor) -> None:
    for rounds in (0, (1 << 32) - 1):
        series = Played()
        series.looks = 2
        order = pb.CaptureOrder(order="o", rounds=rounds)
        answering = CaptureAnswer(cast("CaptureSeries", series), order, lookers, 0)
        messages = []
        async for captured in answering.messages(1, 0.0):
            messages.append(captured)
            series.ready.set()
        assert [m.round for m in messages] == [0, 1 if rounds == 0 else 1 << 31]


@pytest.mark.parametrize("world", [0, 1, 8, 15, 64, 1000])
def test_few_machines_of_a_job_ask_nccl_what_all_would_be_told(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "report", lambda *_: Statement(StatementKind.RAS, None, b"report"))
    monkeypatch.setattr(recorder, "record", lambda member, _: Statement(StatementKind.RECORD, member.rank, b"record"))
    monkeypatch.setattr(
        ring_statement, "progress", lambda *_: None
    )  # this machine may have rings, each read by a process
    tools = Tools(targets.proc, Missing(Reason.TOOL_MISSING, "none needed"), CaptureSettings())
    reports = 0
    for first in range(0, max(world, 1), 4):
        ranks = [Rank(rank) for rank in range(first, min(first + 4, max(world, 1)))]
        process = targets.row(os.getpid())
        told = library_counters.hear(
            [RankProcesses("job", rank, Kinds.TRAINER, process, world) for rank in ranks], tools
        )
        kinds = [each.kind for each in told]
        assert kinds[: len(ranks)] == [StatementKind.RECORD] * len(ranks)
        reports += StatementKind.RAS in kinds
    assert 1 <= reports <= 8


def test_a_bug_in_asking_one_rank_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(member: RankProcesses, _: Tools) -> Statement:
        if member.rank == 0:
            raise ValueError("a bug")
        return Statement(StatementKind.RECORD, member.rank, b"record")

    monkeypatch.setattr(recorder, "record", record)
    monkeypatch.setattr(ras, "report", record)
    tools = Tools(targets.proc, Missing(Reason.TOOL_MISSING, "none needed"), CaptureSettings())
    process = targets.row(os.getpid())
    told = library_counters.hear([RankProcesses("job", Rank(rank), Kinds.TRAINER, process) for rank in (0, 1)], tools)
    said = [collectives.unpack(each) for each in told]
    assert [each.data for each in said] == [b"", b"record", b""]
    assert all(each.missing and "a bug" in each.missing.message for each in (said[0], said[2]))


async def test_a_lost_line_ends_it_in_the_middle(lookers: ThreadPoolExecutor) -> None:
    series = Played()
    answering = asyncio.ensure_future(answered(series, lookers))
    while not series.asked:
        await asyncio.sleep(0.01)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
    series.ready.set()
