"""Has what jobs were seen to survive outlive the server: read when it begins to look after a job, written now and then."""

import asyncio
import contextlib
import logging
from collections.abc import Collection

from hangdog_server.cluster.job_registry import unnamed
from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.round_capture import steady
from hangdog_server.settings import ServerSettings
from hangdog_server.store import phases
from hangdog_server.store.phases import PhaseRow
from hangdog_server.store.store_errors import StoreFailed

#: Between two looks at which jobs are new: a job is not suspected before. Seconds.
TICK_S = 1.0
#: Between two notes of what was learned: a server that is killed loses no more. Seconds.
LEARNED_S = 60.0
#: Between two notes of how long the jobs that run are watched: little beside the day for which one is young. Seconds.
WATCHED_S = 600.0
#: A store that is away for longer does not keep a job from being suspected. Seconds.
WITHOUT_S = 30.0
#: Jobs in one transaction.
_JOBS = 500

log = logging.getLogger(__name__)


class PhaseKeeper:
    """The phases of the jobs that this server leads; `keep` holds it until it is cancelled, then `close`."""

    def __init__(
        self, services: IncidentServices, stalls: StallTracker, leading: Leading, settings: ServerSettings
    ) -> None:
        self._store, self._clock, self._fleet = services.store, services.clock, services.fleet
        self._stalls = stalls
        self._leading = leading
        self._restart_s = settings.restart_s
        self._recalled: set[str] = set()
        #: Since when jobs are to be read.
        self._asked: dict[str, float] = {}
        self._wanted = asyncio.Event()
        self._learned_at = self._watched_at = steady()

    def ready(self, job: str, now: float) -> bool:
        """Whether what was seen of a job before is known here, or cannot be."""
        if job in self._recalled:
            return True
        self._wanted.set()
        return now - self._asked.setdefault(job, now) >= WITHOUT_S

    async def keep(self) -> None:
        """Reads what is new and writes what was learned, again and again; raises nothing."""
        while True:
            try:
                await self.tick(steady())
            except StoreFailed as error:
                log.error("the phase history of jobs is neither read nor stored now: %s", error)
            except Exception:  # a bug met in one job must not make the server forget all others
                log.exception("the phase history of jobs is neither read nor stored now")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._wanted.wait()
            self._wanted.clear()

    async def close(self) -> None:
        """Writes what is known of all that runs, at the server's end."""
        with contextlib.suppress(StoreFailed):
            await self._write(self._recalled | self._stalls.learned())

    async def tick(self, now: float) -> None:
        """Takes up what was kept of jobs that are new here, and now and then writes what was learned; raises StoreFailed."""
        # of a job that has ended, or that another server leads, more may be known when it is here again
        here = {job for job in self._fleet.jobs() if not self._leading.elsewhere(job)}
        self._recalled &= here
        self._asked = {job: at for job, at in self._asked.items() if job in here}
        if new := here - self._recalled:
            await self._recall(new)
        if now - self._watched_at >= WATCHED_S:
            self._watched_at = self._learned_at = now
            await self._write(self._recalled | self._stalls.learned())
        elif now - self._learned_at >= LEARNED_S:
            self._learned_at = now
            await self._write(self._stalls.learned())

    async def _recall(self, jobs: Collection[str]) -> None:
        found = await self._store.ask(phases.read, jobs)
        for job, row in found.items():
            # what has nobody's name and comes back hours later may be another experiment
            stale = unnamed(self._fleet.whose(job)[0]) and self._clock() - row.seen > self._restart_s
            if not stale and phases.same_user(row.owner, self._user(job)):
                self._stalls.recall(job, row.past, steady())
        self._recalled |= set(jobs)

    async def _write(self, jobs: Collection[str]) -> None:
        listed = sorted(jobs)
        for begin in range(0, len(listed), _JOBS):
            some = self._stalls.taken(listed[begin : begin + _JOBS], steady())
            at = self._clock()
            # of one that ended within minutes and taught nothing there is nothing to keep
            rows = [
                PhaseRow(job, self._user(job), at, past)
                for job, past in some.items()
                if past.longest or past.watched_s >= WATCHED_S
            ]
            try:
                if rows:
                    await self._store.do(phases.write, rows)
            except StoreFailed:
                self._stalls.unkept(listed[begin:])
                raise

    def _user(self, job: str) -> str:
        return self._fleet.whose(job)[1].user
