"""Watches the numbers of one log: which of them went wrong and stayed so. One that is sound again soon is no news.

Each number has its own running median, over a bounded window, of what was sound. Pure: whoever reads the log hands lines down.
"""

import math
from collections import deque
from dataclasses import dataclass, field, replace
from statistics import median

from hangdog_models.numbers.wrong_number import LoggedNumber, NumberLine, Quantity
from hangdog_models.ranks import Rank

#: Numbers followed in one log: each quantity of 16 ranks under a few names. More are a log of something else.
MOST = 128
#: Sound steps that are remembered of each, to say who was sound when another one was not.
_RECENT = 64


@dataclass(frozen=True, slots=True)
class NumberThresholds:
    """When a number is wrong. Counts are of logged values."""

    #: A spike is so many times the running median, as in ByteRobust (SOSP 2025, section 4), ...
    spike_times: float = 5.0
    #: ... and lasts for so many values: a bad batch lifts a gradient norm for one to three steps, and clipping bounds what it
    #: does. What stays so high for longer diverges, or has hundreds of steps to make up for: somebody should look.
    spike_steps: int = 5
    #: NaN or Inf last for so many: one alone is often a step that is left out.
    nan_steps: int = 3
    #: The same of a gradient norm where a dynamic loss scaler is there. It tries too large a scale every some thousand steps, and
    #: halves it until gradients fit; ten halvings are a thousandth of a scale that fitted before.
    scaler_steps: int = 10
    #: Before a spike can be told so many sound values must have come: losses fall fast at first, and norms are large.
    warm_steps: int = 20
    #: Before NaN can be: a job that never had a sound number has no moment at which it went wrong.
    sound_steps: int = 3
    #: The running median is over so many: long enough to outlast a spike, short enough to follow a falling loss.
    median_steps: int = 64


#: The defaults.
USUAL = NumberThresholds()


@dataclass(frozen=True, slots=True)
class NumberAlarm:
    """A number that went wrong: its first wrong value, where, and what was usual. `rank`: the line says whose it is.

    `passed`: it is over already, after so many wrong values; 0: it stays. `at` is when that value was read.
    """

    number: LoggedNumber
    median: float
    step: int | None
    text: str
    rank: Rank | None
    at: float
    passed: int = 0


@dataclass(slots=True)
class _Series:
    """One number of one rank."""

    window: deque[float]
    sound: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    first: NumberAlarm | None = None
    wrong: int = 0
    reported: bool = False
    last: int | None = None


@dataclass(slots=True)
class NumberWatch:
    """The numbers of one log. `take` its lines in their order."""

    thresholds: NumberThresholds
    _series: dict[tuple[Rank | None, Quantity, str], _Series] = field(default_factory=dict)
    _scaled: bool = False

    def take(self, line: NumberLine, at: float = 0.0) -> list[NumberAlarm]:
        """What is known to be wrong, or over, with this line, which was read at that time, and was not before."""
        self._scaled |= line.scaled or line.skipped
        alarms = []
        for number in line.numbers:
            key = line.rank, number.quantity, number.name
            if key not in self._series:
                if len(self._series) >= MOST:
                    continue
                self._series[key] = _Series(deque(maxlen=max(1, self.thresholds.median_steps)))
            if alarm := self._follow(self._series[key], number, line, at):
                alarms.append(alarm)
        return alarms

    def sound_at(self, step: int, quantity: Quantity) -> set[Rank | None]:
        """Whose numbers of this kind were sound at this step or later, and at none from it on wrong."""
        found: dict[Rank | None, bool] = {}
        for (rank, of, _), series in self._series.items():
            if of is not quantity:
                continue
            wrong = series.first is not None and (series.first.step is None or series.first.step <= step)
            sound = bool(series.sound) and series.sound[-1] >= step and not wrong
            found[rank] = found.get(rank, True) and sound
        return {rank for rank, sound in found.items() if sound}

    def _follow(self, series: _Series, number: LoggedNumber, line: NumberLine, at: float) -> NumberAlarm | None:
        wrong = self._wrong(series, number)
        if not wrong:
            over = replace(series.first, passed=series.wrong) if series.first and not series.reported else None
            series.first, series.wrong, series.reported = None, 0, False
            if math.isfinite(number.value) and not line.skipped:
                series.window.append(number.value)
                if line.step is not None:
                    series.sound.append(line.step)
            return over
        if line.skipped and number.quantity is Quantity.GRAD_NORM:
            return None  # the scaler's own step: neither sound nor wrong
        again = line.step is not None and line.step == series.last  # other ranks' lines of one step in one log
        series.last = line.step
        series.wrong += 0 if again and series.first is not None else 1
        if series.first is None:
            series.first = NumberAlarm(number, median(series.window), line.step, line.text, line.rank, at)
        if series.reported or series.wrong < self._lasting(number):
            return None
        series.reported = True
        return series.first

    def _wrong(self, series: _Series, number: LoggedNumber) -> bool:
        if not math.isfinite(number.value):
            return len(series.window) >= max(1, self.thresholds.sound_steps)
        if len(series.window) < max(1, self.thresholds.warm_steps):
            return False
        usual, lowest, highest = median(series.window), min(series.window), max(series.window)
        # a number that may be negative, as the loss of a policy, has no scale
        return lowest >= 0 < usual and number.value >= self.thresholds.spike_times * usual and number.value > highest

    def _lasting(self, number: LoggedNumber) -> int:
        if math.isfinite(number.value):
            return self.thresholds.spike_steps
        scaler = self._scaled and number.quantity is Quantity.GRAD_NORM
        return self.thresholds.scaler_steps if scaler else self.thresholds.nan_steps
