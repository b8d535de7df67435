"""The rank's own log of its steps, written to a file by a thread of its own so that a slow disk does not slow training."""

import threading
from pathlib import Path


class Journal:
    """Collects entries and lets its thread write them.

    The two guards are taken in one order by the thread and in the other by `record` once `backlog` is reached: a classic
    bug that sleeps until somebody lowers the backlog, and the reason why the demo can deadlock a rank from outside.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self._entries: list[str] = []
        self._entries_guard = threading.Lock()
        self._file_guard = threading.Lock()
        self._changed = threading.Event()
        threading.Thread(target=self._keep_writing, name="journal", daemon=True).start()

    def record(self, entry: str, backlog: int) -> None:
        """Adds an entry; when `backlog` entries are waiting to be written, writes them in the caller's thread."""
        with self._entries_guard:
            self._entries.append(entry)
            self._changed.set()
            if len(self._entries) >= backlog:
                with self._file_guard:
                    self._write(self._entries)
                    self._entries = []

    def _keep_writing(self) -> None:
        while True:
            with self._file_guard:
                self._changed.wait()
                self._changed.clear()
                with self._entries_guard:
                    entries, self._entries = self._entries, []
                self._write(entries)

    def _write(self, entries: list[str]) -> None:
        self._file.writelines(entry + "\n" for entry in entries)
        self._file.flush()
