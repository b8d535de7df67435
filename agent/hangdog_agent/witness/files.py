"""Looks at files that others write, logs and heartbeats: what was appended, when they were touched; a few bytes at a time.

A file may lie on a server that is dead, and then whoever touches it hangs. So each round runs in a thread of its own; a
file at which one hangs is set aside together with its file system, and only a few threads are ever lost like that.
"""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hangdog_agent.witness.errand import Errand

#: A round takes a millisecond, unless a file hangs; whoever waits for it waits no longer. Seconds.
_GRACE_S = 0.05
#: A file that has not answered for so long hangs. Seconds.
_HANGS_S = 3.0
#: Threads that may hang at the same time: file systems that are dead together; with so many nobody looks at files any more.
_MOST_HANGING = 4
#: Files of one round: those of 64 trainers.
_MOST = 256

K = TypeVar("K")
#: Device and number of a file: names of the same file are equal in this.
Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wish:
    """A file to be looked at: its content from `offset` on if it still is the file `known`, of any other only its end.

    At most `most` bytes are read, and the last ones where more were appended; 0 reads nothing.
    """

    path: str
    most: int = 0
    known: Identity | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file as it is now; `data` ends at `offset`, and `joins` what was read of it before."""

    identity: Identity
    touched_ns: int
    offset: int
    data: bytes = b""
    joins: bool = False


class Files(Generic[K]):
    """Rounds over files, each of which has a key. Only one thread may use it."""

    def __init__(self) -> None:
        self._round: tuple[Errand[None], tuple[K, ...], list[Found | None]] | None = None
        self._hanging: dict[K, Errand[None]] = {}
        self._devices: dict[K, int] = {}

    def look(self, wishes: Mapping[K, Wish]) -> tuple[float, dict[K, Found | None]] | None:
        """Starts a round and answers the last one that has ended: when, and what it found; None of what is no file.

        None while a round is going on, or there is nothing to look at. What hangs is absent from an answer.
        """
        self._hanging = {key: errand for key, errand in self._hanging.items() if not errand.done()}
        if self._round is None:
            self._begin(wishes)
        return self._end() if self._round is not None else None

    def _begin(self, wishes: Mapping[K, Wish]) -> None:
        if len(set(map(id, self._hanging.values()))) >= _MOST_HANGING:
            return
        dead = {self._devices[key] for key in self._hanging if key in self._devices}
        asked = [
            (key, wish)
            for key, wish in wishes.items()
            if key not in self._hanging and self._devices.get(key) not in dead
        ][:_MOST]
        if not asked:
            return
        found: list[Found | None] = []
        work = _round([wish for _, wish in asked], found)
        self._round = Errand("files", work), tuple(key for key, _ in asked), found

    def _end(self) -> tuple[float, dict[K, Found | None]] | None:
        assert self._round is not None
        errand, keys, found = self._round
        # The round before may have ended long ago: then it is taken as it is, and the next call starts another.
        ended = errand.done(_GRACE_S)
        if not ended:
            at = len(found)
            if errand.hangs(_HANGS_S) and at < len(keys):
                self._hanging[keys[at]] = errand
                self._round = None
            return None
        self._round = None
        answer = dict(zip(keys, found, strict=False))
        if len(self._devices) > _MOST:
            self._devices.clear()  # of processes long gone
        self._devices |= {key: one.identity[0] for key, one in answer.items() if one is not None}
        return errand.ended, answer


def _round(wishes: Sequence[Wish], found: list[Found | None]) -> Callable[[], None]:
    def work() -> None:
        for wish in wishes:
            found.append(look(wish))

    return work


def look(wish: Wish) -> Found | None:
    """One file; None where there is none, it may not be read, or it is anything but a regular file."""
    try:
        seen = os.stat(wish.path)  # noqa: PTH116 - a path of this file's costs more than the look itself
        if not stat.S_ISREG(seen.st_mode):  # opening a FIFO would make us its reader
            return None
        identity = seen.st_dev, seen.st_ino
        same = identity == wish.known
        start = wish.offset if same and wish.offset <= seen.st_size else 0  # cut off by a rotation, it begins anew
        if not wish.most or seen.st_size == start:
            return Found(identity, seen.st_mtime_ns, start, joins=same)
        fd = os.open(wish.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            opened = os.fstat(fd)
            if not stat.S_ISREG(opened.st_mode) or (opened.st_dev, opened.st_ino) != identity:
                return None  # another one took its place in between
            first = max(start, opened.st_size - wish.most)
            data = os.pread(fd, wish.most, first)
        finally:
            os.close(fd)
    except (OSError, ValueError):  # ValueError: a path with a zero byte in it
        return None
    return Found(identity, seen.st_mtime_ns, first + len(data), data, joins=same and first == start)
