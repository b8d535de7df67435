"""Keeps the rank's memory in bounds: automatic collection is off, as in many trainers, and done between steps instead."""

import gc
from pathlib import Path

#: Steps between two collections; their time is then the same on all ranks instead of striking one at a time.
TIDY_EVERY = 10
#: Growth of the resident memory since the first step, in bytes, above which a rank collects before it goes on.
#: A healthy rank grows by some 20 MB; a million samples take more than twice this bound.
ALLOWED_GROWTH = 64 << 20
#: Bytes of a memory page as /proc/self/statm counts them.
PAGE = 4096


class Sample:
    """A past sample, linked to its neighbours in both directions, so that only a collection can free it."""

    __slots__ = ("after", "before")

    def __init__(self, before: "Sample | None") -> None:
        self.before = before
        self.after: Sample | None = None
        if before is not None:
            before.after = self


class MemoryKeeper:
    """Remembers past samples and tidies up between steps."""

    def __init__(self) -> None:
        gc.disable()
        gc.freeze()
        self._limit: int | None = None
        self._newest: Sample | None = None
        self._kept = 0

    def keep(self, samples: int) -> None:
        """Extends the remembered samples to `samples`."""
        for _ in range(samples - self._kept):
            self._newest = Sample(self._newest)
            self._kept += 1

    def set_limit(self) -> None:
        """Allows what is resident after the next step, and as much growth as from the first: something large was loaded."""
        self._limit = None

    def release(self, step: int) -> None:
        """Collects every `TIDY_EVERY` steps, and whenever memory has grown too much, until it is in bounds again."""
        if self._limit is None:  # after the first step, which allocates what all later ones use again
            self._limit = _resident() + ALLOWED_GROWTH
        if step % TIDY_EVERY == 0:
            gc.collect()
        while _resident() > self._limit:
            gc.collect()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
