"""A native stack is read of a trainer that stands still and may be held, and of no other; whatever happens, it is let go."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from hangdog_agent.capture import native_stacks
from hangdog_agent.capture.process_capture import CapturedProcess, Tools
from hangdog_agent.capture.pyspy import PySpy
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_models.stack import Missing, Reason, Thread
from support.fakes import targets
from support.fakes.targets import EXCHANGE, EXCHANGING, SLEEP_IN_KERNEL, TRACE, WAIT, letter, running

#: Steps that get on: in one they are at one line in every look, and in the other now here, now there.
STEPS = """
import os, sys, time
def wait(): time.sleep(0.02)
def first():
    for _ in range(100000): pass
def second():
    for _ in range(100000): pass
os.write(1, b"ready\\n")
while True:
    if sys.argv[1] == "waits":
        wait()
    else:
        first(); second()
"""
#: Stands in one place, and in another once it was sent a byte.
TWO_STEPS = """
import os
def first():
    os.write(1, b"ready\\n")
    os.read(0, 1)
def second():
    os.write(1, b"on\\n")
    os.read(0, 1)
first()
second()
"""


@pytest.fixture(scope="session")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = targets.compiled(tmp_path_factory.mktemp("exchange"), "exchange", EXCHANGE)
    if library is None:
        pytest.skip("no C compiler: apt-get install gcc")
    return library


class Noted:
    """Tools whose py-spy notes what it was told before it does it; `meanwhile` happens at its calls."""

    def __init__(self, folder: Path, tools: Tools, script: str = 'exec "$real" "$@"') -> None:
        real = tools.pyspy
        assert isinstance(real, PySpy)
        self._calls = folder / "calls"
        self._calls.mkdir()
        program = folder / "py-spy"
        program.write_text(f"#!/bin/sh\nreal={real.executable}\n{targets.note(self._calls)}\n{script}\n")
        program.chmod(0o755)
        self.tools = replace(tools, pyspy=PySpy((str(program),), fds=real.fds))

    def calls(self) -> list[str]:
        """Of each call: whether it was nonblocking, blocking or native."""
        how = {"--nonblocking": "nonblocking", "--native": "native"}
        return [how.get(line.split()[2], "blocking") for line in targets.recorded_calls(self._calls)]


@pytest.fixture
def noted(tmp_path: Path, tools: Tools) -> Noted:
    return Noted(tmp_path, tools)


def main(seen: CapturedProcess) -> Thread:
    return next(thread for thread in seen.threads if seen.state and thread.tid == seen.state.pid)


def is_free(process: subprocess.Popen[bytes]) -> bool:
    targets.until(lambda: letter(process.pid) == "S")  # whoever was just let go runs for a moment
    status = targets.proc.status(process.pid)
    return status is not None and status.tracer == 0


@pytest.mark.parametrize(("locked", "call"), [("1", "pthread_mutex_lock"), ("0", "poll")])
def test_what_python_cannot_tell_apart_c_can(exchange: Path, noted: Noted, locked: str, call: str) -> None:
    with running(EXCHANGING, str(exchange), locked) as target:
        seen = native_stacks.look(targets.row(target), noted.tools)
        assert seen.missing is None and seen.state is not None and seen.state.pid == target.pid
        frames = main(seen).frames
        python = [frame.function for frame in frames if not frame.native]
        assert python == ["<module>", "step"], "in both alike"
        assert call in [frame.function for frame in frames if frame.native]
        assert noted.calls() == ["nonblocking", "nonblocking", "native"], (
            "it was seen to stand still before it was held"
        )
        assert is_free(target)


def hangs_in_kernel(where: str) -> Callable[[Path], contextlib.AbstractContextManager[subprocess.Popen[bytes]]]:
    return lambda hold: running(SLEEP_IN_KERNEL, str(hold), where)


@contextlib.contextmanager
def stopped(_: Path) -> Iterator[subprocess.Popen[bytes]]:
    with running(WAIT) as target:
        targets.stop(target)
        yield target


@contextlib.contextmanager
def traced(_: Path) -> Iterator[subprocess.Popen[bytes]]:
    with running(WAIT) as target, running(TRACE, str(target.pid), "seize"):
        yield target


@contextlib.contextmanager
def dead(_: Path) -> Iterator[subprocess.Popen[bytes]]:
    with running(WAIT) as target:
        targets.end(target, reap=False)
        yield target


@pytest.mark.parametrize(
    ("sick", "reason"),
    [
        (hangs_in_kernel("main"), Reason.UNINTERRUPTIBLE),
        (hangs_in_kernel("other"), Reason.UNINTERRUPTIBLE),
        (stopped, Reason.STOPPED),
        (traced, Reason.TRACED),
        (dead, Reason.ZOMBIE),
    ],
)
def test_nobody_is_held_whom_it_could_harm(
    sick: Callable[[Path], contextlib.AbstractContextManager[subprocess.Popen[bytes]]],
    reason: Reason, hold: Path, noted: Noted,
) -> None:  # fmt: skip
    with sick(hold) as target:
        seen = native_stacks.look(targets.row(target), noted.tools)
        assert seen.missing is not None and seen.missing.reason is reason
        assert not noted.calls(), "not even read"


def test_nobody_is_held_who_is_traced_by_the_time_it_would_be(tmp_path: Path, tools: Tools) -> None:
    """The tracer comes between the look that shows a standstill and the hold."""
    with running(WAIT) as target:
        tracer = contextlib.ExitStack()
        noted = Noted(tmp_path, tools)

        class Meanwhile(PySpy):
            def dump(self, *arguments: object, **named: object) -> tuple[Thread, ...] | Missing:
                found = super().dump(*arguments, **named)  # type: ignore[arg-type]
                if len(noted.calls()) == 2:
                    tracer.enter_context(running(TRACE, str(target.pid), "seize"))
                return found

        spy = cast("PySpy", noted.tools.pyspy)
        with tracer:
            seen = native_stacks.look(
                targets.row(target), replace(noted.tools, pyspy=Meanwhile(spy.command, fds=spy.fds))
            )
        assert seen.missing is not None and seen.missing.reason is Reason.TRACED
        assert noted.calls() == ["nonblocking", "nonblocking"] and main(seen).frames


@pytest.mark.parametrize("how", ["waits", "works"])
def test_nobody_is_held_who_gets_on(noted: Noted, how: str) -> None:
    with running(STEPS, how, settles=False) as target:
        patient = replace(noted.tools.settings, native_again_s=0.0, nonblocking_s=20.0, blocking_s=20.0, look_s=60.0)
        tools = replace(noted.tools, settings=patient)  # py-spy was killed after 2 s where four tests share two cores
        for _ in range(10):  # one that works may be met twice at one line of its loop
            seen = native_stacks.look(targets.row(target), tools)
            if seen.missing is not None:
                break
        assert seen.missing is not None and seen.missing.reason is Reason.NOT_SAFE and "gets on" in seen.missing.message
        assert how == "works" or set(noted.calls()) == {"nonblocking"}


def test_nobody_is_held_twice_in_a_short_time(noted: Noted) -> None:
    with running(WAIT) as target, running(WAIT) as other:
        first = native_stacks.look(targets.row(target), noted.tools)
        again = native_stacks.look(targets.row(target), replace(noted.tools, stop=threading.Event()))
        assert first.missing is None and again.missing is not None and "was held" in again.missing.message
        assert again.threads == first.threads, "it stands at the same lines: what was read then is still told"
        assert native_stacks.look(targets.row(other), noted.tools).missing is None, "another process is another matter"
        at_once = replace(noted.tools, settings=CaptureSettings(native_again_s=0.0))
        assert native_stacks.look(targets.row(target), at_once).missing is None
        assert noted.calls().count("native") == 3


def test_what_was_read_a_while_ago_is_not_told_of_another_line(noted: Noted) -> None:
    with running(TWO_STEPS) as target:
        assert native_stacks.look(targets.row(target), noted.tools).missing is None
        assert target.stdin is not None
        target.stdin.write(b"x")
        target.stdin.flush()
        assert target.stdout is not None and target.stdout.readline() == b"on\n"
        again = native_stacks.look(targets.row(target), noted.tools)
        assert again.missing is not None and "was held" in again.missing.message
        assert main(again).frames[-1].function == "second" and noted.calls().count("native") == 1


def test_it_can_be_turned_off(noted: Noted) -> None:
    with running(WAIT) as target:
        seen = native_stacks.look(targets.row(target), replace(noted.tools, settings=CaptureSettings(native=0)))
        assert seen.missing is not None and "native=0" in seen.missing.message and not noted.calls()


def test_a_tool_that_hangs_while_it_holds_a_trainer_is_killed_and_lets_go(tmp_path: Path, tools: Tools) -> None:
    """It attaches as py-spy does, and then hangs: the longest anybody is ever held."""
    trace = tmp_path / "trace.py"
    trace.write_text("import os\n" + TRACE.replace("os.read(0, 1)", "import time; time.sleep(60)"))
    interpreter = targets.proc.arguments(os.getpid())[0]
    script = f'case "$3" in --native) exec {interpreter} -I {trace} "$5" attach;; esac; exec "$real" "$@"'
    noted = Noted(tmp_path, replace(tools, settings=CaptureSettings(native_s=1.0)), script)
    with running(WAIT) as target:
        begin = time.monotonic()
        seen = native_stacks.look(targets.row(target), noted.tools)
        assert time.monotonic() - begin < 6.0
        assert seen.missing is not None and seen.missing.reason is Reason.TIMED_OUT
        assert main(seen).frames, "what was read without holding it is not lost"
        assert noted.calls()[-1] == "native"
        targets.until(lambda: is_free(target))
