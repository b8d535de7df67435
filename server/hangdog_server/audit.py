"""The record of who had the server do what: one JSON object a line, appended and flushed to the disk, never changed.

`note` is the only way in; a file that has grown too large is set aside, and the one set aside before it is dropped.
"""

import asyncio
import errno
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hangdog_models.errors import HangdogError
from hangdog_models.reading.printable import printable

#: Bytes of a file until it is set aside: some 100,000 lines, years of incidents; one more is kept beside it.
MOST_BYTES = 32 << 20
#: Characters of anything that somebody else chose: a name, a reason.
_WORDS = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deed:
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


class _Step(Protocol):
    """One line of an incident's progress; `verdict` stands in the last one."""

    @property
    def incident(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def verdict(self) -> str: ...


Step = TypeVar("Step", bound=_Step)


class Audit:
    """The record in one file; without a path nothing is recorded."""

    def __init__(self, path: Path | None, clock: Callable[[], float], most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._clock = clock
        self._most_bytes = most_bytes
        self._turn = asyncio.Lock()

    async def note(self, deed: Deed) -> bool:
        """Records a deed; True once it is on the disk. A disk that fails is told in the log, with the deed."""
        written = line(deed, self._clock())
        if self._path is None:
            return True
        async with self._turn:
            try:
                await asyncio.to_thread(append, self._path, written, self._most_bytes)
            except OSError as error:
                log.error("cannot be recorded in %s (%s): %s", self._path, error, written)
                return False
        return True


async def followed(steps: AsyncIterator[Step], audit: Audit, deed: Deed) -> AsyncIterator[Step]:
    """The steps of an incident that somebody asked for; that they did is recorded before the first, and what came of it."""
    await audit.note(replace(deed, outcome="asked"))
    incident, outcome = "", "left before there was a verdict"
    try:
        async for step in steps:
            incident = step.incident
            if step.verdict:
                outcome = step.text
            yield step
    except HangdogError as error:
        outcome = f"{'failed' if incident else 'refused'}: {error}"
        raise
    finally:
        await asyncio.shield(audit.note(replace(deed, incident=incident, outcome=outcome)))


def line(deed: Deed, now: float) -> str:
    """A deed as it is recorded; `now` is Unix time."""
    at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return json.dumps({"at": at} | {name: printable(getattr(deed, name), _WORDS) for name in Deed.__slots__})


def append(path: Path, written: str, most_bytes: int = MOST_BYTES) -> None:
    """Appends one line and waits until it is on the disk; raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size + len(written) >= most_bytes:
        path.replace(before(path))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        torn = size and os.pread(fd, 1, size - 1) != b"\n"  # by a disk that was full
        content = b"\n" * bool(torn) + written.encode() + b"\n"
        if os.write(fd, content) < len(content):  # at once: two writers never mix their lines
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(fd)
    finally:
        os.close(fd)


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
