"""One process in each condition it can be in: what a look says of it, and that the look leaves it as it was."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_agent.capture import pyspy
from hangdog_agent.capture.process_capture import CapturedProcess, Tools, look
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import Process
from hangdog_models.stack import Missing, Reason, Thread
from support.fakes import targets
from support.fakes.targets import SLEEP_IN_KERNEL, TRACE, WAIT, WORK, letter, row, running


def see(process: Process, tools: Tools) -> CapturedProcess:
    """A look that may take ten seconds, though none of these should."""
    began = time.monotonic()
    seen = look(process, tools, began + 10)
    assert time.monotonic() - began < 5
    return seen


def stuck(threads: tuple[Thread, ...]) -> bool:
    return any("stuck_here" in frame.function for thread in threads for frame in thread.frames)


def reason(seen: CapturedProcess) -> Reason | None:
    return seen.missing.reason if seen.missing else None


def test_a_running_process_is_captured_whole(tools: Tools) -> None:
    with running(WAIT, "--token", "hunter2") as target:
        seen = see(row(target), tools)
        assert seen.missing is None
        assert stuck(seen.threads)
        assert seen.state is not None
        assert (seen.state.pid, seen.state.state) == (target.pid, "S")
        assert "hunter2" not in seen.state.cmdline
        assert seen.state.wchan
        targets.until(lambda: letter(target.pid) == "S")


@pytest.mark.parametrize(("program", "goes_on"), [(WAIT, False), (WORK, True)])
def test_whether_its_thread_went_on_between_two_looks_is_counted(tools: Tools, program: str, goes_on: bool) -> None:
    with running(program) as target:
        states = []
        for _ in range(2):
            states.append(see(row(target), tools).state)
            time.sleep(0.3)
        first, second = states
        assert first is not None and second is not None and first.wakes and second.wakes
        assert first.ran_s is not None and second.ran_s is not None
        assert (second.ran_s - first.ran_s > 0.02) == goes_on
        assert goes_on or second.wakes - first.wakes <= 1


def test_a_stopped_process_is_read_and_left_stopped(tools: Tools) -> None:
    with running(WAIT) as target:
        targets.stop(target)
        seen = see(row(target), tools)
        assert reason(seen) is Reason.STOPPED
        assert stuck(seen.threads)
        assert seen.state is not None and seen.state.state == "T"
        assert letter(target.pid) == "T"


@pytest.mark.parametrize("where", ["main", "other"])
def test_a_thread_stuck_in_the_kernel_is_named_and_not_waited_for(tools: Tools, hold: Path, where: str) -> None:
    with _stuck_in_kernel(hold, where) as target:
        seen = see(row(target), tools)
        assert reason(seen) is Reason.UNINTERRUPTIBLE
        assert seen.missing is not None and seen.state is not None
        assert ("main thread" in seen.missing.message) == (where == "main")
        assert targets.proc.wchan(target.pid, None if where == "main" else _asleep(target.pid)) in seen.missing.message
        assert stuck(seen.threads)
        assert seen.state.state == ("D" if where == "main" else "S")
        assert set(_states(target.pid)) <= {"S", "D"}


def test_a_stuck_process_is_never_attached_to_even_when_nonblocking_fails(
    spy: pyspy.PySpy, hold: Path, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    fake = tmp_path / "py-spy"
    targets.recording_calls(fake, calls, "Bad address")
    tools = Tools(targets.proc, pyspy.PySpy((str(fake),)), CaptureSettings())
    with _stuck_in_kernel(hold, "other") as target:
        seen = see(row(target), tools)
    assert reason(seen) is Reason.UNINTERRUPTIBLE
    assert seen.missing is not None and "Bad address" in seen.missing.message
    tried = targets.recorded_calls(calls)
    assert len(tried) == 3
    assert all("--nonblocking" in call for call in tried)


def test_a_race_lost_three_times_is_settled_by_attaching_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    fake = tmp_path / "py-spy"
    targets.recording_calls(fake, calls, "Bad address")
    with running(WAIT) as target:
        seen = see(row(target), Tools(targets.proc, pyspy.PySpy((str(fake),)), CaptureSettings()))
    assert reason(seen) is Reason.TOOL_FAILED
    assert ["--nonblocking" in call for call in targets.recorded_calls(calls)] == [True, True, True, False]


@pytest.mark.parametrize(("how", "state"), [("seize", "S"), ("attach", "t")])
def test_a_traced_process_is_read_and_left_to_its_tracer(tools: Tools, how: str, state: str) -> None:
    with running(WAIT) as target, _tracing(target.pid, how) as tracer:
        seen = see(row(target), tools)
        assert reason(seen) is Reason.TRACED
        assert seen.missing is not None and str(tracer) in seen.missing.message
        assert stuck(seen.threads)
        status = targets.proc.status(target.pid)
        assert status is not None and status.tracer == tracer
        assert letter(target.pid) == state


def test_a_zombie_is_a_zombie(tools: Tools) -> None:
    with running(WAIT) as target:
        process = row(target)
        targets.end(target, reap=False)
        seen = see(process, tools)
        assert reason(seen) is Reason.ZOMBIE
        assert seen.state is not None and seen.state.state == "Z"


def test_a_process_that_ended_since_it_was_found_has_exited(tools: Tools) -> None:
    with running(WAIT) as target:
        process = row(target)
        targets.end(target)
        seen = see(process, tools)
        assert reason(seen) is Reason.EXITED
        assert seen.state is None


def test_a_pid_that_another_process_took_over_is_not_touched(tmp_path: Path) -> None:
    fake = tmp_path / "py-spy"
    fake.write_text(f"#!/bin/sh\ntouch {tmp_path}/touched\n")
    fake.chmod(0o755)
    with running(WAIT) as target:
        now = row(target)
        tools = Tools(targets.proc, pyspy.PySpy((str(fake),)), CaptureSettings())
        seen = see(replace(now, started=now.started - 1), tools)
    assert reason(seen) is Reason.EXITED
    assert seen.threads == ()
    assert seen.state is None
    assert not (tmp_path / "touched").exists()


def test_a_process_that_ends_while_it_is_read_is_told_so(tmp_path: Path) -> None:
    """The fake py-spy ends its target, and answers for it all the same."""
    fake = tmp_path / "py-spy"
    fake.write_text("""#!/bin/sh
        for last; do :; done
        kill -9 $last
        while state=$(cut -d' ' -f3 /proc/$last/stat) && [ "$state" != Z ]; do :; done
        echo '[{"pid": 1, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 1, "active": false, "owns_gil": false,
                "frames": [{"name": "f", "filename": "f.py", "short_filename": "f.py", "module": null, "line": 1}]}]'
        """)
    fake.chmod(0o755)
    with running(WAIT) as target:
        seen = see(row(target), Tools(targets.proc, pyspy.PySpy((str(fake),)), CaptureSettings()))
        assert reason(seen) in (Reason.ZOMBIE, Reason.EXITED)


def test_a_program_that_is_not_python_is_told_by_its_state(tools: Tools) -> None:
    with running("import os; os.write(1, b'ready\\n'); os.execv('/bin/sleep', ['sleep', '60'])") as target:
        targets.until(lambda: (stat := targets.proc.stat(target.pid)) is not None and stat.comm == "sleep")
        assert reason(see(row(target, python=False), tools)) is Reason.NOT_PYTHON
        seen = see(row(target, python=True), tools)  # taken for Python by its name: py-spy knows better
        assert reason(seen) is Reason.NOT_PYTHON
        assert seen.state is not None and seen.state.comm == "sleep"


def test_no_py_spy_still_gives_the_state(tools: Tools) -> None:
    missing = pyspy.load("no-such-distribution")
    assert isinstance(missing, Missing)
    with running(WAIT) as target:
        seen = see(row(target), replace(tools, pyspy=missing))
    assert reason(seen) is Reason.TOOL_MISSING
    assert seen.missing is not None and "pip install" in seen.missing.message
    assert seen.state is not None and seen.state.state == "S"


def test_no_permission_says_what_to_change(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to run py-spy as another user")
    targets.run_tools_as_nobody(monkeypatch)
    with running(WAIT) as target:
        seen = see(row(target), tools)
    assert reason(seen) is Reason.NOT_PERMITTED
    assert seen.missing is not None and "CAP_SYS_PTRACE" in seen.missing.message
    assert seen.state is not None


def test_a_process_in_another_pid_namespace_keeps_our_thread_ids(tools: Tools) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare, to make a pid namespace")
    with running(WAIT, command=("unshare", "--pid", "--fork", "--kill-child")) as outer:
        inner = next(
            pid for pid in targets.proc.pids() if (stat := targets.proc.stat(pid)) and stat.parent == outer.pid
        )
        seen = see(row(inner), tools)
        assert seen.missing is None
        assert [(thread.tid, thread.active) for thread in seen.threads] == [(inner, False)]
        assert stuck(seen.threads)


@contextlib.contextmanager
def _stuck_in_kernel(hold: Path, where: str) -> Iterator[subprocess.Popen[bytes]]:
    with running(SLEEP_IN_KERNEL, str(hold), where) as target:
        targets.until(lambda: "D" in _states(target.pid))  # the vfork child speaks a moment before its parent sleeps
        yield target


@contextlib.contextmanager
def _tracing(pid: int, how: str) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", TRACE, str(pid), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as tracer:
        assert tracer.stdout is not None
        if tracer.stdout.readline() != b"ready\n":
            pytest.skip("tracing a process is not permitted here: sudo sysctl kernel.yama.ptrace_scope=0")
        yield tracer.pid
        tracer.kill()


def _asleep(pid: int) -> int:
    return next(tid for tid in targets.proc.tids(pid) if (stat := targets.proc.stat(pid, tid)) and stat.state == "D")


def _states(pid: int) -> list[str]:
    return [stat.state for tid in targets.proc.tids(pid) if (stat := targets.proc.stat(pid, tid))]
