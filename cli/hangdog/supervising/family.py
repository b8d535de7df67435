"""The processes that descend from this one, found and ended without ever reading what a hanging process could block upon."""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path

#: How often one looks whether they are gone. Seconds.
LOOK_S = 0.05
#: Bytes of an environment that are searched: as much as the kernel takes with 128 KiB arguments, and more.
ENVIRON = 1 << 20


def descendants(root: int, without: Collection[int] = ()) -> tuple[int, ...]:
    """All processes below `root`, dead ones that nobody has reaped included; not those in or below `without`."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in _table().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    new = [root]
    while new:
        new = [child for pid in new for child in children.get(pid, ()) if child not in without]
        found += new
    return tuple(found)


def marked(mark: str) -> tuple[int, ...]:
    """The processes of ours whose environment has this `NAME=VALUE`; those that sleep uninterruptibly are not asked."""
    needle = mark.encode() + b"\0"
    found = []
    for pid, (_, state) in _table().items():
        if state in "DZX" or pid == os.getpid():
            continue
        with contextlib.suppress(OSError), Path(f"/proc/{pid}/environ").open("rb") as file:
            if needle in file.read(ENVIRON):
                found.append(pid)
    return tuple(found)


def kill(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(but: Collection[int]) -> None:
    """Takes the dead orphans that came to us off the process table; `but` are waited for by those who started them."""
    for pid, (parent, state) in _table().items():
        if parent == os.getpid() and state == "Z" and pid not in but:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def pause() -> None:
    time.sleep(LOOK_S)


def _table() -> dict[int, tuple[int, str]]:
    """Parent and state of every process, by pid."""
    found: dict[int, tuple[int, str]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
                found[int(name)] = int(words[1]), words[0]
    return found
