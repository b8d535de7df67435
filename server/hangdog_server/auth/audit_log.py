"""The record of who had the server do what: one JSON object a line, appended and flushed to the disk, never changed.

`note` is the only way in; a file that has grown too large is set aside, and the one set aside before it is dropped. Each line
holds the hash of the one before it: `chain` tells where lines were changed or taken out.
"""

import asyncio
import errno
import fcntl
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hangdog_models.errors import HangdogError
from hangdog_models.reading.printable import printable
from hangdog_proto.private_files import make_folder
from hangdog_server.auth import hash_chain
from hangdog_server.progress import ProgressUpdate

#: Bytes of a file until it is set aside: some 100,000 lines, years of incidents; one more is kept beside it.
MOST_BYTES = 32 << 20
#: Characters of anything that somebody else chose: a name, a reason.
_WORDS = 1000
#: Bytes read at once from the end of the file: most lines are shorter.
_BLOCK = 4096
#: Lines looked at there: behind the last whole one there may be some that a full disk cut off.
_LINES = 8
#: How often, and how far apart, the lock is tried: a line takes some milliseconds, and who holds it for 5 s is stuck. Seconds.
_TRIES, _PAUSE_S = 500, 0.01

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What was done: `what` on which job and incident, by `who`, from where, how that is known, and what came of it."""

    what: str
    who: str
    role: str
    by: str
    peer: str
    job: str
    why: str
    incident: str = ""
    outcome: str = ""


class AuditLog:
    """The record in one file; without a path nothing is recorded."""

    def __init__(self, path: Path | None, clock: Callable[[], float], most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._clock = clock
        self._most_bytes = most_bytes
        self._turn = asyncio.Lock()
        self._seen: tuple[int, int] | None = None

    def head(self) -> str:
        """The hash of the last line, to be kept elsewhere: by it shows later that nothing was cut off. Raises OSError."""
        tail = _tail(self._path) if self._path is not None else []
        return hash_chain.digest(tail[-1]) if tail else hash_chain.NOTHING

    async def note(self, entry: AuditEntry) -> bool:
        """Records a deed; True once it is on the disk. A disk that fails is told in the log, with the deed."""
        written = line(entry, self._clock())
        if self._path is None:
            return True
        async with self._turn:
            try:
                await asyncio.to_thread(self._append, self._path, written)
            except OSError as error:
                log.error("cannot write to the audit log %s (%s): %s", self._path, error, written)
                return False
        return True

    def _append(self, path: Path, written: str) -> None:
        """Appends a line, after one that says so where what was written before is gone."""
        if self._seen is not None and not _holds(path, self._seen):
            reported = f"{path} was cut off or replaced while this server ran"
            log.error("the audit log was tampered with: %s", reported)
            entry = AuditEntry("record damaged", "hangdog", "", "", "", "", reported, outcome="noticed")
            append(path, line(entry, self._clock()), self._most_bytes)
        append(path, written, self._most_bytes)
        found = path.stat()
        self._seen = found.st_ino, found.st_size


def _holds(path: Path, seen: tuple[int, int]) -> bool:
    """Whether a file, or the one set aside, is the one of that inode and has that many bytes still."""
    for each in (path, before(path)):
        try:
            found = each.stat()
        except FileNotFoundError:
            continue
        if found.st_ino == seen[0]:
            return found.st_size >= seen[1]
    return False


async def followed(
    steps: AsyncIterator[ProgressUpdate], audit: AuditLog, entry: AuditEntry
) -> AsyncIterator[ProgressUpdate]:
    """The steps of an incident or a campaign that somebody asked for; that they did is recorded before the first, and what came of it."""
    await audit.note(replace(entry, outcome="asked"))
    incident, outcome = "", "left before there was a verdict"
    try:
        async for step in steps:
            incident = step.name
            if step.document:
                outcome = step.text
            yield step
    except HangdogError as error:
        outcome = f"{'failed' if incident else 'refused'}: {error}"
        raise
    finally:
        await asyncio.shield(audit.note(replace(entry, incident=incident, outcome=outcome)))


def line(entry: AuditEntry, now: float) -> str:
    """A deed as it is recorded; `now` is Unix time."""
    at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return json.dumps({"at": at} | {name: printable(getattr(entry, name), _WORDS) for name in AuditEntry.__slots__})


def append(path: Path, written: str, most_bytes: int = MOST_BYTES) -> str:
    """Appends one line and waits until it is on the disk; gives its hash. Raises OSError.

    The line is chained to the one before it (`chain`), also where that is the last of the file that was set aside.
    """
    make_folder(path.parent)
    with _turn(path):
        tail = _tail(path)
        if path.exists() and path.stat().st_size + len(written) + hash_chain.ROOM >= most_bytes:
            path.replace(before(path))
        opens = not path.exists() or path.stat().st_size == 0
        tail = tail or _tail(before(path))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            torn = size and os.pread(fd, 1, size - 1) != b"\n"  # by a crash, or a disk that was full
            linked = hash_chain.linked(written, tail, opens)
            content = b"\n" * bool(torn) + linked + b"\n"
            if os.write(fd, content) < len(content):  # at once, so that a kill leaves all of it or nothing
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
        finally:
            os.close(fd)
    return hash_chain.digest(linked)


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """One writer at a time, of all processes: each line names the one before. Raises OSError when others take too long."""
    fd = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as lock:  # noqa: PTH123 - opened by descriptor; nobody else can lock what they cannot open
        for _ in range(_TRIES):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_PAUSE_S)
        else:
            raise OSError(errno.EBUSY, "another process holds the audit log's lock")
        yield


def _tail(path: Path) -> list[bytes]:
    """The last lines of a file, of which the last may lack its end: enough to hold one that was written whole."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            found = b""
            while end and found.count(b"\n") < _LINES:
                begin = max(0, end - _BLOCK)
                file.seek(begin)
                found = file.read(end - begin) + found
                end = begin
    except FileNotFoundError:
        return []
    lines = found.removesuffix(b"\n").split(b"\n")
    return lines[1:] if end else lines if found else []


def before(path: Path) -> Path:
    """Where the file is set aside."""
    return path.with_name(path.name + ".1")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """All that is recorded, oldest first; a line that was torn by a crash is passed over. Raises OSError."""
    for each in (before(path), path):
        try:
            with each.open(encoding="utf-8", errors="replace") as file:
                for written in file:
                    try:
                        found = json.loads(written)
                    except ValueError:
                        continue
                    if isinstance(found, dict):
                        yield found
        except FileNotFoundError:
            continue
