"""Whether the steps of a job take longer than before: a sequential test of each job against its own past.

A sample is the time of a step, averaged over some seconds. Where the job logs its throughput it is the time of a unit of
work, a token for instance. A sample is high if it is above nearly all past ones, and above their median by a share. High
samples in a row, or nearly so, make a slowdown. A pause of any length, as for a checkpoint, is one sample only.
"""

from collections import deque
from dataclasses import dataclass
from math import ceil, log
from statistics import median

from hangdog_models.numbers.work_rate import WorkUnit

#: Nine in ten past samples are below the limit, so for a sound job as many future ones are.
_SOUND_QUANTILE = 0.9
#: The test separates a share of high samples of at most `_SOUND_HIGH`, a little above what the quantile leaves, from
#: one of `_SLOW_HIGH`.
_SOUND_HIGH, _SLOW_HIGH = 0.15, 0.85
#: What a high sample adds to the logarithm of the odds, and any other subtracts: the two shares add up to 1.
_GAIN = log(_SLOW_HIGH / _SOUND_HIGH)
#: The fewest past samples: with fewer, the quantile is a guess. So many are kept however old they are, and never more
#: than the second number.
_LEAST, _MOST = 20, 1024
#: High samples that ended by themselves were a phase of the job: the next one must be longer by this factor.
_LONGER = 1.5
#: However long a phase was, so many times the samples needed without one are enough.
_MOST_NEEDED = 2


@dataclass(frozen=True, slots=True)
class SlowdownSettings:
    """When a slowdown is reported.

    - `share`: the least rise of the step time, as a share of it; 0: none is reported.
    - `sample_s`: the length of a sample, unless one step takes longer.
    - `settle_s`: the past is known after so long.
    - `usual_s`: how far the past reaches back. A slowdown that lasts so long is the job's new pace.
    - `alarm_h`: with independent samples, a sound job is reported slow at most once in so many hours.
    """

    share: float
    sample_s: float
    settle_s: float
    usual_s: float
    alarm_h: float

    @property
    def needed(self) -> int:
        """High samples in a row that make a slowdown.

        Page's test errs at most once in e^h samples, where they add up to h.
        """
        return ceil(log(max(2.0, self.alarm_h * 3600.0 / max(1.0, self.sample_s))) / _GAIN)


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A step takes `step_s` now and took `usual_s` before; so for `seconds`.

    `by_collectives`: nothing counts the job's steps. The times are those from one collective to the next.
    `work`: the throughput fell that the job logs in that unit. The times are those of one unit of work.
    """

    usual_s: float
    step_s: float
    seconds: float
    by_collectives: bool = False
    work: WorkUnit | None = None

    @property
    def why(self) -> str:
        """The slowdown as text."""
        if self.work is not None:
            fall = 100 * (1 - self.usual_s / self.step_s)
            return f"{self.work} fell by {fall:.0f} %, from {_rate(self.usual_s)} to {_rate(self.step_s)}"
        rise = 100 * (self.step_s / self.usual_s - 1)
        what = "from one collective to the next it" if self.by_collectives else "a step"
        return f"{what} takes {_time(self.step_s)}, {rise:.0f} % more than the {_time(self.usual_s)} it took before"


@dataclass(frozen=True, slots=True)
class StepPace:
    """A step takes `step_s`, and the last one ended `age_s` ago."""

    step_s: float
    age_s: float


class StepTimes:
    """The step times of one rank, and whether they rose. Its times are of a monotonic clock."""

    def __init__(self, settings: SlowdownSettings) -> None:
        self._settings = settings
        self._mark: tuple[float, float] | None = None
        # (end, seconds a step) of each sample
        self._past: deque[tuple[float, float]] = deque(maxlen=_MOST)
        self._run: deque[tuple[float, float]] = deque(maxlen=_MOST)
        self.begin()

    def take(self, steps: float, at: float) -> None:
        """Takes the number of steps so far and the time `at` which the last one ended. A lower number is a restart."""
        if self._mark is None or steps < self._mark[0]:
            self.begin()
            self._mark = steps, at
            return
        made, seconds = steps - self._mark[0], at - self._mark[1]
        if made > 0 and seconds >= max(1.0, self._settings.sample_s):
            self._judge(seconds / made, self._mark[1], at)
            self._mark = steps, at

    @property
    def slowdown(self) -> Slowdown | None:
        """How much slower it is; None while it is not, or is unknown."""
        if not self._slow:
            return None
        lately = list(self._run)[-self._settings.needed :]
        return Slowdown(_middle(self._past), _middle(lately), self._run[-1][0] - self._since)

    @property
    def latest_s(self) -> float | None:
        """Seconds that a step took by the latest sample; None before there is one."""
        samples = self._run or self._past
        return samples[-1][1] if samples else None

    @property
    def settled(self) -> bool:
        """Whether its past is known."""
        return len(self._past) >= _LEAST and self._past[-1][0] - self._past[0][0] >= self._settings.settle_s

    def begin(self) -> None:
        """Forgets everything: what comes now is another count, or another run of the job."""
        self._mark = None
        self._past.clear()
        self._run.clear()
        self._limit_s = 0.0
        self._since = 0.0
        self._score, self._high, self._phase = 0, 0, 0
        self._slow = False

    def _judge(self, sample_s: float, begun: float, at: float) -> None:
        if not self.settled:
            self._past.append((at, sample_s))
            self._limit_s = self._limit()
            return
        high = sample_s > self._limit_s
        if high and not self._run:
            self._since = begun
        self._score = min(self._needed, self._score + 1) if high else max(0, self._score - 1)
        self._high += high
        self._slow |= self._score == self._needed
        self._run.append((at, sample_s))
        if self._score == 0:
            self._phase = max(self._phase, self._high)
            self._end(at)
        elif at - self._since >= self._settings.usual_s:
            self._past.clear()
            self._end(at)

    def _end(self, at: float) -> None:
        """Moves the samples of the run to the past: it ended by itself, or has become the job's pace."""
        self._past.extend(self._run)
        while len(self._past) > _LEAST and at - self._past[0][0] > self._settings.usual_s:
            self._past.popleft()
        self._run.clear()
        self._score, self._high, self._slow = 0, 0, False
        self._limit_s = self._limit()

    @property
    def _needed(self) -> int:
        least = self._settings.needed
        return min(_MOST_NEEDED * least, max(least, ceil(_LONGER * self._phase)))

    def _limit(self) -> float:
        samples = sorted(sample_s for _, sample_s in self._past)
        return max((1 + self._settings.share) * median(samples), samples[int(_SOUND_QUANTILE * (len(samples) - 1))])


def _middle(samples: "deque[tuple[float, float]] | list[tuple[float, float]]") -> float:
    return median(sample_s for _, sample_s in samples)


def _rate(unit_s: float) -> str:
    rate = 1 / unit_s
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _time(seconds: float) -> str:
    if seconds < 0.1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
