"""Makes sessions of jobs of what agents announce, and notes when one stands still; only a change costs anything.

A job is there while a connected machine announces it. It has ended when the last one no longer does; but where the last one
only fell silent, that is unknown, and so it is until the machine is back and tells, or has been away for too long. `at` is
Unix time; `now` is in seconds on a steady clock. Nothing here waits.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Collection, Iterator

from hangdog_models.operations.session_histories import SessionStall
from hangdog_models.stall_timeouts import OVER_S
from hangdog_models.verdict import Kind
from hangdog_server.cluster.session import JobSession, StallOver, Still
from hangdog_server.store.sessions import SessionRow, SessionState

#: Verdicts by which a job that was suspected did not stand still.
DENIED = (Kind.NONE, Kind.SLOW)
#: What is kept while nothing can be stored: sessions that are over, some days of a cluster of many small jobs, and the
#: standstills of each.
MOST, MOST_STILLS = 10_000, 1000
#: Sessions that begin with one machine in an hour: an agent looks every four seconds, and jobs that last a minute are no
#: training. More is a mistake, or an agent that lies, and must not fill the store.
PER_HOUR = 240
_HOUR_S = 3600.0
#: A suspicion that comes back after so long is looked at in an incident of its own, though nobody saw the job go on in
#: between: a rank of many may always show some sign. One that lasted all the while goes on in its incident. Seconds.
APART_S = 600.0
#: Incidents of one standstill that are told that the job went on.
MOST_INCIDENTS = 100

log = logging.getLogger(__name__)


class SessionTracker:
    """The sessions of all jobs; a machine that is silent for `away_s` seconds tells nothing more of what ran on it."""

    def __init__(self, away_s: float) -> None:
        self._away_s = away_s
        self._sessions: dict[str, JobSession] = {}
        self._jobs: dict[str, frozenset[str]] = {}
        self._away: dict[str, set[str]] = {}
        self._quiet: set[str] = set()
        self._asked: dict[str, JobSession] = {}
        self._went_on: list[StallOver] = []
        #: Sessions that have changed since they were stored.
        self._changed: dict[JobSession, None] = {}
        self._begun: Counter[str] = Counter()
        self._hour = float("-inf")

    def announced(self, machine: str, jobs: Collection[str], first: bool, at: float, now: float) -> None:
        """A machine said what runs there; `first`: for the first time since it is connected."""
        if first:  # it took the place of a stream that had broken and was not yet known to have
            self.lost(machine, at, now)
        before, here = self._jobs.get(machine, frozenset()), frozenset(jobs)
        if here:
            self._jobs[machine] = here
        else:
            self._jobs.pop(machine, None)
        silent = self._away.pop(machine, set())
        for job in before - here:
            self._left(job, machine, True, at, now)
        for job in silent - here:
            self._left(job, machine, False, at, now)
        for job in here - before:
            self._came(job, machine, first, at, now)

    def lost(self, machine: str, at: float, now: float) -> None:
        """A machine's agent is gone, last heard of at that moment: what runs there is unknown."""
        for job in self._jobs.pop(machine, frozenset()):
            life = self._sessions.get(job)
            if life is None or machine not in life.here:
                continue
            life.here.discard(machine)
            life.away.add(machine)
            self._away.setdefault(machine, set()).add(job)
            self._silent(life, at, now, stated=False)

    def settle(self, now: float) -> None:
        """Closes the sessions of which nobody has told for too long."""
        for job in tuple(self._quiet):
            life = self._sessions[job]
            if life.quiet is not None and now - life.quiet >= self._away_s:
                self._close(life)

    def suspected(self, job: str, seconds: float, at: float) -> None:
        """A job seems to stand still for so many seconds."""
        life = self._sessions.get(job)
        if life is None or not life.here:
            return
        if life.still is None:
            life.stood += 1
            life.still = Still(life.stood, at - seconds, at)
        if life.still.last and at - life.still.last >= APART_S and seconds < at - life.still.last:
            life.still.incident = ""
        life.still.moved, life.still.last = None, at

    def started(self, job: str) -> float:
        """When a job's start was seen (Unix time); 0 where it ran before anybody watched, or is not known."""
        life = self._sessions.get(job)
        return life.began if life is not None and life.start else 0.0

    def silent(self) -> tuple[str, ...]:
        """The jobs whose agents all fell silent: whether they run is unknown."""
        return tuple(sorted(job for job in self._quiet if self._sessions[job].away))

    def stands(self, job: str) -> bool:
        """Whether a job was suspected to stand still and was not yet seen to get on for long enough."""
        life = self._sessions.get(job)
        return life is not None and life.still is not None

    def moves(self, job: str, at: float, now: float) -> None:
        """A job shows no sign of a standstill."""
        life = self._sessions.get(job)
        if life is None or life.still is None:
            return
        life.still.moved = life.still.moved or (at, now)
        if now - life.still.moved[1] >= OVER_S and not life.still.asked:
            self._moved(life)

    def asked(self, job: str) -> None:
        """An incident is opened upon the suspicion: it decides whether there is one."""
        life = self._sessions.get(job)
        if life is not None and life.still is not None:
            life.still.asked = True
            self._asked[job] = life

    def opened(self, job: str, incident: str) -> None:
        """The incident in which a job that stands still is looked at."""
        life = self._sessions.get(job)
        if life is not None and life.still is not None:
            life.still.incident = incident
            if incident not in life.still.incidents:
                life.still.incidents.append(incident)
                del life.still.incidents[:-MOST_INCIDENTS]

    def seen(self, job: str) -> tuple[str, float]:
        """The incident in which the job was looked at that stands still now, and since when it stands (Unix seconds)."""
        life = self._sessions.get(job)
        return (life.still.incident, life.still.since) if life is not None and life.still is not None else ("", 0.0)

    def went_on(self) -> tuple[StallOver, ...]:
        """The jobs that were seen to go on since this was called last, as far as they had been looked at."""
        found, self._went_on = tuple(self._went_on), []
        return found

    def judged(self, job: str, kind: Kind | None) -> None:
        """The incident has ended with that verdict, or without one: then the suspicion stands."""
        life = self._asked.pop(job, None)
        if life is None or life.still is None:
            return
        life.still.asked = False
        if kind not in DENIED and not life.still.real:
            life.still.real = True
            self._changed[life] = None

    def taken(self) -> tuple[JobSession, ...]:
        """The sessions that have changed since this was called last."""
        taken, self._changed = tuple(self._changed), {}
        return taken

    def unstored(self, sessions: Collection[JobSession]) -> None:
        """These could not be stored: later; of too many, the oldest that are over are given up."""
        self._changed = {**dict.fromkeys(sessions), **self._changed}
        over = [life for life in self._changed if not life.open]
        for life in over[: max(0, len(over) - MOST)]:
            del self._changed[life]

    def stored(self, life: JobSession, row: SessionRow) -> None:
        """The row is in the store: what is over of it need not be written again."""
        written = {number for number, still in row.stills if still.over is not None}
        life.past = [one for one in life.past if one[0] not in written]

    def open(self) -> Iterator[JobSession]:
        """The sessions that machines show now."""
        return (life for life in self._sessions.values() if life.here)

    def anew(self, life: JobSession, at: float) -> None:
        """Another server wrote of the job: what is seen from now on is another session, that was found."""
        if life.open:
            life.id, life.began, life.start, life.past = _name(), at, False, []
            life.stood = 1 if life.still is not None else 0
            if life.still is not None:
                life.still.number = 1
            self._changed[life] = None

    def _came(self, job: str, machine: str, first: bool, at: float, now: float) -> None:
        life = self._sessions.get(job)
        if life is not None and not life.here and machine not in life.away:
            self._close(life)  # it may be the same job, or its restart: nobody saw
            life = None
        if life is None:
            if not self._begins(machine, now):
                return
            life = self._sessions[job] = JobSession(_name(), job, at, start=not first)
            self._changed[life] = None
        life.here.add(machine)
        life.away.discard(machine)
        life.quiet, life.ended = None, False
        self._quiet.discard(job)

    def _begins(self, machine: str, now: float) -> bool:
        """Whether one more session may begin with a machine."""
        if now - self._hour >= _HOUR_S:
            self._hour = now
            self._begun.clear()
        self._begun[machine] += 1
        if self._begun[machine] == PER_HOUR + 1:
            log.warning("machine %s starts more than %d jobs in an hour: they are not stored", machine, PER_HOUR)
        return self._begun[machine] <= PER_HOUR

    def _left(self, job: str, machine: str, stated: bool, at: float, now: float) -> None:
        """A job is no longer on a machine; `said`: its agent was there when it ended."""
        life = self._sessions.get(job)
        if life is None or (machine not in life.here and machine not in life.away):
            return
        life.here.discard(machine)
        life.away.discard(machine)
        self._silent(life, at, now, stated)

    def _silent(self, life: JobSession, at: float, now: float, stated: bool) -> None:
        if life.here:
            return
        if life.quiet is None:
            life.until, life.quiet, life.ended = at, now, stated
            self._quiet.add(life.job)
        if not life.away:
            self._close(life)

    def _close(self, life: JobSession) -> None:
        life.state = SessionState.ENDED if life.ended else SessionState.LOST
        for machine in life.away:
            self._away[machine].discard(life.job)
            if not self._away[machine]:
                del self._away[machine]
        del self._sessions[life.job]
        self._quiet.discard(life.job)
        self._changed[life] = None

    def _moved(self, life: JobSession) -> None:
        still, life.still = life.still, None
        if still is not None and still.incidents and still.moved is not None:
            stood_s = max(1.0, still.moved[0] - still.since)
            self._went_on.append(StallOver(life.job, tuple(still.incidents), stood_s))
        if still is not None and still.real and still.moved is not None:
            life.past.append((still.number, SessionStall(still.since, still.noticed, still.moved[0])))
            del life.past[:-MOST_STILLS]
            self._changed[life] = None


def _name() -> str:
    return secrets.token_hex(6)
