"""Tells when the memory of a broken rank has come to rest: a fault may take a while to build up in it."""

import time
from pathlib import Path


class MemoryGrowth:
    """The memory of one process, looked at again and again."""

    def __init__(self, pid: int) -> None:
        self._statm = Path(f"/proc/{pid}/statm")
        self._sizes = ""
        self._since = time.monotonic()

    def stable_s(self) -> float:
        """Seconds for which its sizes have not changed; those of a process that has ended do not either."""
        try:
            now = self._statm.read_text()
        except OSError:
            now = ""
        if now != self._sizes:
            self._sizes, self._since = now, time.monotonic()
        return time.monotonic() - self._since
