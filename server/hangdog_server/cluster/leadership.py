"""Says which jobs' incidents this server leads: all of them, or, of several servers beside one database, those it holds leases of.

An agent whose jobs are led elsewhere is told where; so all machines of a job come together at one server, and nothing of
an incident has to cross between servers but through the database. A machine with jobs of several servers stays where it is.
"""

import asyncio
import contextlib
import logging
import secrets
from typing import Protocol

from hangdog_models.errors import ServerUnreachable
from hangdog_models.incident import UNFINISHED, Incident
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.protocol.commands import Elsewhere
from hangdog_server.settings import ServerSettings
from hangdog_server.store import leases
from hangdog_server.store.leases import Lease
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed

#: Ticks in the life of a lease: one that failed, or came late, loses nothing.
_TICKS = 3.0

log = logging.getLogger(__name__)


class IncidentStarter(Protocol):
    """Where incidents are led."""

    def leads(self) -> frozenset[str]:
        """The jobs whose incidents are under way."""
        ...

    async def take_up(self, incident: Incident) -> None:
        """Goes on with an incident that its server's end cut short, unless it is under way here."""
        ...

    def give_up(self, job: str) -> None:
        """Ends the incident of a job here: another server leads it."""
        ...


class OfflineIngester(Protocol):
    """Where what was recorded while no server was there is judged."""

    async def resume(self, name: str) -> None:
        """Goes on with a recorded incident, unless it is under way here."""
        ...


class Leading:
    """What this server leads. `address` is where agents reach it, empty when nobody was told."""

    def __init__(self, store: Store, fleet: Fleet, settings: ServerSettings, address: str = "") -> None:
        self._store = store
        self._fleet = fleet
        self._lasts_s = settings.lease_s
        self._address = address
        self._me = secrets.token_hex(8)
        self._mine: set[str] = set()
        self._theirs: dict[str, Lease] = {}
        self._wake = asyncio.Event()
        if store.shared:
            store.fence(self._me)

    async def leads(self, job: str) -> bool:
        """Whether this server leads the incidents of a job, which it does from now on if nobody else does; raises StoreFailed."""
        if self._store.shared and job not in self._mine:
            await self._take({job})
        return not self._store.shared or job in self._mine

    async def require(self, job: str) -> None:
        """Raises ServerUnreachable where another server leads a job's incidents."""
        if not await self.leads(job):
            address = self._theirs[job].address
            raise ServerUnreachable(
                f"job {job} is led by another server" + (f", at {address}" if address else ""),
                f"ask there: --server {address}"
                if address
                else "give each server the --advertise that the agents' --server names",
                code="not-the-leader",
            )

    def elsewhere(self, job: str) -> bool:
        """Whether another server is known to lead a job's incidents."""
        return job in self._theirs

    def noticed(self, machine: str) -> None:
        """A machine announced its jobs: it is sent to the server that leads them, or they are looked after soon."""
        jobs = self._fleet.jobs_of(machine).keys() if self._store.shared else set[str]()
        if jobs - self._mine - self._theirs.keys():
            self._wake.set()
        self._send(machine)

    async def keep(self, registry: IncidentStarter, returns: OfflineIngester) -> None:
        """Holds the leases, and takes up what other servers, or this one before, left; raises nothing."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lasts_s / _TICKS):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.tick(registry, returns)
            except StoreFailed as error:
                log.error("cannot read which server leads which job: %s", error)
            except Exception:  # a bug met in one tick must not let all leases run out
                log.exception("cannot renew the leases")

    async def tick(self, registry: IncidentStarter, returns: OfflineIngester) -> None:
        """Takes and prolongs leases, gives back what is not needed, takes up what lies open; raises StoreFailed."""
        opened = await self._store.open()
        if self._store.shared:
            wanted = {*self._fleet.jobs(), *registry.leads(), *(incident.job for incident in opened)}
            before = self._mine
            await self._take(wanted)
            for job in before & self._theirs.keys():
                log.warning("job %s: another server leads it now", job)
                registry.give_up(job)
            if unneeded := before - wanted:
                self._mine -= unneeded
                await self._store.do(leases.drop, unneeded, self._me)
            self._theirs = {job: held for job, held in self._theirs.items() if job in wanted}
        for incident in opened:
            if not self.elsewhere(incident.job):
                await (registry.take_up(incident) if incident.state in UNFINISHED else returns.resume(incident.id))

    async def close(self) -> None:
        """Gives all leases back, so that another server need not wait until they run out."""
        if self._store.shared:  # whatever `_mine` says: a lease may just be on its way
            with contextlib.suppress(StoreFailed):
                await self._store.do(leases.drop_all, self._me)

    async def _take(self, jobs: set[str]) -> None:
        held = await self._store.do(leases.take, jobs, self._me, self._address, self._lasts_s)
        theirs = {job: found for job, found in held.items() if found.holder != self._me}
        self._mine = (self._mine - theirs.keys()) | (held.keys() - theirs.keys())
        new = {job: found for job, found in theirs.items() if self._theirs.get(job) != found}
        self._theirs = {**{job: found for job, found in self._theirs.items() if job not in self._mine}, **theirs}
        for job, found in new.items():
            log.info("job %s is led by the server at %s", job, found.address or "an unknown address")
            for machine in self._fleet.asked(job):
                self._send(machine)

    def _send(self, machine: str) -> None:
        jobs = sorted(self._fleet.jobs_of(machine))
        if jobs and all(job in self._theirs for job in jobs) and (address := self._theirs[jobs[0]].address):
            self._fleet.send(machine, Elsewhere(jobs[0], address))
