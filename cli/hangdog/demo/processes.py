"""The processes of one demo: all are started here, and none is left when it ends, in whatever way it ends.

Three nets, each for what the one before lets through: every child leads a session of its own and its group is ended;
orphans come back to us, so that a last sweep finds them; and the kernel kills the children if we are killed ourselves.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from hangdog.demo.prctl import adopt_orphans, die_with

#: Time to end in order for those that want to; ranks need none. Seconds.
GRACE_S = 3.0
#: Time for the kernel to carry out SIGKILL; a process that needs longer is stuck in a way no demo makes. Seconds.
DEATH_S = 10.0
#: Pause between two looks whether they are gone; a death takes some milliseconds. Seconds.
LOOK_S = 0.02
#: How PyTorch's C++ begins what it logs: `[rank1]:[W1126 01:07:10.601690504 WorkerServer.cpp:139] ...`.
LIBRARY_LINE = re.compile(r"(\[rank\d+\]:)?\[[IWE]\d{4} ")
#: Signals that ask us to end. SIGINT raises KeyboardInterrupt by itself.
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Processes:
    """A context that starts processes and, on the way out, ends them; it may be used in the main thread only."""

    def __init__(self, logs: Path, grace_s: float = GRACE_S) -> None:
        self._logs = logs
        self._grace_s = grace_s
        self._pid = os.getpid()
        self._started: list[subprocess.Popen[bytes]] = []
        self._handlers: dict[int, object] = {}

    def __enter__(self) -> Self:
        adopt_orphans()
        self._handlers = {number: signal.signal(number, _exit) for number in END_SIGNALS}
        return self

    def start(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Starts a process; its stdout is a pipe to us, its stderr goes to the file `log(name)`."""
        with self.log(name).open("wb") as errors:
            process = subprocess.Popen(
                command,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                preexec_fn=lambda: die_with(self._pid),  # noqa: PLW1509 - the conductor has one thread, this one
            )
        self._started.append(process)
        return process

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def last_line(self, name: str) -> str:
        """The last line a process wrote to stderr, as `final_line` picks it."""
        return final_line(self.log(name))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A second Ctrl-C must not leave half of them behind; the two deadlines below bound how long it is not heard.
        muted = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *END_SIGNALS)}
        try:
            self._end(signal.SIGTERM, self._grace_s)
            self._end(signal.SIGKILL, DEATH_S)
            reap_leftovers(DEATH_S)
        finally:
            for process in self._started:
                if process.stdout is not None:
                    process.stdout.close()
            for number, handler in (muted | self._handlers).items():
                signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself returned

    def _end(self, number: signal.Signals, patience_s: float) -> None:
        """Signals the groups that still live and waits until they are gone, at most `patience_s` seconds."""
        until = time.monotonic() + patience_s
        alive = [process for process in self._started if _group_alive(process)]
        for process in alive:
            for each in (number, signal.SIGCONT):  # a stopped process acts upon SIGTERM only when it goes on
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, each)
        while time.monotonic() < until and any(_group_alive(process) for process in alive):
            time.sleep(LOOK_S)


def final_line(log: Path) -> str:
    """The last line of a file, rather one of a program than one that a library logged; says so where there is none."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    own = [line for line in lines if not LIBRARY_LINE.match(line)]
    return (own or lines or ["it said nothing"])[-1]


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _group_alive(process: subprocess.Popen[bytes]) -> bool:
    """Whether anybody of the process's group is left; reaps those that are dead and ours."""
    process.poll()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-process.pid, os.WNOHANG)[0]:
            pass
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def reap_leftovers(patience_s: float) -> None:
    """Kills and reaps whatever children we have left: descendants that had moved to groups of their own."""
    until = time.monotonic() + patience_s
    while (children := _children()) and time.monotonic() < until:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(LOOK_S)


def _children() -> list[int]:
    """Our own children, dead ones that nobody has reaped included."""
    lists = Path("/proc/self/task").glob("*/children")
    return [int(pid) for tasks in lists for pid in tasks.read_text().split()]
