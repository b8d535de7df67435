"""How many ranks of each job moved over the last half hour, and how long a step took: kept in memory, in bins of seconds.

`now` is in seconds on a steady clock; nothing here waits or speaks. After a restart of the server it begins empty.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

#: Seconds of a bin, and bins that are kept: half an hour.
BIN_S, BINS = 10.0, 180
#: Jobs that are kept, the ones noted last: each takes four kilobytes.
JOBS = 4096
#: The number of no bin: a steady clock may begin at zero, and half an hour before that is asked for.
NEVER = -(1 << 62)


@dataclass(frozen=True, slots=True)
class RankMotion:
    """The ranks of a job at one moment: those that move, stand still, and of which nobody speaks. `step_s` 0: not known."""

    moving: int
    still: int
    unseen: int = 0
    step_s: float = 0.0

    @property
    def ranks(self) -> int:
        return self.moving + self.still + self.unseen


class _Ring:
    """The bins of one job; that of a moment lies at its number modulo their count."""

    __slots__ = ("counts", "numbers", "steps")

    def __init__(self) -> None:
        self.numbers = array("q", [NEVER]) * BINS
        self.counts = tuple(array("I", [0]) * BINS for _ in range(3))
        self.steps = array("f", [0.0]) * BINS

    def put(self, number: int, motion: RankMotion) -> None:
        at = number % BINS
        if self.numbers[at] == number and self.counts[0][at] < motion.moving:
            return  # the worst moment of a bin is what a reader looks for
        self.numbers[at] = number
        for counts, count in zip(self.counts, (motion.moving, motion.still, motion.unseen), strict=True):
            counts[at] = count
        self.steps[at] = motion.step_s

    def get(self, number: int) -> RankMotion | None:
        at = number % BINS
        if self.numbers[at] != number:
            return None
        moving, still, unseen = (counts[at] for counts in self.counts)
        return RankMotion(moving, still, unseen, self.steps[at])


class JobActivity:
    """The last half hour of all jobs that run, and of those that ended within it."""

    def __init__(self) -> None:
        self._rings: OrderedDict[str, _Ring] = OrderedDict()  # the one noted last is the last one
        self._noted = float("-inf")

    def due(self, now: float) -> bool:
        """Whether half a bin has passed since the jobs were noted last: noting goes over all machines."""
        return now - self._noted >= BIN_S / 2

    def note(self, jobs: Iterable[tuple[str, RankMotion]], now: float) -> None:
        """Takes how all jobs are now."""
        self._noted, number = now, _number(now)
        for job, motion in jobs:
            self._rings[job] = ring = self._rings.pop(job, None) or _Ring()
            ring.put(number, motion)
        while self._rings and (len(self._rings) > JOBS or not self._fresh(number)):
            self._rings.popitem(last=False)

    def strip(self, job: str, now: float) -> tuple[RankMotion | None, ...]:
        """The bins of a job, oldest first, the present one last; None where nothing was noted. Empty: the job is not known."""
        ring = self._rings.get(job)
        if ring is None:
            return ()
        last = _number(now)
        return tuple(ring.get(number) for number in range(last - BINS + 1, last + 1))

    def _fresh(self, number: int) -> bool:
        """Whether the job that was noted longest ago was so within what is kept."""
        ring = next(iter(self._rings.values()))
        return max(ring.numbers) > number - BINS


def _number(now: float) -> int:
    return int(now // BIN_S)
