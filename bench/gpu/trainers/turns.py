"""The turns of a loop, counted and timed on a page that is read from outside: the longest gap between two is what a read costs."""

import threading
import time
from collections.abc import Callable
from enum import IntEnum

from gpu.trainers.page import Page

#: How often the thread beside a call that stands takes its turn. Seconds.
TURN_S = 0.0002
#: The calls a trainer can be sent into: those in which it stands until it is called back, the worst hangs first, and those that
#: it makes again and again.
NAMES = (
    "synchronize",
    "full launch queue",
    "collective",
    "item",
    "launches",
    "allocator retries",
    "page locks",
    "driver allocations",
    "pageable copies",
    "graph replay",
)


def number(name: str) -> int:
    """The order to go into a call."""
    return NAMES.index(name) + 1


class At(IntEnum):
    """Where each number stands on the page."""

    #: The call to stand in, counted from 1; 0: leave it.
    ORDER = 0
    #: The call it stands in; negative where that call failed.
    STANDS = 1
    #: The longest time between two turns since somebody wrote 0 here. Seconds.
    LONGEST = 2
    TURNS = 3
    #: When the last turn was, by the steady clock that all processes share.
    LAST = 4


class Turns:
    """The turns of the loop whose gaps are measured: of the call's own, or of a thread beside a call that stands."""

    def __init__(self, page: Page, order: int) -> None:
        self._page, self._order = page, order
        self._beside: threading.Thread | None = None

    def begin(self) -> None:
        """All is prepared: from now on the loop turns."""
        self._page[At.LAST], self._page[At.LONGEST], self._page[At.TURNS] = time.perf_counter(), 0.0, 0.0
        self._page[At.STANDS] = self._order

    def begin_beside(self, release: Callable[[], None]) -> None:
        """The main thread stands from now on; another turns, and releases it when it is told to."""

        def turn() -> None:
            while self.go_on():
                time.sleep(TURN_S)
            release()

        self.begin()
        self._beside = threading.Thread(target=turn, name="turns", daemon=True)
        self._beside.start()

    def go_on(self) -> bool:
        """One turn; whether there is to be another."""
        page, now = self._page, time.perf_counter()
        page[At.LONGEST] = max(page[At.LONGEST], now - page[At.LAST])
        page[At.LAST] = now
        page[At.TURNS] += 1
        return not self.over

    @property
    def over(self) -> bool:
        return bool(self._page[At.ORDER] != self._order)

    def end(self) -> None:
        if self._beside is not None:
            self._beside.join()
