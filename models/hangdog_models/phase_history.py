"""What a job was seen to survive: how long its ranks worked at each place while the others waited, kept across its restarts.

An evaluation, a checkpoint or a compilation of one rank looks like a standstill, but it ends. One that ended is known by its
call site, and the next one there is borne for a multiple of it. A job that was watched for a short time only has not shown
all of its phases yet. `now` is in seconds on a steady clock; nothing here waits.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign, StallTimeouts

#: Call sites remembered of one job; most have a handful of phases. Of more, the shortest are forgotten.
PLACES = 256
#: No phase is remembered as longer: a job that stood for a night must not be borne for three. Seconds.
LONGEST_S = 3600.0


@dataclass(slots=True)
class PhaseHistory:
    """The phases of one job, `since` when it is watched, and by call site for how many seconds others waited there."""

    since: float
    longest: dict[str, float] = field(default_factory=dict)
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

    def _learn(self, places: Mapping[str, float]) -> None:
        for place, seconds in places.items():
            self.longest[place] = max(self.longest.get(place, 0.0), min(seconds, LONGEST_S))
        if len(self.longest) > PLACES:
            kept = sorted(self.longest, key=self.longest.__getitem__, reverse=True)[:PLACES]
            self.longest = {place: self.longest[place] for place in kept}
