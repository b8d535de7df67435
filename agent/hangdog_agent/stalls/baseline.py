"""Learns the rhythm of one trainer from its beats: how long it usually is silent or pinned, and whether it has a rhythm yet."""

from collections import deque

from hangdog_agent.discovery.cpu_activity import CpuActivity, CpuSample, dozes, mode

#: Stretches remembered: the rhythm of now counts, not that of the slow first steps.
REMEMBERED = 16
#: Beats over which it is counted how long it waits for a core: as long as the shortest patience with somebody at work.
_BEATS = 8
#: Who hardly wants to run does not tell how crowded the cores are. Share of the time.
_WANTS_SHARE = 0.1
#: Nobody is borne for longer than this many times: where a fault itself makes the crowd, somebody must look at last.
_MOST_CROWDED = 4.0


class Baseline:
    """The rhythm of one main thread. A stretch is the time since it was last lively; it may be silent or pinned."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._beats: deque[CpuSample] = deque(maxlen=_BEATS + 1)
        self._mode = CpuActivity.LIVELY
        self._since: float | None = None
        self._lively_s = 0.0
        self._woken_at = float("-inf")
        self._lengths: deque[float] = deque(maxlen=REMEMBERED)

    def feel(self, beat: CpuSample) -> None:
        """Takes the next beat."""
        before = self._beats[-1] if self._beats else None
        if before is not None and beat.at <= before.at:
            return
        self._beats.append(beat)
        if before is None:
            return
        if beat.wakes > before.wakes:
            self._woken_at = beat.at
        self._mode = mode(before, beat)
        if self._mode is CpuActivity.LIVELY and dozes(before, beat):
            self._mode = CpuActivity.SILENT
        if self._mode is not CpuActivity.LIVELY:
            self._since = before.at if self._since is None else self._since
            return
        settled = self.settled
        self._lively_s += beat.at - before.at
        if self._since is not None:
            self._lengths.append(before.at - self._since)
        self._since = None
        if self.settled and not settled:
            self.begin()

    def begin(self) -> None:
        """What it was like up to now is no part of its rhythm: it was starting."""
        self._lengths.clear()

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
    def crowding(self) -> float:
        """So many times longer than on free cores its work takes: 1 to 4, by how long it waited for a core of late."""
        first, last = (self._beats[0], self._beats[-1]) if self._beats else (None, None)
        if first is None or last is None:
            return 1.0
        ran, queued = last.ran_s - first.ran_s, last.queued_s - first.queued_s
        if ran + queued < _WANTS_SHARE * (last.at - first.at):
            return 1.0
        return min(_MOST_CROWDED, (ran + queued) / max(ran, 1e-9))

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
