"""Asks backends which switch, rack or NVLink domain the machines of jobs share; nothing waits for it."""

import asyncio
import logging
import math
from collections.abc import Sequence

from hangdog_server.actions.backends.backend import Backend, BackendFailed, PlaceReader
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.round_capture import steady

#: Between two looks at which machines are new. Seconds.
TICK_S = 10.0
#: A machine is moved to another rack, or labelled, now and then only. Seconds.
AGAIN_S = 3600.0
#: Machines after which what was read so far counts: of thousands the first ones do not wait for the last.
BATCH = 64

log = logging.getLogger(__name__)


class FaultDomains:
    """One server's; one request is under way at a time."""

    def __init__(self, fleet: Fleet, actors: Sequence[Backend]) -> None:
        self._fleet = fleet
        self._readers = [actor for actor in actors if isinstance(actor, PlaceReader)]
        self._read_at: dict[str, float] = {}

    async def keep(self) -> None:
        """Reads new machines again and again, until it is cancelled; raises nothing."""
        while self._readers:
            try:
                await self.tick(steady())
            except BackendFailed as error:
                log.warning("cannot read which machines share a switch: %s (%s)", error, error.hint)
            except Exception:  # a bug met in one answer must not leave all later machines unread
                log.exception("cannot read which machines share a switch")
            await asyncio.sleep(TICK_S)

    async def tick(self, now: float) -> None:
        """Reads the machines of jobs that were not read lately; raises BackendFailed if none can be read now."""
        running = [seen.machine for seen in self._fleet.machines(now) if seen.jobs]
        self._read_at = {machine: self._read_at[machine] for machine in running if machine in self._read_at}
        due = [machine for machine in running if now - self._read_at.get(machine, -math.inf) >= AGAIN_S]
        refused: BackendFailed | None = None
        for machines in (due[at : at + BATCH] for at in range(0, len(due), BATCH)):
            found: dict[str, tuple[str, ...]] = {}
            try:
                for machine in machines:
                    try:
                        found[machine] = await self._shared(machine)
                    except BackendFailed as error:
                        if error.again:
                            raise
                        refused = error
                    self._read_at[machine] = now
            finally:
                self._fleet.place(found)
        if refused is not None:
            raise refused

    async def _shared(self, machine: str) -> tuple[str, ...]:
        return tuple([domain for reader in self._readers for domain in await reader.shares(machine)])
