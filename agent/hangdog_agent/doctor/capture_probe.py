"""Starts small Python processes of our own, for `hangdog doctor` to try the capture on."""

import contextlib
import selectors
import subprocess
import sys
from collections.abc import Iterator

from hangdog_agent.discovery.discover import Process
from hangdog_agent.procfs import Proc

#: Says its pid, then waits until we close its input, which also happens when we die.
_WAIT = r"import os; os.write(1, b'%d\n' % os.getpid()); os.read(0, 1)"
#: The same, but forked twice and in a session of its own: its parent is not us, as a trainer's is not the agent.
_STRAY = f"import os; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); {_WAIT}"
#: A bare interpreter starts in 20 ms; on a machine under load it has taken seconds.
_START_S = 10.0


@contextlib.contextmanager
def descendant(proc: Proc) -> Iterator[Process | None]:
    """A Python process that is our child; None when it does not start."""
    with _started(_WAIT, proc) as process:
        yield process


@contextlib.contextmanager
def stranger(proc: Proc) -> Iterator[Process | None]:
    """A Python process that is no descendant of ours; None when it does not start."""
    with _started(_STRAY, proc) as process:
        yield process


@contextlib.contextmanager
def _started(program: str, proc: Proc) -> Iterator[Process | None]:
    command = (sys.executable, "-I", "-S", "-c", program)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdin is not None and first.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(first.stdout, selectors.EVENT_READ)
            stated = first.stdout.readline().strip() if selector.select(_START_S) else b""
        stat = proc.stat(int(stated)) if stated.isdigit() else None
        try:
            yield Process(stat.pid, stat.parent, stat.started, stat.state, stat.comm, True, command) if stat else None
        finally:
            first.stdin.close()
            if not stated:
                first.kill()
