"""Looks at whole jobs: ranks that restart or end at the worst moment, children that come and go, tools that hang."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.pyspy import PySpy
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_models.stack import ProcessTrace, Reason
from support.fakes import targets
from support.fakes.targets import WAIT, running

MARK = ("HANGDOG_TEST_SERIES", str(os.getpid()))
#: Starts a child for each line it reads, and ends the first one it started when the line is empty.
BREED = """
import os, subprocess, sys
children = []
code = "import os; os.write(1, b'ready\\\\n'); os.read(0, 1)"
os.write(1, b"ready\\n")
for line in sys.stdin:
    if line.strip():
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
        children.append(child)
    else:
        children.pop(0).communicate()
    os.write(1, b"ready\\n")
"""


def environ(rank: int) -> dict[str, str]:
    return dict([MARK], RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="8", HANGDOG_JOB="series")


@pytest.fixture
def watch() -> Watch:
    return Watch(ProcessTable(targets.proc, frozenset({MARK[0]})), MARK, (), forget_s=600.0)


def told(traces: Sequence[ProcessTrace]) -> list[tuple[int, str, int | None, Reason | None]]:
    return [(trace.rank, trace.role, trace.pid, trace.missing.reason if trace.missing else None) for trace in traces]


def order(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"ready\n"


@contextlib.contextmanager
def meanwhile(watch: Watch, act: Callable[[], None]) -> Iterator[Callable[[], Sequence[RankProcesses]]]:
    """A discovery after whose first answer something happens, before anybody could be captured."""
    acts = [act]

    def discover() -> Sequence[RankProcesses]:
        members = watch.see()
        if acts:
            acts.pop()()
        return members

    yield discover


def test_all_ranks_of_a_job_and_no_other(watch: Watch, tools: Tools) -> None:
    with (
        running(WAIT, environ=environ(1)) as first,
        running(WAIT, environ=environ(0)) as second,
        running(WAIT, environ=environ(2) | {"HANGDOG_JOB": "other"}),
    ):
        traces = CaptureSeries("series", watch.see, tools).look()
    assert told(traces) == [(0, "trainer", second.pid, None), (1, "trainer", first.pid, None)]
    assert all(trace.threads and trace.state for trace in traces)


def test_a_job_that_is_not_here(watch: Watch, tools: Tools) -> None:
    assert CaptureSeries("elsewhere", watch.see, tools).look() == ()


def test_a_rank_that_ends_between_discovery_and_capture_has_exited(watch: Watch, tools: Tools) -> None:
    with running(WAIT, environ=environ(0)) as target, meanwhile(watch, lambda: targets.end(target)) as discover:
        traces = CaptureSeries("series", discover, tools).look()
    assert told(traces) == [(0, "trainer", target.pid, Reason.EXITED)]


def test_a_rank_started_anew_between_discovery_and_capture_is_read_under_its_new_pid(
    watch: Watch, tools: Tools
) -> None:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(running(WAIT, environ=environ(0)))
        anew: list[subprocess.Popen[bytes]] = []

        def restart() -> None:
            targets.end(first)
            anew.append(stack.enter_context(running(WAIT, environ=environ(0))))

        discover = stack.enter_context(meanwhile(watch, restart))
        (trace,) = CaptureSeries("series", discover, tools).look()
    assert told([trace]) == [(0, "trainer", anew[0].pid, Reason.RESTARTED)]
    assert trace.missing is not None
    assert str(first.pid) in trace.missing.message and str(anew[0].pid) in trace.missing.message
    assert trace.threads


def test_a_rank_started_anew_since_the_order_or_the_last_look(watch: Watch, tools: Tools) -> None:
    with running(WAIT, environ=environ(0)) as first:
        known = watch.see()
        targets.end(first)
    with running(WAIT, environ=environ(0)) as second:
        series = CaptureSeries("series", watch.see, tools, known)
        assert told(series.look()) == [(0, "trainer", second.pid, Reason.RESTARTED)]
        assert told(series.look()) == [(0, "trainer", second.pid, None)]
        targets.end(second)
    with running(WAIT, environ=environ(0)) as third:
        assert told(series.look()) == [(0, "trainer", third.pid, Reason.RESTARTED)]


def test_a_rank_that_ended_while_its_job_goes_on_is_reported(watch: Watch, tools: Tools) -> None:
    with running(WAIT, environ=environ(0)) as first, running(WAIT, environ=environ(1)) as second:
        watch.see()
        targets.end(first)
        watch.see()
        series = CaptureSeries("series", watch.see, tools, watch.known())
        for _ in range(2):
            expected = [(0, "trainer", first.pid, Reason.EXITED), (1, "trainer", second.pid, None)]
            assert told(series.look()) == expected


def test_a_rank_that_is_a_zombie_is_reported_as_one(watch: Watch, tools: Tools) -> None:
    with running(WAIT, environ=environ(0)) as target:
        watch.see()
        targets.end(target, reap=False)
        (trace,) = CaptureSeries("series", watch.see, tools, watch.known()).look()
    assert told([trace]) == [(0, "trainer", target.pid, Reason.ZOMBIE)]


def test_children_keep_their_roles_and_are_missed_when_they_end(watch: Watch, tools: Tools) -> None:
    with running(BREED, environ=environ(0)) as target:
        series = CaptureSeries("series", watch.see, tools)
        order(target, b"child")
        order(target, b"child")
        first = {trace.role: trace.pid for trace in series.look()}
        assert first.keys() == {"trainer", "child-0", "child-1"}
        order(target, b"")
        order(target, b"child")
        traces = series.look()
        second = {trace.role: trace for trace in traces}
        assert len(second) == len(traces) == 4, "no role stands for two"
        assert second["child-0"].missing is not None
        assert second["child-0"].missing.reason is Reason.EXITED
        assert second["child-1"].pid == first["child-1"]
        assert second["child-2"].pid not in first.values()
        assert "child-0" not in {trace.role for trace in series.look()}, "it was missed once"


def test_only_so_many_children_of_a_rank(watch: Watch, tools: Tools) -> None:
    with running(BREED, environ=environ(0)) as target:
        for _ in range(3):
            order(target, b"child")
        series = CaptureSeries("series", watch.see, replace(tools, settings=CaptureSettings(children=2)))
        assert [trace.role for trace in series.look()] == ["trainer", "child-0", "child-1"]


@pytest.mark.parametrize("workers", [None, 2])
def test_a_whole_look_ends_in_time_though_every_tool_hangs(watch: Watch, tmp_path: Path, workers: int | None) -> None:
    fake = tmp_path / "py-spy"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    settings = CaptureSettings(nonblocking_s=0.6, look_s=1.0, workers=workers)
    with contextlib.ExitStack() as stack:
        for rank in range(8):
            stack.enter_context(running(WAIT, environ=environ(rank)))
        began = time.monotonic()
        traces = CaptureSeries("series", watch.see, Tools(targets.proc, PySpy((str(fake),)), settings)).look()
        assert time.monotonic() - began < 4.5  # one after another they would take 4.8 s, and 60 s without an end
    assert [trace.rank for trace in traces] == list(range(8))
    assert {trace.missing.reason for trace in traces if trace.missing} == {Reason.TIMED_OUT}
    assert all(trace.state and trace.state.state == "S" for trace in traces)


def test_ranks_are_read_at_the_same_time(watch: Watch, tmp_path: Path) -> None:
    """Four fakes that wait for one another: one after the other, none would end well."""
    fake = tmp_path / "py-spy"
    fake.write_text(
        f"#!/bin/sh\ntouch {tmp_path}/here.$$\nwhile [ $(ls {tmp_path} | grep -c here) -lt 4 ]; do sleep 0.01; done\n"
        "echo together >&2; exit 1\n"
    )
    fake.chmod(0o755)
    settings = CaptureSettings(nonblocking_s=5.0, retries=0, workers=4)
    with contextlib.ExitStack() as stack:
        for rank in range(4):
            stack.enter_context(running(WAIT, environ=environ(rank)))
        traces = CaptureSeries("series", watch.see, Tools(targets.proc, PySpy((str(fake),)), settings)).look()
    assert ["together" in trace.missing.message for trace in traces if trace.missing] == [True] * 4


def test_a_bug_in_reading_one_process_costs_no_other(watch: Watch, tools: Tools) -> None:
    class Broken:
        def dump(self, pid: int, *rest: object, **more: object) -> object:
            if pid == target.pid:
                raise ValueError("a bug")
            return spy.dump(pid, 5.0, CaptureSettings())

    assert isinstance(tools.pyspy, PySpy)
    spy = tools.pyspy
    with running(WAIT, environ=environ(0)) as target, running(WAIT, environ=environ(1)) as other:
        traces = CaptureSeries("series", watch.see, replace(tools, pyspy=cast("PySpy", Broken()))).look()
    assert told(traces) == [(0, "trainer", target.pid, Reason.TOOL_FAILED), (1, "trainer", other.pid, None)]
    assert traces[0].missing is not None and "a bug" in traces[0].missing.message
