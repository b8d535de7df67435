"""The phases that a job went through: how long ranks worked at each call site while others waited, kept across
restarts.

An evaluation, a checkpoint or a compilation on one rank looks like a stall, but it ends. A phase that ended is known by
its call site, and the next one there is tolerated for a multiple of it. A job watched for a short time has not shown
all of its phases yet. `now` is in seconds on a steady clock; nothing here waits.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign, StallTimeouts

#: Call sites remembered of one job; most have a handful of phases. Of more, the shortest are forgotten.
PLACES = 256
#: No phase is remembered as longer, in seconds: a job stalled for a night must not be tolerated for three.
LONGEST_S = 3600.0
#: A phase that is longer than ever by less than this share is not worth saving at once.
NOTABLE = 0.1


@dataclass(frozen=True, slots=True)
class PastPhases:
    """What is kept of an unwatched job: the seconds it was watched, and its longest phases by call site."""

    watched_s: float
    longest: Mapping[str, float]

    def joined(self, other: Self) -> Self:
        """What both know together; of each phase the longer one."""
        longest = {
            place: max(self.longest.get(place, 0.0), other.longest.get(place, 0.0))
            for place in (*self.longest, *other.longest)
        }
        return replace(self, watched_s=max(self.watched_s, other.watched_s), longest=_longest_of(longest))


@dataclass(slots=True)
class PhaseHistory:
    """The phases of one job: `since` when it is watched, and by call site the seconds that others waited there.

    `learned`: a phase ended that was notably longer than any before at its call site.
    """

    since: float
    longest: dict[str, float] = field(default_factory=dict)
    learned: bool = False
    _under_way: dict[Rank, dict[str, float]] = field(default_factory=dict)

    @property
    def under_way(self) -> bool:
        """Whether a rank is in a phase now."""
        return bool(self._under_way)

    def watch(self, signs: Mapping[Rank, Sign], machines: Mapping[str, Collection[Rank]]) -> None:
        """Takes what all ranks show now. A rank that still runs on the `machines` and shows nothing any more has moved
        on.

        A rank that no longer runs ended in the middle of its phase, which may be the cause: nothing is learned.
        """
        waited = max((sign.seconds for sign in signs.values() if sign.waits), default=0.0)
        for rank, sign in signs.items():
            if sign.doing is not Doing.STILL and not sign.waits and sign.place:
                places = self._under_way.setdefault(rank, {})
                if sign.place in places or len(places) < PLACES:
                    places[sign.place] = max(places.get(sign.place, 0.0), waited)
        for rank in self._under_way.keys() - signs.keys():
            places = self._under_way.pop(rank)
            if any(rank in ranks for ranks in machines.values()):
                self._learn(places)

    def bears(self, sign: Sign, timeouts: StallTimeouts, now: float) -> float:
        """The seconds that the others may wait for a rank with this sign.

        An overdue rank is known to wait in a loop, or has worked for too long by its own baseline.
        """
        patience = timeouts.of(sign.doing)
        if not sign.overdue:
            patience *= sign.crowding
            if now - self.since < timeouts.young_s:
                patience = max(patience, timeouts.young_patience_s)
        return max(patience, timeouts.factor * self.longest.get(sign.place, 0.0))

    def past(self, timeouts: StallTimeouts, now: float) -> PastPhases:
        """What is worth keeping: phases longer than any rank is tolerated for anyway."""
        least = min(timeouts.of(doing) for doing in Doing if doing is not Doing.STILL)
        longest = {place: seconds for place, seconds in self.longest.items() if timeouts.factor * seconds > least}
        return PastPhases(now - self.since, longest)

    def recall(self, past: PastPhases, now: float) -> None:
        """Adds what was kept of the job to what was seen since it is watched again."""
        self.since = min(self.since, now - past.watched_s)
        learned = self.learned
        self._learn(past.longest)
        self.learned = learned

    def _learn(self, places: Mapping[str, float]) -> None:
        for place, seconds in places.items():
            before = self.longest.get(place, 0.0)
            self.longest[place] = max(before, min(seconds, LONGEST_S))
            self.learned = self.learned or self.longest[place] > (1 + NOTABLE) * before
        if len(self.longest) > PLACES:
            self.longest = _longest_of(self.longest)


def _longest_of(longest: Mapping[str, float]) -> dict[str, float]:
    """The longest phases, as many as are remembered."""
    kept = sorted(longest, key=longest.__getitem__, reverse=True)[:PLACES]
    return {place: longest[place] for place in kept}
