"""A progress signal advances while a rank, a job or a machine makes progress; it learns the usual interval, and so its stalls.

It is read again and again. An advance was somewhere between two readings.
"""

from collections import deque
from enum import StrEnum

from hangdog_models.numbers.work_rate import WorkDone


class SignalKind(StrEnum):
    """What is read; two signals of one kind may have the same reason to stall."""

    LINES = "lines"
    HEARTBEAT = "heartbeat"
    COLLECTIVES = "collectives"
    BYTES = "bytes"
    POWER = "power"


#: Advances before its baseline is known: three intervals are more than chance.
LEAST = 4
#: Intervals remembered: the baseline of now counts, as with CPU activity.
REMEMBERED = 16
#: An interval this much longer than the usual ones is a stall.
UNUSUAL = 1.25


class ProgressSignal:
    """One signal. All times are of `time.monotonic`.

    `authoritative`: its advance is the job's own progress and nothing else. While it advances nothing is stalled; when it
    stalls, nothing makes progress. Any other (bytes, power, lines of unknown meaning) is suspicious only together with one
    of another kind. `floor_s` is the shortest stall.
    """

    #: Whether its `steps` are collectives of this trainer.
    counts_collectives = False
    #: The work that the same log says was done, by the throughput it tells.
    work: WorkDone | None = None

    def __init__(self, kind: SignalKind, floor_s: float, authoritative: bool = False) -> None:
        self.kind = kind
        self.authoritative = authoritative
        #: Whether the latest reading saw it advance.
        self.advancing = False
        self._floor_s = floor_s
        self._looked_at: float | None = None
        self._first_at = 0.0
        self._last_at = 0.0
        self._proof_at = float("-inf")
        self._advances = 0
        #: So many steps were made by the latest advance, as far as they are counted.
        self.steps = 0.0
        #: Readings so far.
        self.looks = 0
        self._lengths: deque[float] = deque(maxlen=REMEMBERED)

    def look(self, advanced: bool, at: float, steps: float | None = None, age_s: float = 0.0) -> None:
        """Takes a reading at `at`: whether it has advanced since the one before, and to how many `steps` in all.

        If steps are not counted, an advance is a step. It advanced `age_s` before this reading, as a clock says that may be
        wrong: the advance is taken to lie between the two readings in any case.
        """
        before, self._looked_at = self._looked_at, at
        self.looks += 1
        self.advancing = advanced
        if before is None or at <= before or not advanced:
            return
        advanced_at = min(at, max(before, at - age_s))
        if self._advances:
            self._lengths.append(advanced_at - self._last_at)
        else:
            self._first_at = advanced_at
        self._advances += 1
        self.steps = self._advances if steps is None else steps
        self._last_at, self._proof_at = advanced_at, before

    def mark_benign(self, at: float) -> None:
        """The current stall had a benign reason up to then: it counts as an interval that ended."""
        if self.stalled_since is not None and at > self._last_at:
            self._lengths.append(at - self._last_at)
            self._last_at = at

    @property
    def advances(self) -> int:
        """How often it was seen to advance."""
        return self._advances

    @property
    def advanced_at(self) -> float:
        """When it advanced last, as far as that is known; of no meaning before it did."""
        return self._last_at

    @property
    def stalled_since(self) -> float | None:
        """When it was seen to advance last, if that is longer ago than ever before; else None."""
        if self._advances < LEAST or self._looked_at is None:
            return None
        usual_s = max(self._lengths, default=0.0)
        stalled = self._looked_at - self._last_at >= max(self._floor_s, UNUSUAL * usual_s)
        return self._last_at if stalled else None

    @property
    def proof_at(self) -> float:
        """The latest moment after which it is known to have advanced: the reading before the one that saw it."""
        return self._proof_at

    def contradicts(self, since: float) -> bool:
        """Whether it shows that nothing has been stalled since then: it is authoritative, advanced meanwhile, and still does."""
        return self.authoritative and self._advances >= LEAST and self._proof_at >= since and self.stalled_since is None

    @property
    def known_s(self) -> float:
        """From its first advance to its last."""
        return self._last_at - self._first_at if self._advances >= LEAST else 0.0
