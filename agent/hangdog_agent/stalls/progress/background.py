"""Work that may hang, such as reading a file of a dead server, in a thread of its own, so that nothing waits for it."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class BackgroundWork(Generic[T]):
    """One piece of work; its thread ends with it. It raises nothing: what fails has no result."""

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self.began = time.monotonic()
        #: When it ended.
        self.ended = self.began
        self.result: T | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"hangdog-{name}", daemon=True)
        self._thread.start()

    def done(self, within_s: float = 0.0) -> bool:
        """Whether it has ended, or does within so many seconds."""
        self._thread.join(max(0.0, within_s))
        return not self._thread.is_alive()

    def hangs(self, after_s: float) -> bool:
        """Whether it still goes on after so many seconds."""
        return time.monotonic() - self.began >= after_s and not self.done()

    def _run(self) -> None:
        try:
            self.result = self._work()
        except Exception:  # a bug met in one source must not cost the CPU samples, nor the other sources
            log.exception("%s failed", self._thread.name)
        self.ended = time.monotonic()
