"""What a job was seen to survive: how long its ranks worked at each place while the others waited, kept across its restarts.

An evaluation, a checkpoint or a compilation of one rank looks like a standstill, but it ends. One that ended is known by its
call site, and the next one there is borne for a multiple of it. A job that was watched for a short time only has not shown
all of its phases yet. `now` is in seconds on a steady clock; nothing here waits.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign, StallTimeouts

#: Call sites remembered of one job; most have a handful of phases. Of more, the shortest are forgotten.
PLACES = 256
#: No phase is remembered as longer: a job that stood for a night must not be borne for three. Seconds.
LONGEST_S = 3600.0
#: A phase that lasts longer than ever by less than this part of it tells nothing that is worth noting at once.
NOTABLE = 0.1


@dataclass(frozen=True, slots=True)
class PastPhases:
    """What is kept of a job when nobody watches it: for how many seconds it was watched, and its phases by call site."""

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
    """The phases of one job, `since` when it is watched, and by call site for how many seconds others waited there.

    `learned`: a phase was seen to end that lasted notably longer than any before it at its place.
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
        """Takes what all ranks show now; one that still runs on the `machines` and shows nothing any more has gone on.

        A rank that runs no more has ended in the middle of its phase, which may be why: nothing is learned.
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
        """For how many seconds the others may wait for a rank that shows this.

        One that is overdue is known to wait in a loop, or has got on for too long, by its own rhythm.
        """
        patience = timeouts.of(sign.doing)
        if not sign.overdue:
            patience *= sign.crowding
            if now - self.since < timeouts.young_s:
                patience = max(patience, timeouts.young_patience_s)
        return max(patience, timeouts.factor * self.longest.get(sign.place, 0.0))

    def past(self, timeouts: StallTimeouts, now: float) -> PastPhases:
        """What is worth keeping of it: phases so short that anybody is borne for longer are not."""
        least = min(timeouts.of(doing) for doing in Doing if doing is not Doing.STILL)
        longest = {place: seconds for place, seconds in self.longest.items() if timeouts.factor * seconds > least}
        return PastPhases(now - self.since, longest)

    def recall(self, past: PastPhases, now: float) -> None:
        """Takes up what was kept of the job, beside what was seen of it since it is watched again."""
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
    """As many phases as are remembered, the longest ones."""
    kept = sorted(longest, key=longest.__getitem__, reverse=True)[:PLACES]
    return {place: longest[place] for place in kept}
