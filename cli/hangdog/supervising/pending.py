"""Changes of the code that wait to be merged: a file that people append to, a name a line, urgent ones with a `!` before it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from hangdog_models.recovery.history import Changed, Entry

#: Bytes of the file that are read, and characters of a name.
MOST, NAME = 64 << 10, 200


class Pending:
    """Reads the file whenever it changed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None

    def new(self, now: float, history: Sequence[Entry]) -> Iterator[Changed]:
        """The changes that the history does not know yet; none where the file is not there, or cannot be read."""
        if self._path is None:
            return
        try:
            status = self._path.stat()
            seen = status.st_mtime_ns, status.st_size
            if seen == self._seen:
                return
            with self._path.open(encoding="utf-8", errors="replace") as file:
                lines = file.read(MOST).splitlines()
        except OSError:
            return
        self._seen = seen
        known = {entry.name for entry in history if isinstance(entry, Changed)}
        for line in lines:
            name = line.strip().removeprefix("!").strip()[:NAME]
            if name and name not in known:
                known.add(name)
                yield Changed(now, name, urgent=line.strip().startswith("!"))
