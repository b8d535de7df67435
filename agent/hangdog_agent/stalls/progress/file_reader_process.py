"""Reads the ends of one user's logs, and when its heartbeats were touched, as a process with that user's rights on files.

Started by file_reader.py for each user whose trainers are followed. Each line it is given holds wishes; it answers one line each,
in their order, so that the agent sees at which file it hangs. It ends with its input.
"""

import base64
import contextlib
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from hangdog_agent.confinement import syscalls
from hangdog_agent.confinement.credentials import Credentials, CredentialsRefused
from hangdog_agent.confinement.pinned_process import PinnedProcess
from hangdog_agent.stalls.progress.kept_files import KeptFiles, KeptRings, Start
from hangdog_agent.stalls.progress.ring_count import reading

#: Wishes at one trainer that are reached together: each holds a descriptor meanwhile, of which there are 256.
_TOGETHER = 16

#: Why a file tells nothing; ValueError: a path with a zero byte in it.
_UNREADABLE = (OSError, CredentialsRefused, ValueError)

Wish = dict[str, Any]


def main() -> None:
    order = json.loads(sys.argv[1])
    who = Credentials(order["uid"], order["gid"], tuple(order["groups"]))
    try:
        syscalls.become(who, None)
    except CredentialsRefused as error:
        sys.exit(str(error))
    kept, rings = KeptFiles(), KeptRings()
    for line in sys.stdin.buffer:
        kept.expire()
        rings.expire()
        for wishes in _by_trainer(json.loads(line)):
            for answer in _answers(order["proc"], who, wishes, kept, rings):
                sys.stdout.buffer.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
                sys.stdout.buffer.flush()


def _answers(
    proc: str, who: Credentials, wishes: list[Wish], kept: KeptFiles, rings: KeptRings
) -> Iterator[dict[str, Any] | None]:
    """The answers to the wishes at one trainer, one by one. It is not looked up for a ring that is open."""
    opened = [rings.opened(wish) if wish.get("ring") else None for wish in wishes]
    others = [wish for wish, ring in zip(wishes, opened, strict=True) if ring is None]
    reached = iter(_reached(proc, who, others) if others else ())
    for wish, ring in zip(wishes, opened, strict=True):
        start = kept.start(wish, next(reached)) if ring is None else None
        if not wish.get("ring"):
            yield _look(start, wish) if start is not None else None
            continue
        if start is not None and (ring := _open_ring(start)) is not None:
            rings.keep(wish, ring)
        yield _read_ring(ring, wish["everything"]) if ring is not None else None


def _by_trainer(wishes: list[Wish]) -> Iterator[list[Wish]]:
    """In their order, those at one trainer together: who it is has to be asked once for all of them."""
    for _, group in groupby(wishes, key=lambda wish: (wish["pid"], wish["started"])):
        mine = list(group)
        yield from (mine[at : at + _TOGETHER] for at in range(0, len(mine), _TOGETHER))


def _reached(proc: str, who: Credentials, wishes: list[Wish]) -> list[Start | None]:
    """Where the wishes at one trainer begin; None where it is not this user's, or has ended. Nothing here may hang."""
    with syscalls.privileged():
        try:
            trainer = PinnedProcess(proc, wishes[0]["pid"], wishes[0]["started"])
        except CredentialsRefused:
            return [None] * len(wishes)
        try:
            if trainer.credentials() != who:  # it is another user's by now
                return [None] * len(wishes)
            return [_start(trainer, wish) for wish in wishes]
        except CredentialsRefused:
            return [None] * len(wishes)
        finally:
            trainer.close()


def _start(trainer: PinnedProcess, wish: Wish) -> Start | None:
    try:
        if wish["descriptor"] is not None:
            return trainer.descriptor(wish["descriptor"]), None
        return trainer.root(), trainer.absolute(wish["path"])
    except OSError:
        return None


def _look(start: Start, wish: Wish) -> dict[str, Any] | None:
    """One file; None where there is none, its user may not read it, or it is anything but a regular file."""
    with contextlib.suppress(*_UNREADABLE), _handle(start) as handle:
        return read(handle, wish)
    return None


def _open_ring(start: Start) -> int | None:
    """The descriptor of a ring; None as above."""
    with contextlib.suppress(*_UNREADABLE), _handle(start) as handle:
        return syscalls.reopen(handle, os.O_RDONLY) if stat.S_ISREG(os.fstat(handle).st_mode) else None
    return None


@contextlib.contextmanager
def _handle(start: Start) -> Iterator[int]:
    """The O_PATH descriptor of a file; what it began at is closed, too. Raises OSError."""
    handle, path = start
    try:
        if path is not None:
            root, handle = handle, -1
            try:
                handle = syscalls.open_inside(root, path, os.O_PATH)
            finally:
                os.close(root)
        yield handle
    finally:
        if handle >= 0:
            os.close(handle)


def read(handle: int, wish: Wish) -> dict[str, Any] | None:
    """What a file is by its O_PATH descriptor, and what was appended: only a regular file is opened. Raises OSError."""
    seen = os.fstat(handle)
    if not stat.S_ISREG(seen.st_mode):  # opening a FIFO would make us its reader
        return None
    identity, most = [seen.st_dev, seen.st_ino], wish["most"]
    age_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - seen.st_mtime_ns
    same = identity == wish["known"]
    start = wish["offset"] if same and wish["offset"] <= seen.st_size else 0  # cut off by a rotation, it starts again
    if not most or seen.st_size == start:
        return {"identity": identity, "touched_ns": seen.st_mtime_ns, "age_ns": age_ns, "offset": start, "joins": same}
    opened = syscalls.reopen(handle, os.O_RDONLY)
    try:
        first = max(start, os.fstat(opened).st_size - most)
        data = os.pread(opened, most, first)
    finally:
        os.close(opened)
    return {
        "identity": identity,
        "touched_ns": seen.st_mtime_ns,
        "age_ns": age_ns,
        "offset": first + len(data),
        "data": base64.b64encode(data).decode("ascii"),
        "joins": same and first == start,
    }


def _read_ring(opened: int, everything: bool) -> dict[str, Any] | None:
    """What is counted of a ring, as other files are told; its data is empty where nothing is."""
    try:
        seen = os.fstat(opened)
        found = reading(opened, time.monotonic_ns(), everything)
    except OSError:
        return None
    data = base64.b64encode(json.dumps(found).encode()).decode("ascii") if found is not None else ""
    identity = [seen.st_dev, seen.st_ino]
    return {"identity": identity, "touched_ns": 0, "age_ns": 0, "offset": 0, "joins": False, "data": data}
