"""Learns the baseline of one trainer from CPU samples: how long it usually is idle or busy, and whether that is known yet."""

from collections import deque

from hangdog_agent.discovery.cpu_activity import CpuActivity, CpuSample, dozes, mode

#: Intervals remembered: the baseline of now counts, not that of the slow first steps.
REMEMBERED = 16
#: Waits for a core are counted over so long: the shortest timeout of a rank at work. Samples come every few seconds while all
#: is well, and what training crowded says nothing of the stall after it. Seconds.
_RECENT_S = 8.0
#: A thread that hardly wants to run does not show CPU contention. Share of the time.
_WANTS_SHARE = 0.1
#: A timeout grows by this factor at most: if the fault itself makes the contention, it must be looked at in the end.
_MOST_CROWDED = 4.0


class Baseline:
    """The baseline of one main thread. An interval is the time since it was last active; it may be idle or busy."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._samples: deque[CpuSample] = deque()
        self._mode = CpuActivity.ACTIVE
        self._since: float | None = None
        self._active_s = 0.0
        self._woken_at = float("-inf")
        self._lengths: deque[float] = deque(maxlen=REMEMBERED)

    def add(self, sample: CpuSample) -> None:
        """Adds the next CPU sample."""
        before = self._samples[-1] if self._samples else None
        if before is not None and sample.at <= before.at:
            return
        self._samples.append(sample)
        while len(self._samples) > 2 and sample.at - self._samples[1].at >= _RECENT_S:
            self._samples.popleft()
        if before is None:
            return
        if sample.wakes > before.wakes:
            self._woken_at = sample.at
        self._mode = mode(before, sample)
        if self._mode is CpuActivity.ACTIVE and dozes(before, sample):
            self._mode = CpuActivity.IDLE
        if self._mode is not CpuActivity.ACTIVE:
            self._since = before.at if self._since is None else self._since
            return
        warmed_up = self.warmed_up
        self._active_s += sample.at - before.at
        if self._since is not None:
            self._lengths.append(before.at - self._since)
        self._since = None
        if self.warmed_up and not warmed_up:
            self.begin()

    def begin(self) -> None:
        """What it did up to now is no part of its baseline: it was starting."""
        self._lengths.clear()

    def mark_benign(self, at: float) -> None:
        """The current interval had a benign reason up to then: it counts as one that ended."""
        if self._since is not None:
            self._lengths.append(at - self._since)
            self._since = at

    @property
    def mode(self) -> CpuActivity:
        """What it did between its last two samples."""
        return self._mode

    @property
    def crowding(self) -> float:
        """CPU contention: its work takes so many times longer than on free cores, 1 to 4, by its recent waits for a core."""
        first, last = (self._samples[0], self._samples[-1]) if self._samples else (None, None)
        if first is None or last is None:
            return 1.0
        ran, queued = last.ran_s - first.ran_s, last.queued_s - first.queued_s
        if ran + queued < _WANTS_SHARE * (last.at - first.at):
            return 1.0
        return min(_MOST_CROWDED, (ran + queued) / max(ran, 1e-9))

    @property
    def woken_at(self) -> float:
        """The latest sample that showed a wake-up."""
        return self._woken_at

    @property
    def idle(self) -> bool:
        """Whether it slept all the time between its last two samples."""
        return self._mode is CpuActivity.IDLE

    @property
    def busy(self) -> bool:
        """Whether it wanted to run all the time between its last two samples."""
        return self._mode is CpuActivity.BUSY

    @property
    def since(self) -> float | None:
        """When the current interval began; None while it is active."""
        return self._since

    @property
    def usual_s(self) -> float:
        """The longest of its latest intervals that ended."""
        return max(self._lengths, default=0.0)

    @property
    def warmed_up(self) -> bool:
        """Whether its baseline is known: imports are busy, and joining other ranks is idle."""
        return self._active_s >= self._settle_s
