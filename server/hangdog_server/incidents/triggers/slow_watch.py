"""Opens an incident where a job has become slower: light looks, which stop nobody, for whom the others wait."""

import asyncio
import contextlib
import logging

from hangdog_models.errors import HangdogError
from hangdog_models.incident import SLOWED_WHY, UNDER_WAY
from hangdog_models.planning.slowdown import Slowdown
from hangdog_server.auth.audit_log import AuditEntry, AuditLog, followed
from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.incidents.fair_queue import Turns
from hangdog_server.incidents.incident_run import IncidentRequest, IncidentServices
from hangdog_server.incidents.registry import IncidentRegistry
from hangdog_server.incidents.round_capture import steady
from hangdog_server.settings import ServerSettings

#: Between two thoughts about all jobs, and between two about one that could not be looked at. Seconds.
TICK_S, AGAIN_S = 1.0, 30.0
#: Incidents of a job among which its last slowdown is sought: a job has few in an hour.
_LATEST = 20

log = logging.getLogger(__name__)


class SlowWatcher:
    """The watch over the pace of all jobs; `keep` holds it until it is cancelled.

    It keeps nothing: an agent tells again and again that a job is slower, and the store knows what was opened for it.
    """

    def __init__(
        self,
        services: IncidentServices,
        stalls: StallTracker,
        registry: IncidentRegistry,
        leading: Leading,
        audit: AuditLog,
        turns: Turns,
        settings: ServerSettings,
    ) -> None:
        """`turns` is in which order captures are taken, where not all may be at once."""
        self._services, self._stalls, self._registry = services, stalls, registry
        self._leading, self._audit, self._turns, self._settings = leading, audit, turns, settings
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._next: dict[str, float] = {}

    async def keep(self) -> None:
        """Thinks about every job again and again."""
        if self._settings.slow_again_s <= 0:
            return
        try:
            while True:
                try:
                    self._think(steady())
                except Exception:  # a bug met in one thought must not leave the other jobs unwatched
                    log.exception("a pass of the slowdown watch failed")
                await asyncio.sleep(TICK_S)
        finally:
            for task in self._asking.values():
                task.cancel()
            await asyncio.gather(*self._asking.values(), return_exceptions=True)

    def _think(self, now: float) -> None:
        slow, fleet = self._stalls.slow.slow(now), self._services.fleet
        self._next = {job: at for job, at in self._next.items() if at > now}
        for job in slow.keys() & set(fleet.jobs()):
            # one that stands still is looked at for that: while it does, nobody is late
            stands = job in self._stalls.doubted() or job in self._registry.leads()
            if stands or job in self._next or job in self._asking or self._leading.elsewhere(job):
                continue
            if fleet.awake(job, now):
                self._asking[job] = asyncio.create_task(self._ask(job), name=f"asking why {job} is slower")

    async def _ask(self, job: str) -> None:
        """Looks lightly when it is this job's turn, if it is slower still and was not looked at for that of late."""
        try:
            async with self._turns.turn(*self._services.fleet.payers(job)):
                slow = self._stalls.slow.slow(steady()).get(job)
                if slow is not None and not await self._looked_at(job, slow):
                    with contextlib.suppress(HangdogError):  # the incident itself remembers why it failed
                        await self._look(job, slow)
        except HangdogError as error:
            log.warning("job %s is slower, and is not captured yet: %s", job, error)
        finally:
            self._next[job] = steady() + AGAIN_S
            del self._asking[job]

    async def _look(self, job: str, slow: Slowdown) -> None:
        why = f"{SLOWED_WHY} {slow.why}, for {slow.seconds:.0f} s"
        log.warning("job %s is slower: %s", job, slow.why)
        settings = self._settings
        request = IncidentRequest(job, settings.slow_rounds, settings.slow_interval_s, why=why, light=True)
        entry = AuditEntry("snapshot", "hangdog", "", "suspicion", "", job, why)
        async for _ in followed(self._registry.ask(request), self._audit, entry):
            pass

    async def _looked_at(self, job: str, slow: Slowdown) -> bool:
        """Whether it was looked at for a slowdown of late, or is looked at now; raises StoreFailed."""
        since = self._services.clock() - self._settings.slow_again_s
        latest = await self._services.store.latest(job, _LATEST)
        return any(one.state in UNDER_WAY or (one.why.startswith(SLOWED_WHY) and one.began >= since) for one in latest)
