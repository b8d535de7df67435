"""Where one rank is in its phase at any instant: each stay at a place is drawn, one after another, and looks sample that."""

from bisect import bisect_right
from dataclasses import dataclass
from math import inf
from random import Random

from accuracy.simulator.phases.phase import Part, Step

#: How unequal the stays at one place are: the standard deviation of the logarithm of their seconds.
_UNEQUAL = 0.5
#: So long before the first look the sampling begins: what was before has left no trace that a look would see.
LEAD_S = 20.0


@dataclass(frozen=True, slots=True)
class Moment:
    """What a look finds: the step, at which of its lines, and since the first look: processor seconds and wakes.

    `helped`: processor seconds of its helper threads.
    """

    step: Step
    line: int
    ran: float
    wakes: float
    helped: float


class Timeline:
    """The steps of one rank in one phase of `seconds`, from shortly before `first`, the first look, in seconds of the phase."""

    def __init__(self, parts: tuple[Part, ...], seconds: float, first: float, rng: Random) -> None:
        self._parts, self._seconds, self._rng = parts, seconds, rng
        self._begins = [max(0.0, first - LEAD_S)]
        self._stays: list[Moment] = []
        self._at = rng.randrange(1 << 16)
        self._part: Part | None = None
        self._first = self._moment(first)

    def at(self, seconds: float) -> Moment:
        """What is seen so many seconds after its beginning."""
        now, first = self._moment(max(seconds, self._begins[0])), self._first
        return Moment(
            now.step, now.line, now.ran - first.ran, now.wakes - first.wakes, now.helped - first.helped
        )  # fmt: skip

    def _moment(self, seconds: float) -> Moment:
        while self._begins[-1] <= seconds:
            self._draw()
        at = bisect_right(self._begins, seconds) - 1
        stay, into = self._stays[at], seconds - self._begins[at]
        return Moment(stay.step, stay.line, *_added(stay, into))

    def _draw(self) -> None:
        """The next stay: of the part of the phase that its beginning is in."""
        begins = self._begins[-1]
        part = next((one for one in self._parts if begins < one.share * self._seconds), self._parts[-1])
        if part is not self._part:  # whoever comes in late finds it anywhere
            self._at = 0 if self._part is not None or begins == 0.0 else self._at % len(part.steps)
            self._part = part
        step = part.steps[self._at % len(part.steps)]
        self._at += 1
        takes = step.seconds if step.seconds == inf else step.seconds * self._rng.lognormvariate(0.0, _UNEQUAL)
        ran, wakes, helped = 0.0, 0.0, 0.0
        if self._stays:
            last = self._stays[-1]
            ran, wakes, helped = _added(last, begins - self._begins[-2])
            wakes += last.step.state != "R"  # it is woken to leave
        self._stays.append(Moment(step, self._rng.randrange(step.lines), ran, wakes, helped))
        self._begins.append(begins + takes)


def _added(stay: Moment, seconds: float) -> tuple[float, float, float]:
    """Processor seconds, wakes and those of helpers so long after a stay began."""
    step = stay.step
    ran = seconds if step.state == "R" else 0.0
    return stay.ran + ran, stay.wakes + float(int(seconds * step.wakes)), stay.helped + seconds * step.helped
