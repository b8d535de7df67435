"""The watch over one job's trainers on this machine: from pulses to glances, from glances to signs of a standstill.

A pulse alone is no reason to disturb anybody, and neither is a stack that stands still: a sign needs both.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hangdog_agent.beat import Beat
from hangdog_agent.settings import VigilSettings
from hangdog_agent.vigil.posture import Glance, Posture, posture
from hangdog_agent.vigil.rhythm import Rhythm
from hangdog_models.ranks import Rank
from hangdog_models.suspicion import Doing, Sign

Key = tuple[int, int]
#: Two glances so far apart at the one that stands for all are enough to glance at all. Seconds.
_PROBE_APART_S = 0.9
#: Glances kept of one trainer.
_KEPT = 16
#: Places whose longest standstill is remembered of one job: a step has tens.
_PLACES = 256
#: A doubt that lasts is looked into less and less often: (seconds of doubt, seconds between two rounds of glances).
_PAUSES = ((20.0, 0.7), (60.0, 4.0), (float("inf"), 15.0))
#: A stretch this much longer than the usual ones makes wonder; it is only then that anybody is glanced at.
_UNUSUAL = 1.25


@dataclass(slots=True)
class _Trainer:
    rank: Rank
    rhythm: Rhythm
    glances: deque[Glance] = field(default_factory=lambda: deque(maxlen=_KEPT))


class JobVigil:
    """One job. All times are of `time.monotonic`."""

    def __init__(self, settings: VigilSettings) -> None:
        self._settings = settings
        self._trainers: dict[Key, _Trainer] = {}
        self._longest: dict[object, float] = {}
        self._doubt_since: float | None = None
        self._probe: Key | None = None
        self._alarmed = False
        self._asked_until = float("-inf")
        self._glanced_at = float("-inf")

    def feel(self, beats: Mapping[Key, tuple[Rank, Beat]]) -> None:
        """Takes the next beat of every trainer; one that is not among them has ended."""
        for key in self._trainers.keys() - beats.keys():
            del self._trainers[key]
        for key, (rank, beat) in beats.items():
            trainer = self._trainers.setdefault(key, _Trainer(rank, Rhythm(self._settings.settle_s)))
            trainer.rhythm.feel(beat)

    def ask(self, until: float) -> None:
        """Somebody elsewhere waits for this job: everybody is glanced at until then, whatever the pulses say."""
        self._asked_until = max(self._asked_until, until)

    def wants(self, now: float) -> tuple[Key, ...]:
        """Whom to glance at now: nobody; one whose pulse makes wonder, and those at work while it waits; or everybody.

        Everybody once that one stands still. Where all are at work all the time, one stands for all of them.
        """
        due = self._due(now)
        if not due and now >= self._asked_until:
            self._calm()
            return ()
        self._doubt_since = now if self._doubt_since is None else self._doubt_since
        if now - self._glanced_at < next(pause for until, pause in _PAUSES if now - self._doubt_since < until):
            return ()
        self._glanced_at = now
        if self._alarmed or now < self._asked_until:
            return tuple(self._trainers)
        if self._probe not in due:
            self._probe = max(due, key=lambda key: (self._trainers[key].rhythm.silent, due[key]))
        at_work = [key for key, trainer in self._trainers.items() if key != self._probe and not trainer.rhythm.silent]
        return (self._probe, *(at_work if self._trainers[self._probe].rhythm.silent else ()))

    def take(self, glances: Mapping[Key, Glance]) -> None:
        """Takes what the glances asked for showed."""
        for key, glance in glances.items():
            trainer = self._trainers.get(key)
            if trainer is not None:
                if trainer.glances and trainer.glances[-1].standing.frames != glance.standing.frames:
                    self._learn(trainer)
                trainer.glances.append(glance)
        if self._alarmed:
            shown = [posture(trainer.glances) for trainer in self._trainers.values()]
            if all(one is not None and one.doing is Doing.WORKING for one in shown):
                self._alarmed = False
                self._explain(self._trainers.values())
            return
        probe = self._trainers.get(self._probe) if self._probe is not None else None
        doing = posture(probe.glances, _PROBE_APART_S) if probe is not None else None
        if probe is not None and doing is not None:
            self._alarmed = doing.doing is Doing.STILL
            if not self._alarmed:
                self._explain([probe])

    def signs(self, now: float, crowding: float = 1.0) -> dict[Rank, Sign]:
        """What each trainer shows of a standstill; those that show none, or are not known yet, are absent.

        `crowding` is that of this machine's cores, see `Sign`.
        """
        shown = {key: posture(trainer.glances) for key, trainer in self._trainers.items()}
        return {
            self._trainers[key].rank: self._sign(self._trainers[key], one, now, crowding)
            for key, one in shown.items()
            if one
        }

    def _explain(self, trainers: Iterable[_Trainer]) -> None:
        """They are busy, and move: their pulses have an innocent reason."""
        for trainer in trainers:
            trainer.rhythm.explain(trainer.glances[-1].at)
            trainer.glances.clear()
        self._probe = None

    def _due(self, now: float) -> dict[Key, float]:
        """The trainers whose stretch makes wonder, with its length."""
        found: dict[Key, float] = {}
        for key, trainer in self._trainers.items():
            since = trainer.rhythm.since
            if since is not None:
                least = max(self._settings.doubt_s, _UNUSUAL * trainer.rhythm.usual_s)
                if now - since >= least:
                    found[key] = now - since
        return found

    def _calm(self) -> None:
        self._doubt_since, self._probe, self._alarmed = None, None, False
        for trainer in self._trainers.values():
            self._learn(trainer)
            trainer.glances.clear()

    def _sign(self, trainer: _Trainer, shown: Posture, now: float, crowding: float) -> Sign:
        standing = trainer.glances[-1].standing
        place = " in ".join(word for word in (standing.operation or str(standing.activity), standing.label) if word)
        if shown.doing is not Doing.STILL:
            return Sign(shown.doing, now - shown.since, place=place, crowding=crowding)
        seconds = now - self._still_since(trainer, shown)
        patience = max(self._settings.patience_s, self._settings.factor * self._longest.get(standing.place, 0.0))
        if not trainer.rhythm.settled:
            patience = max(patience, self._settings.start_s)
        return Sign(shown.doing, seconds, seconds >= patience, place)

    def _still_since(self, trainer: _Trainer, shown: Posture) -> float:
        """Since when it stands still: since its pulse stopped, unless a glance has seen it elsewhere after that."""
        since = trainer.rhythm.since
        moved = trainer.glances[0].at < shown.since
        return shown.since if since is None or moved else min(since, shown.since)

    def _learn(self, trainer: _Trainer) -> None:
        """Its standstill has ended, so it was innocent: the next one at its place is borne for longer than that."""
        shown = posture(trainer.glances)
        if shown is None or shown.doing is not Doing.STILL:
            return
        last = trainer.glances[-1]
        place = last.standing.place
        if place in self._longest or len(self._longest) < _PLACES:
            lasted = last.at - self._still_since(trainer, shown)
            self._longest[place] = max(self._longest.get(place, 0.0), lasted)
