"""Remembers which processes were held for a native stack, and what was read: none is held twice in a short time."""

import threading
from dataclasses import dataclass, field

from hangdog_agent.discovery.discover import Process
from hangdog_models.stack import Thread

#: Processes remembered; far more than are held in a minute, for each takes half a second.
_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class Before:
    """A process was held `ago_s` seconds ago; `threads` is what was read then, if anything was."""

    ago_s: float
    threads: tuple[Thread, ...]


@dataclass(slots=True)
class NativeCooldown:
    """When each process was held; times are of `time.monotonic`. Any thread may ask."""

    _at: dict[tuple[int, int], tuple[float, tuple[Thread, ...]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, process: Process, now: float, again_s: float) -> Before | None:
        """Notes that a process is held now; where it was within `again_s` seconds, answers that instead."""
        with self._lock:
            self._at = {key: held for key, held in list(self._at.items())[-_REMEMBERED:] if now - held[0] < again_s}
            before = self._at.get(process.key)
            if before is not None:
                return Before(now - before[0], before[1])
            self._at[process.key] = (now, ())
            return None

    def read(self, process: Process, threads: tuple[Thread, ...]) -> None:
        """Keeps what was read while it was held."""
        with self._lock:
            held = self._at.get(process.key)
            if held is not None:
                self._at[process.key] = (held[0], threads)
