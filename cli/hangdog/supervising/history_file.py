"""Keeps the history of a supervised job in a file: an entry is on the disk before anything is done upon it."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.recovery.journal import read, written
from hangdog_models.recovery.recovery_history import Entry

#: Bytes of a history that are read: some 100,000 entries, ten years of the busiest job.
MOST = 64 << 20


class HistoryFile:
    """The history of one job, which one supervisor at a time may hold; `entries` is all of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: tuple[Entry, ...] = ()

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock()
            self.entries = self._read()
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)  # the file's name must be on the disk, too
            finally:
                os.close(folder)
        except BaseException:
            os.close(self._file)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def add(self, entry: Entry) -> None:
        """Writes an entry, and returns once the disk has it; raises OSError, and then the file is as before."""
        line = memoryview(f"{written(entry)}\n".encode())
        end = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, end)  # half an entry, of a full disk, would swallow the next one
            raise
        self.entries = (*self.entries, entry)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WrongUse(
                f"another hangdog run uses {self._path}",
                "wait until it ends, or give another --state",
                code="file-in-use",
            ) from None

    def _read(self) -> tuple[Entry, ...]:
        """All entries. The last line may lack its end: whoever wrote it was killed before anything was done upon it."""
        if os.fstat(self._file).st_size > MOST:
            raise UnreadableEvidence(
                f"{self._path} is larger than {MOST >> 20} MiB", "move it away to begin anew", code="too-large"
            )
        with open(self._file, "rb", closefd=False) as file:
            *lines, torn = file.read().split(b"\n")
        if torn:
            os.ftruncate(self._file, os.fstat(self._file).st_size - len(torn))
        entries = []
        for number, line in enumerate(lines, 1):
            try:
                entries.append(read(line.decode()))
            except (UnreadableEvidence, UnicodeDecodeError) as error:
                what = f"{self._path}, line {number}: {error}"
                raise UnreadableEvidence(
                    what, "mend that line, or move the file away to begin anew", code="damaged-history"
                ) from error
        return tuple(entries)
