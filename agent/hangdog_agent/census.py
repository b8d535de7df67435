"""Takes the process table: one pass over /proc that never waits for a process stuck in the kernel.

Reading a command line or an environment needs the target's memory map. A thread that hangs in the kernel may hold its
lock, and then the reader hangs too, unkillably slow for a thread of ours. So what does not change is read once for each
process, and processes with a thread in uninterruptible sleep are read by a child that can be killed.
"""

import os
import threading
import time
from dataclasses import dataclass

from hangdog_agent import discover
from hangdog_agent.killable import run
from hangdog_agent.procfs import Proc, Stat, parse_arguments, parse_environ
from hangdog_models.stack import Reason

#: Reading a file of /proc takes microseconds; a child that needs this long hangs.
_RISKY_READ_S = 0.5
#: All risky reads of one pass; whoever is not reached is read by a later pass.
_RISKY_PASS_S = 2.0
#: A process that could not be read is left alone for so long.
_RETRY_S = 30.0
#: As much of an environment or a command line as procfs.py reads itself.
_MOST_BYTES = 1 << 20
#: Arguments kept of a command line: what tells a program stands at its front.
_MOST_ARGUMENTS = 64


@dataclass(frozen=True, slots=True)
class _Told:
    """What a process tells of itself; it changes only with an exec, which changes `image` or `comm`."""

    comm: str
    image: int
    python: bool
    arguments: tuple[str, ...]
    environ: dict[str, str]
    permitted: bool


class Census:
    """The process table of this machine, taken again and again; `names` are environment variables to keep beside the allowed."""

    def __init__(self, proc: Proc, names: frozenset[str] = frozenset(), stop: threading.Event | None = None) -> None:
        self.proc = proc
        self._names = discover.ALLOWED | names
        self._stop = stop
        self._told: dict[tuple[int, int], _Told] = {}
        self._avoided: dict[tuple[int, int], float] = {}
        self._lock = threading.Lock()

    def take(self) -> tuple[discover.Process, ...]:
        """All processes now. A zombie keeps what it told while it lived."""
        with self._lock:
            now = time.monotonic()
            risky_until = now + _RISKY_PASS_S
            rows: list[discover.Process] = []
            told_now: dict[tuple[int, int], _Told] = {}
            for pid in self.proc.pids():
                stat = self.proc.stat(pid)
                if stat is None:
                    continue
                key = (pid, stat.started)
                told = self._told.get(key)
                if told is None or (told.comm, told.image) != (stat.comm, stat.image):
                    told = self._ask(stat, now, risky_until) or told
                if told is not None:
                    told_now[key] = told
                rows.append(_row(stat, told))
            self._told = told_now
            self._avoided = {key: until for key, until in self._avoided.items() if until > now}
            return tuple(rows)

    def unreadable(self) -> int:
        """How many Python processes of the last pass kept their environment from us: a trainer may be among them."""
        with self._lock:
            return sum(told.python and not told.permitted for told in self._told.values())

    def _ask(self, stat: Stat, now: float, risky_until: float) -> _Told | None:
        """Reads what a process tells of itself; None when it is ending, or hangs, or is left for later."""
        key = (stat.pid, stat.started)
        if stat.state in "ZX" or self._avoided.get(key, now) > now:
            return None
        risky = any(
            (thread := self.proc.stat(stat.pid, tid)) and thread.state == "D" for tid in self.proc.tids(stat.pid)
        )
        if risky and time.monotonic() >= risky_until:
            return None
        environ, cmdline = (
            self._risky(stat.pid, name) if risky else self.proc.raw(stat.pid, name) for name in ("environ", "cmdline")
        )
        if environ is Reason.TIMED_OUT or cmdline is Reason.TIMED_OUT:
            self._avoided[key] = now + _RETRY_S
            return None
        if environ is Reason.EXITED and key in self._told:  # on its way out, its memory already gone
            return None
        arguments = parse_arguments(cmdline)[:_MOST_ARGUMENTS]
        return _Told(
            comm=stat.comm,
            image=stat.image,
            python=discover.is_python(self.proc.executable(stat.pid), arguments),
            arguments=arguments,
            environ={} if isinstance(environ, Reason) else parse_environ(environ, self._names),
            permitted=environ is not Reason.NOT_PERMITTED,
        )

    def _risky(self, pid: int, name: str) -> bytes | Reason:
        path = os.fspath(self.proc.root / str(pid) / name)
        outcome = run(("cat", path), _RISKY_READ_S, _MOST_BYTES, stop=self._stop)
        if outcome.status == 0:
            return outcome.stdout
        if outcome.status is None:
            return Reason.TIMED_OUT
        return Reason.NOT_PERMITTED if "Permission denied" in outcome.stderr else Reason.EXITED


def _row(stat: Stat, told: _Told | None) -> discover.Process:
    return discover.Process(
        pid=stat.pid,
        parent=stat.parent,
        started=stat.started,
        state=stat.state,
        comm=stat.comm,
        python=told.python if told else False,
        arguments=told.arguments if told else (),
        environ=told.environ if told else None,
        cpu_ticks=stat.cpu_ticks,
    )
