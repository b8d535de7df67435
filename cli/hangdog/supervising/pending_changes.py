"""Changes of the code that wait to be merged: a file that people append to, a name a line, urgent ones with a `!` before it."""

from collections.abc import Sequence
from pathlib import Path

from hangdog_models.recovery.recovery_history import Entry, MachinesChanged

#: Bytes of the file that are read, and characters of a name.
MOST, NAME = 64 << 10, 200


class PendingChanges:
    """Reads the file whenever it changed, and remembers what it read until the history has it: a full disk may refuse it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._read: dict[str, MachinesChanged] = {}

    def new(self, now: float, history: Sequence[Entry]) -> tuple[MachinesChanged, ...]:
        """The changes that the history does not know yet, as they were noticed, until it does; none of a file never read."""
        for line in self._lines():
            name = line.strip().removeprefix("!").strip()[:NAME]
            if name:
                self._read.setdefault(name, MachinesChanged(now, name, urgent=line.strip().startswith("!")))
        if self._read:
            for entry in history:
                if isinstance(entry, MachinesChanged):
                    self._read.pop(entry.name, None)
        return tuple(self._read.values())

    def _lines(self) -> Sequence[str]:
        """The lines of the file, should it have changed; none where it is not there, or cannot be read."""
        if self._path is None:
            return ()
        try:
            status = self._path.stat()
            seen = status.st_mtime_ns, status.st_size
            if seen == self._stamp:
                return ()
            with self._path.open(encoding="utf-8", errors="replace") as file:
                lines = file.read(MOST).splitlines()
        except OSError:
            return ()
        self._stamp = seen
        return lines
