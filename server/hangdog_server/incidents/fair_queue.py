"""Lets captures that nobody asked for take turns, so that the many jobs of one user or machine do not hold up another's."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

#: Of all captures that may run at once, the share that is left to people who ask for one.
FOR_PEOPLE = 4
#: Of the others, the share that is left to users and machines of which none is being captured: their first starts at once.
FOR_FIRST = 4
#: Users and machines of which it is remembered when they had their last turn; beyond that the longest ago are forgotten.
MOST = 4096


@dataclass(slots=True, eq=False)
class _Waiting:
    """Who waits, and since which number: `whose` are the user and the machine that answer for it."""

    whose: Sequence[str]
    number: int
    go: asyncio.Future[None]


class Turns:
    """The queue of one server. Next is who has the fewest captures running, then whose last turn is longest ago."""

    def __init__(self, most: int) -> None:
        """`most` captures run at once, those included that people ask for."""
        self._slots = max(1, most - most // FOR_PEOPLE)
        self._kept = max(1, self._slots // FOR_FIRST) if self._slots > 1 else 0
        self._running: Counter[str] = Counter()
        self._at_once = 0
        self._last: dict[str, int] = {}
        self._waiting: list[_Waiting] = []
        self._numbers = count(1)

    @asynccontextmanager
    async def turn(self, user: str, machine: str) -> AsyncIterator[None]:
        """Waits for its turn, and has it; `user` is empty where it is not known: then the machine alone answers for it."""
        whose = [f"machine {machine}", *([f"user {user}"] if user else [])]
        waiting = _Waiting(whose, next(self._numbers), asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._go_on()
        try:
            await waiting.go
            yield
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif waiting.go.done():
                self._at_once -= 1
                self._running -= Counter(whose)
            self._go_on()

    def _go_on(self) -> None:
        """Lets as many go on as may."""
        while may := [one for one in self._waiting if self._may(one)]:
            best = min(may, key=self._claim)
            self._waiting.remove(best)
            self._at_once += 1
            self._running.update(best.whose)
            number = next(self._numbers)
            for name in best.whose:
                self._last.pop(name, None)
                self._last[name] = number
            while len(self._last) > MOST:
                del self._last[next(iter(self._last))]
            best.go.set_result(None)

    def _may(self, one: _Waiting) -> bool:
        if one.go.done():  # it was cancelled, and is about to leave
            return False
        first = not any(self._running[name] for name in one.whose)
        return self._at_once < (self._slots if first else self._slots - self._kept)

    def _claim(self, one: _Waiting) -> tuple[int, int, int]:
        running = max(self._running[name] for name in one.whose)
        return running, max(self._last.get(name, 0) for name in one.whose), one.number
