"""Decides what the agent does by itself while no server is there: whom to look at closer, and which standstill to record.

`now` is in seconds on a steady clock; nothing here waits, looks or speaks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hangdog_agent.discovery.watch import LocalJob
from hangdog_models.phase_history import PhaseHistory
from hangdog_models.stall_timeouts import ASKED_AGAIN_S, OVER_S, StallTimeouts, Suspicion, suspect
from hangdog_proto.codec.stall_signs import StallSigns

#: What has stood still since the agent's own start, but for so many seconds, may be what it recorded in its life before.
_START_S = 30.0


@dataclass(frozen=True, slots=True)
class OfflineStall:
    """A job that stands still here, as far as this machine sees: for so many seconds, and why one thinks so."""

    job: LocalJob
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Thought:
    """What is to be done now: jobs to look at closer, and standstills to record."""

    closer: tuple[str, ...] = ()
    record: tuple[OfflineStall, ...] = ()


@dataclass(slots=True)
class _OfflineEpisode:
    """One standstill of a job, from its first suspicion to its end."""

    seen: float
    recorded: bool


@dataclass(slots=True)
class OfflinePolicy:
    """What is known of the jobs' standstills and of the server's absence, which began no later than `born`.

    `before` tells of each job whose standstill was recorded before the agent was started again: whose it was.
    """

    away_s: float
    born: float
    before: Mapping[str, str] = field(default_factory=dict)
    patience: StallTimeouts = field(default_factory=StallTimeouts)
    _since: float | None = None
    _asked: dict[str, float] = field(default_factory=dict)
    _episodes: dict[str, _OfflineEpisode] = field(default_factory=dict)
    _histories: dict[str, PhaseHistory] = field(default_factory=dict)

    def think(
        self, now: float, welcomed: bool, here: Iterable[LocalJob], signs: StallSigns, whose: Mapping[str, str]
    ) -> Thought:
        """What to do, given whether a server has us, and what runs here: `whose` names the processes of each job."""
        self._since = None if welcomed else now if self._since is None else self._since
        suspicions = {job: self._suspicion(job, signs, now) for job in here}
        record: list[OfflineStall] = []
        for job, suspicion in suspicions.items():
            episode = self._episodes.get(job.key)
            if suspicion is None:
                if episode is not None and now - episode.seen >= OVER_S:
                    del self._episodes[job.key]
                continue
            if episode is None:
                again = (
                    self.before.get(job.key) == whose.get(job.key) and now - suspicion.seconds < self.born + _START_S
                )
                episode = self._episodes[job.key] = _OfflineEpisode(now, job.key in self.before and again)
            episode.seen = now
            if self._since is not None and now - self._since >= self.away_s and not episode.recorded:
                episode.recorded = True
                record.append(OfflineStall(job, suspicion.seconds, suspicion.why))
        names = {job.key for job in suspicions}
        self._episodes = {name: episode for name, episode in self._episodes.items() if name in names}
        self._histories = {name: history for name, history in self._histories.items() if name in names}
        return Thought(self._closer(now, names, signs), tuple(record))

    def _suspicion(self, job: LocalJob, signs: StallSigns, now: float) -> Suspicion | None:
        shown, history = signs.get(job.key, {}), self._histories.setdefault(job.key, PhaseHistory(now))
        history.watch(shown, {"": job.ranks})
        going = (rank for rank in job.ranks if rank not in shown)
        return suspect(shown, going, lambda sign: history.bears(sign, self.patience, now))

    def _closer(self, now: float, names: Iterable[str], signs: StallSigns) -> tuple[str, ...]:
        """The jobs with an overdue rank, where no server asks for them: not each time, for asking lasts."""
        self._asked = {job: at for job, at in self._asked.items() if now - at < ASKED_AGAIN_S}
        if self._since is None:
            return ()
        found = [
            job
            for job in sorted(names)
            if job not in self._asked and any(sign.overdue for sign in signs.get(job, {}).values())
        ]
        self._asked |= dict.fromkeys(found, now)
        return tuple(found)
