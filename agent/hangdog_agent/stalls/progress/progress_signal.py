"""A witness advances while a rank, a job or a machine gets on; it learns how long that usually takes, and knows when it stalls.

It is looked at again and again, and knows nothing of the time between two looks: an advance lies somewhere between them.
"""

from collections import deque
from enum import StrEnum


class SignalKind(StrEnum):
    """What is witnessed; two of one kind may have the same reason to stall."""

    LINES = "lines"
    HEARTBEAT = "heartbeat"
    COLLECTIVES = "collectives"
    BYTES = "bytes"
    POWER = "power"


#: Advances seen before its rhythm is known: three intervals tell a rhythm from chance.
LEAST = 4
#: Intervals remembered: the rhythm of now counts, as with the pulse.
REMEMBERED = 16
#: An interval this much longer than the usual ones is a stall.
UNUSUAL = 1.25


class ProgressSignal:
    """One of them. All times are of `time.monotonic`.

    `vouches`: its advance is the job's own progress and nothing else, so that while it advances nothing stands still, and
    when it stalls, nothing gets on. One that does not vouch (bytes, power, lines of unknown meaning) makes wonder only
    together with one of another kind. `floor_s` is the shortest stall.
    """

    def __init__(self, kind: SignalKind, floor_s: float, vouches: bool = False) -> None:
        self.kind = kind
        self.vouches = vouches
        #: Whether the latest look saw it advance.
        self.advancing = False
        self._floor_s = floor_s
        self._looked_at: float | None = None
        self._first_at = 0.0
        self._last_at = 0.0
        self._proof_at = float("-inf")
        self._advances = 0
        #: So many steps were made by the latest advance, as far as they are counted.
        self.steps = 0.0
        #: Looks so far.
        self.looks = 0
        self._lengths: deque[float] = deque(maxlen=REMEMBERED)

    def look(self, advanced: bool, at: float, steps: float | None = None) -> None:
        """Takes what a look at `at` showed: whether it has advanced since the look before, and to how many `steps` in all.

        Where that is not counted an advance is a step.
        """
        before, self._looked_at = self._looked_at, at
        self.looks += 1
        self.advancing = advanced
        if before is None or at <= before or not advanced:
            return
        if self._advances:
            self._lengths.append(at - self._last_at)
        else:
            self._first_at = at
        self._advances += 1
        self.steps = self._advances if steps is None else steps
        self._last_at, self._proof_at = at, before

    def mark_benign(self, at: float) -> None:
        """The stall that lasts had an innocent reason up to then: it counts as an interval that ended."""
        if self.stalled_since is not None and at > self._last_at:
            self._lengths.append(at - self._last_at)
            self._last_at = at

    @property
    def advances(self) -> int:
        """How often it was seen to advance."""
        return self._advances

    @property
    def advanced_at(self) -> float:
        """The look that saw its latest advance; of no meaning before there was one."""
        return self._last_at

    @property
    def stalled_since(self) -> float | None:
        """When it was seen to advance last, if that was longer before the latest look than it ever is; else None."""
        if self._advances < LEAST or self._looked_at is None:
            return None
        usual_s = max(self._lengths, default=0.0)
        stalled = self._looked_at - self._last_at >= max(self._floor_s, UNUSUAL * usual_s)
        return self._last_at if stalled else None

    @property
    def proof_at(self) -> float:
        """The latest moment after which it is known to have advanced: the look before the one that saw it."""
        return self._proof_at

    def speaks_against(self, since: float) -> bool:
        """Whether it shows that nothing has stood still since then: it vouches, has advanced meanwhile, and still does."""
        return self.vouches and self._advances >= LEAST and self._proof_at >= since and self.stalled_since is None

    @property
    def known_s(self) -> float:
        """From its first advance to its last."""
        return self._last_at - self._first_at if self._advances >= LEAST else 0.0
