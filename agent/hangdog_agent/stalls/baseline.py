"""Learns the rhythm of one trainer from its beats: how long it usually is silent or pinned, and whether it has a rhythm yet."""

from collections import deque

from hangdog_agent.discovery.cpu_activity import CpuActivity, CpuSample, dozes, mode

#: Stretches remembered: the rhythm of now counts, not that of the slow first steps.
REMEMBERED = 16


class Baseline:
    """The rhythm of one main thread. A stretch is the time since it was last lively; it may be silent or pinned."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._before: CpuSample | None = None
        self._mode = CpuActivity.LIVELY
        self._since: float | None = None
        self._lively_s = 0.0
        self._woken_at = float("-inf")
        self._lengths: deque[float] = deque(maxlen=REMEMBERED)

    def feel(self, beat: CpuSample) -> None:
        """Takes the next beat."""
        before, self._before = self._before, beat
        if before is None or beat.at <= before.at:
            return
        if beat.wakes > before.wakes:
            self._woken_at = beat.at
        self._mode = mode(before, beat)
        if self._mode is CpuActivity.LIVELY and dozes(before, beat):
            self._mode = CpuActivity.SILENT
        if self._mode is not CpuActivity.LIVELY:
            self._since = before.at if self._since is None else self._since
            return
        self._lively_s += beat.at - before.at
        if self._since is not None:
            self._lengths.append(before.at - self._since)
        self._since = None

    def mark_benign(self, at: float) -> None:
        """The stretch that lasts had an innocent reason up to then: it counts as one that ended."""
        if self._since is not None:
            self._lengths.append(at - self._since)
            self._since = at

    @property
    def mode(self) -> CpuActivity:
        """How it spent the time between its last two beats."""
        return self._mode

    @property
    def woken_at(self) -> float:
        """The latest beat before which it was put on a processor."""
        return self._woken_at

    @property
    def silent(self) -> bool:
        """Whether it slept all the time between its last two beats."""
        return self._mode is CpuActivity.SILENT

    @property
    def pinned(self) -> bool:
        """Whether it wanted to run all the time between its last two beats."""
        return self._mode is CpuActivity.PINNED

    @property
    def since(self) -> float | None:
        """When the stretch began that lasts; None while it is lively."""
        return self._since

    @property
    def usual_s(self) -> float:
        """The longest of its latest stretches that ended."""
        return max(self._lengths, default=0.0)

    @property
    def settled(self) -> bool:
        """Whether it has lived long enough for its rhythm to be known: imports are pinned, and joining others is silent."""
        return self._lively_s >= self._settle_s
