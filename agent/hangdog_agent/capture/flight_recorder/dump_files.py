"""The files that PyTorch writes its flight records into: opened once, and only then looked at."""

import errno
import os
import stat
from collections.abc import Iterator

from hangdog_agent.capture.flight_recorder.asked_rank import AskedRank
from hangdog_agent.confinement import syscalls

#: A dump that did not change for so long is written: PyTorch writes all of it with one call. Seconds.
SETTLED_S = 0.1

#: Device, inode, time of the last change, size.
Identity = tuple[int, int, int, int] | None


def identity(rank: AskedRank, file: str) -> Identity:
    """What changes when a file is written: never a clock's word, for the file server has another one than we."""
    try:
        handle = rank.open(file)
    except OSError:
        return None
    try:
        return _file_identity(os.fstat(handle))
    finally:
        os.close(handle)


def _file_identity(about: os.stat_result) -> Identity:
    return (about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size) if stat.S_ISREG(about.st_mode) else None


def whole(rank: AskedRank, file: str, seen: Identity, owner: int | None = None) -> bytes:
    """The file, if it is still the one that was seen and a whole pickle, else nothing: from its protocol to STOP.

    Raises PermissionError where it is not of that owner, OSError.
    """
    handle = rank.open(file)
    try:
        about = os.fstat(handle)
        if seen is None or _file_identity(about) != seen:
            return b""
        if owner is not None and about.st_uid != owner:
            raise PermissionError(errno.EPERM, "it is another user's")
        opened = syscalls.reopen(handle, os.O_RDONLY)
    finally:
        os.close(handle)
    try:
        size = seen[3]
        head, tail = os.pread(opened, 2, 0), os.pread(opened, 2, size - 1) if size else b""
        if head[:1] != b"\x80" or tail != b".":
            return b""
        record = b"".join(_pieces(opened, size))
        return record if _file_identity(os.fstat(opened)) == seen else b""
    finally:
        os.close(opened)


def _pieces(opened: int, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := os.read(opened, min(size, 1 << 20))):
        size -= len(piece)
        yield piece
