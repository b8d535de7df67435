"""The time of a simulation, and what happens when."""

import heapq
from collections.abc import Callable


class Clock:
    """Seconds since the beginning; what is due at one moment happens in the order in which it was asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._asked = 0

    def at(self, time: float, do: Callable[[], None]) -> None:
        """Does something at a time."""
        self._asked += 1
        heapq.heappush(self._due, (time, self._asked, do))

    def run(self, until: float) -> None:
        """Lets time pass, to the last moment at which something is due before `until`."""
        while self._due and self._due[0][0] <= until:
            self.now, _, do = heapq.heappop(self._due)
            do()
        self.now = until
