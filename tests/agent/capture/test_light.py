"""Light looks: trainers alone, each tried once, never stopped; no library is asked, and they come no faster than is said."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.pyspy import PySpy
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.connection.answer import CaptureAnswer
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.ranks import Rank
from hangdog_models.stack import TRAINER, ProcessTrace, Reason
from hangdog_proto.codec.traces import unpack
from hangdog_proto.generated import hangdog_pb2 as pb
from support.fakes import targets
from support.fakes.recorder_asked import by_pid
from support.fakes.targets import WAIT, Sampler, running

MARK = ("HANGDOG_TEST_LIGHT", str(os.getpid()))
#: Works in many threads, and has a child: what is hard to read at once is what a tool would like to stop.
AT_WORK = """
import os, subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", "import os; os.read(0, 1)"], stdin=subprocess.PIPE)
never = threading.Event()
def deep(frames):
    return deep(frames - 1) if frames else never.wait()
for _ in range(40):
    threading.Thread(target=deep, args=(30,), daemon=True).start()
os.write(1, b"ready\\n")
os.read(0, 1)
os._exit(0)
"""
#: Fails unless it may attach, as py-spy may in a process at work.
INSISTENT = 'case "$*" in *--nonblocking*) echo "Bad address" >&2; exit 1;; esac; exec "$real" "$@"'


def environ(rank: int) -> dict[str, str]:
    return dict([MARK], RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", HANGDOG_JOB="light")


def series(tools: Tools) -> CaptureSeries:
    watch = Watch(ProcessTable(targets.proc, frozenset({MARK[0]})), MARK, (), forget_s=600.0)
    return CaptureSeries("light", watch.see, tools)


@pytest.fixture
def insistent(tmp_path: Path, tools: Tools) -> Tools:
    real = cast("PySpy", tools.pyspy)
    program, calls = tmp_path / "py-spy", tmp_path / "calls"
    calls.mkdir()
    program.write_text(f"#!/bin/sh\nreal={real.executable}\n{targets.note(calls)}\n{INSISTENT}\n")
    program.chmod(0o755)
    return replace(tools, pyspy=PySpy((str(program),), fds=real.fds), settings=CaptureSettings(retries=2))


def test_only_trainers_are_looked_at(tools: Tools) -> None:
    with running(AT_WORK, environ=environ(0)) as first, running(WAIT, environ=environ(1)) as second:
        traces = series(tools).light_sample()
        assert [(one.rank, one.role, one.pid, one.missing) for one in traces] == [
            (0, TRAINER, first.pid, None), (1, TRAINER, second.pid, None),
        ]  # fmt: skip
        assert all(one.threads and one.state for one in traces)


def test_it_tells_what_the_device_was_seen_to_do(tools: Tools) -> None:
    device = DeviceReadings(5, 3, 1, 7, 0, 1)
    with running(AT_WORK, environ=environ(0)) as trainer:
        (plain,) = series(tools).light_sample()
        tools.devices[by_pid(trainer.pid).process.key] = device
        (light,), (full, *_) = series(tools).light_sample(), series(tools).look()
        assert [one.state.device for one in (plain, light, full) if one.state is not None] == [None, device, None]


def test_nobody_is_ever_stopped_and_nothing_is_tried_again(insistent: Tools, tmp_path: Path) -> None:
    with running(AT_WORK, environ=environ(0)) as target:
        with Sampler(target) as light:
            for _ in range(4):
                (trace,) = series(insistent).light_sample()
                assert trace.missing is not None and trace.missing.reason is Reason.TOOL_FAILED and trace.state
        calls = targets.recorded_calls(tmp_path / "calls")
        assert len(calls) == 4 and all("--nonblocking" in call for call in calls)
        assert light.times > 100 and not light.seen & set("tT"), "seen by one who"
        with Sampler(target) as other:
            for _ in range(3):
                (trace, *_) = series(insistent).look()
                assert trace.threads
        assert "t" in other.seen, "would have seen it"


def test_a_trainer_that_ended_is_missed(tools: Tools) -> None:
    looks = series(tools)
    with running(WAIT, environ=environ(0)) as target, running(WAIT, environ=environ(1)):
        assert [one.rank for one in looks.light_sample()] == [0, 1]
        targets.end(target)
        gone, there = looks.light_sample()
        assert gone.missing is not None and gone.missing.reason is Reason.EXITED and there.missing is None


class Played(CaptureSeries):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def look(self) -> tuple[ProcessTrace, ...]:
        raise AssertionError("an ordinary look")

    def light_sample(self) -> tuple[ProcessTrace, ...]:
        self.asked.append("light")
        return (ProcessTrace(Rank(0), pid=1),)

    def native(self, ranks: object) -> tuple[ProcessTrace, ...]:
        self.asked.append(list(cast("list[int]", ranks)))
        return (ProcessTrace(Rank(0), pid=1),)

    def hear(self) -> tuple[pb.Statement, ...]:
        raise AssertionError("libraries were asked")


@pytest.fixture
def lookers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize(
    ("order", "rounds", "asked"),
    [
        (pb.CaptureOrder(order="o", rounds=2, light=True), 2, ["light", "light"]),
        (pb.CaptureOrder(order="o", rounds=1, native=[7, 3]), 1, [[7, 3]]),
    ],
)
async def test_no_library_is_asked_what_it_counted(
    order: pb.CaptureOrder, rounds: int, asked: list[object], lookers: ThreadPoolExecutor
) -> None:
    played = Played()
    found = [message async for message in CaptureAnswer(played, order, lookers, 0).messages(rounds, 0.0)]
    assert played.asked == asked
    assert [(m.round, m.last, m.more) for m in found] == [(at, at == rounds - 1, False) for at in range(rounds)]
    assert all(unpack(message.capture) for message in found)


async def test_of_native_stacks_no_more_are_read_than_the_settings_say(tools: Tools) -> None:
    few = replace(tools, settings=CaptureSettings(native=1))
    with contextlib.ExitStack() as ranks:
        for rank in range(2):
            ranks.enter_context(running(WAIT, environ=environ(rank)))
        traces = await asyncio.to_thread(series(few).native, [1, 0, 9])
        assert len(traces) == 1 and traces[0].missing is None
        assert any(frame.native for frame in traces[0].threads[0].frames)
