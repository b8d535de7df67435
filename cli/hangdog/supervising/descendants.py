"""The processes that descend from this one, found and ended without ever reading what a hanging process could block upon."""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator

from hangdog_agent.procfs import Proc, Stat, parse_environ
from hangdog_models.stack import Reason

#: How often one looks whether they are gone. Seconds.
LOOK_S = 0.05

_PROC = Proc()


def descendants(root: int, without: Collection[int] = ()) -> tuple[int, ...]:
    """All processes below `root`, dead ones that nobody has reaped included; not those in or below `without`."""
    children: dict[int, list[int]] = {}
    for one in _all():
        children.setdefault(one.parent, []).append(one.pid)
    found: list[int] = []
    new = [root]
    while new:
        new = [child for pid in new for child in children.get(pid, ()) if child not in without]
        found += new
    return tuple(found)


def with_environ(name: str, value: str) -> tuple[int, ...]:
    """The processes of ours with this variable in their environment; those that sleep uninterruptibly are not asked."""
    candidates = (one.pid for one in _all() if one.state not in "DZX" and one.pid != os.getpid())
    environs = ((pid, _PROC.raw(pid, "environ")) for pid in candidates)
    return tuple(
        pid
        for pid, environ in environs
        if not isinstance(environ, Reason) and parse_environ(environ, frozenset({name})).get(name) == value
    )


def kill(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(but: Collection[int]) -> None:
    """Takes the dead orphans that came to us off the process table; `but` are waited for by those who started them."""
    for one in _all():
        if one.parent == os.getpid() and one.state == "Z" and one.pid not in but:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(one.pid, os.WNOHANG)


def pause() -> None:
    time.sleep(LOOK_S)


def _all() -> Iterator[Stat]:
    """Every process there is."""
    return (one for pid in _PROC.pids() if (one := _PROC.stat(pid)) is not None)
