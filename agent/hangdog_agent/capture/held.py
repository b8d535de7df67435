"""Remembers which processes were held for a native stack: none is held twice in a short time, by whatever order."""

import threading
from dataclasses import dataclass, field

from hangdog_agent.discover import Process

#: Processes remembered; far more than are held in a minute, for each takes half a second.
_REMEMBERED = 256


@dataclass(slots=True)
class Held:
    """When each process was held; times are of `time.monotonic`. Any thread may ask."""

    _at: dict[tuple[int, int], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, process: Process, now: float, again_s: float) -> float | None:
        """Notes that a process is held now; where it was within `again_s` seconds, answers how long ago instead."""
        with self._lock:
            self._at = {key: at for key, at in list(self._at.items())[-_REMEMBERED:] if now - at < again_s}
            before = self._at.get(process.key)
            if before is not None:
                return now - before
            self._at[process.key] = now
            return None
