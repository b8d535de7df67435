"""From agents on the true wire to the report of a job that hung, was killed, came back, and outlived its server."""

import asyncio
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hangdog_models.operations.report import OperationsReport
from hangdog_models.operations.session_histories import STEADY_S, SessionHistory
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_proto.codec import stall_signs
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.grpc_api import operations_service
from hangdog_server.incidents import session_writer
from hangdog_server.store.store import Store
from hangdog_server.web.operations_page import operations_page
from support.servers.cast import NOON, Agent, Stage, stage, trainer

HOUR = 3600.0


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits: what changed is stored at once, and what is there is noted all the time."""
    monkeypatch.setattr("hangdog_server.incidents.stall_watch.TICK_S", 0.05)
    monkeypatch.setattr(session_writer, "TICK_S", 0.01)
    monkeypatch.setattr(session_writer, "STAMP_S", 0.05)


class Clock:
    """The time of day, which goes on when the test says so."""

    def __init__(self) -> None:
        self.at = NOON

    def __call__(self) -> float:
        return self.at


def local(job: str, *ranks: int) -> pb.LocalJob:
    return pb.LocalJob(job=job, ranks=ranks)


def hangs(*ranks: int) -> pb.StallReport:
    still = Sign(Doing.STILL, 6.0, overdue=True, place="all_reduce")
    return stall_signs.pack({"llama": {Rank(rank): still for rank in ranks}})


async def known(store: Store, true: Callable[[tuple[SessionHistory, ...]], bool]) -> tuple[SessionHistory, ...]:
    """The sessions, once they are what the test waits for, the earliest first."""
    async with asyncio.timeout(50):
        while not true(found := (await store.ask(operations_service.past, 0.0)).sessions):
            await asyncio.sleep(0.01)
    return tuple(sorted(found, key=lambda one: (one.began, one.until)))


async def report(on: Stage) -> OperationsReport:
    def ask() -> OperationsReport:
        with on.client() as client:
            return client.report(30 * 86400.0)

    return await asyncio.to_thread(ask)


def value(of: OperationsReport, key: str) -> tuple[Any, int]:
    (one,) = [one for one in of.figures if one.key == key]
    return one.value, one.count


async def judged(agent: Agent, *ranks: int) -> None:
    """Answers what the server asks when it suspects the job, all else that it says passed over."""
    async with asyncio.timeout(50):
        while not (message := await agent.next()).HasField("capture"):
            pass
    await agent.answer(message.capture, *(trainer(rank) for rank in ranks), last=True)


async def test_a_job_that_hangs_is_killed_and_comes_back(tmp_path: Path) -> None:
    clock = Clock()
    async with stage(tmp_path / "s.db", clock=clock) as on, on.agent("a") as a, on.agent("b") as b:
        empty = await report(on)
        assert value(empty, "ettr") == (None, 0) and not empty.training.listed
        await a.hello()
        await b.hello()
        await a.announce(local("llama", 0))
        await b.announce(local("llama", 1))
        await on.knows("a", "b")
        await known(on.store, lambda found: len(found) == 1)
        clock.at += HOUR
        await a.say(stall_report=hangs(0))
        await b.say(stall_report=hangs(1))
        await asyncio.gather(judged(a, 0), judged(b, 1))
        (hung,) = await known(on.store, lambda found: bool(found[0].stalls))
        (still,) = hung.stalls
        assert still.noticed == clock.at and still.since <= still.noticed - 6 and still.over is None
        clock.at += 600.0
        await a.announce()
        await b.announce()
        (killed,) = await known(on.store, lambda found: found[0].end)
        assert (killed.began, killed.until, killed.start) == (NOON, NOON + HOUR + 600.0, True)
        clock.at += 300.0
        await b.announce(local("llama", 1))
        await a.announce(local("llama", 0))
        await known(on.store, lambda found: len(found) == 2)
        clock.at += STEADY_S
        began = NOON + HOUR + 900.0
        _, back = await known(on.store, lambda found: max(one.until for one in found) == clock.at)
        assert (back.began, back.start, back.end) == (began, True, False)
        told = await report(on)
    lost = began - still.since
    whole = began + STEADY_S - NOON
    assert value(told, "ettr") == (pytest.approx((whole - lost) / whole, abs=0.001), 1)
    assert value(told, "mttr") == (900.0, 1)
    assert value(told, "restarts") == (1.0, 1) and value(told, "retries") == (None, 0)
    (job,) = told.training.listed
    assert (job.job, job.failures, job.restarts) == ("llama", 1, 1)
    assert told.training.seen == "seen by agents"
    page = operations_page(told)
    assert "seen by agents" in page and re.search(r">llama</th>.*data-label=\"ETTR\"><svg.*%</td>", page), page


async def test_a_standstill_is_over_when_no_rank_shows_one_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangdog_server.cluster.session_tracker.OVER_S", 0.0)
    clock = Clock()
    async with stage(tmp_path / "s.db", clock=clock) as on, on.agent("a") as a:
        await a.hello(llama=[0])
        await on.knows("a")
        await a.say(stall_report=hangs(0))
        await judged(a, 0)
        await known(on.store, lambda found: bool(found and found[0].stalls))
        clock.at += 100.0
        await a.say(stall_report=stall_signs.pack({}))
        (one,) = await known(on.store, lambda found: found[0].stalls[0].over is not None)
        assert one.stalls[0].over == NOON + 100.0 and not one.end


async def test_the_next_server_goes_on_from_what_it_finds(tmp_path: Path) -> None:
    clock = Clock()
    async with stage(tmp_path / "s.db", clock=clock) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello()
        await b.hello()
        await a.announce(local("llama", 0))
        await b.announce(local("gpt", 0))
        await known(on.store, lambda found: len(found) == 2)
        clock.at += 100.0
        await known(on.store, lambda found: {one.until for one in found} == {NOON + 100.0})
    clock.at += 50.0
    async with stage(tmp_path / "s.db", clock=clock) as on, on.agent("a") as a:
        await a.hello(llama=[0])
        first, *_, found = await known(on.store, lambda found: len(found) == 3)
        assert (first.until, first.end) == (NOON + 100.0, False), "the server's own end is no job's"
        assert (found.job, found.began, found.start) == ("llama", NOON + 150.0, False)
        told = await report(on)
    assert value(told, "ettr") == (1.0, 2) and value(told, "mttr") == (None, 0)


@pytest.mark.slow  # a server in a process of its own, twice
async def test_a_killed_server_leaves_an_open_session_and_the_next_one_invents_no_time(tmp_path: Path) -> None:
    file = tmp_path / "s.db"

    async def started() -> tuple[asyncio.subprocess.Process, str]:
        command = (sys.executable, "-m", "hangdog", "server", "--listen", "127.0.0.1:0", "--store", str(file))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env={**os.environ})
        assert process.stdout is not None
        return process, (await process.stdout.readline()).decode().removeprefix("listening on ").strip()

    def rows() -> list[tuple[str, float, float, str]]:
        if not file.exists():
            return []
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=50)) as read:
            found = read.execute("SELECT id, began, until, state FROM sessions ORDER BY began, rowid").fetchall()
        return [(str(name), float(began), float(until), str(state)) for name, began, until, state in found]

    async def until(many: int) -> list[tuple[str, float, float, str]]:
        async with asyncio.timeout(100):
            while len(found := await asyncio.to_thread(rows)) < many:
                await asyncio.sleep(0.1)
        return found

    process, address = await started()
    try:
        async with Agent(address, "a") as a:
            await a.hello(llama=[0])
            (left,) = await until(1)
            process.send_signal(signal.SIGKILL)
            await process.wait()
        process, address = await started()
        async with Agent(address, "a") as a:
            await a.hello(llama=[0])
            closed, new = await until(2)
        assert closed == (left[0], left[1], closed[2], "lost") and left[1] <= closed[2] < new[1]
        assert new[3] == "open"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
