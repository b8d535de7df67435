"""Has what is seen of jobs stored, by the server that leads each: a row at the beginning and at the end, and a stamp now and then."""

import asyncio
import contextlib
import logging

from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.session import JobSession
from hangdog_server.cluster.session_tracker import SessionTracker
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.round_capture import steady
from hangdog_server.settings import ServerSettings
from hangdog_server.store import sessions
from hangdog_server.store.leases import NotOurs
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.store.trusted_date import believed

#: Between two looks at what has changed: nobody waits for it. Seconds.
TICK_S = 1.0
#: Between two notes that all sessions are still there: what is unknown of a session whose server was killed is no longer, and
#: one statement for all of them costs nothing. Seconds.
STAMP_S = 60.0
#: Between two transactions that forget, so that the store is there for others. Seconds.
PAUSE_S = 0.02

log = logging.getLogger(__name__)


class SessionWriter:
    """The store of what is `seen`; `keep` holds it until it is cancelled, then `close`."""

    def __init__(
        self, services: IncidentServices, seen: SessionTracker, leading: Leading, settings: ServerSettings
    ) -> None:
        self._store, self._clock = services.store, services.clock
        self._keep_s, self._prune_s = settings.keep_s, settings.prune_s
        self._seen = seen
        self._leading = leading
        self._stamped = float("-inf")
        #: Sessions of jobs that another server leads: it writes of them, not we.
        self._theirs: dict[JobSession, None] = {}

    async def keep(self) -> None:
        """Stores what changes, again and again, and forgets what is too old; raises nothing."""
        forgot = steady()
        while True:
            try:
                await self.tick()
                if steady() - forgot >= self._prune_s:
                    forgot = steady()
                    await self.forget()
            except StoreFailed as error:
                log.error("job sessions are not stored now: %s", error)
            except Exception:  # a bug met in one session must not keep all others from being stored
                log.exception("job sessions are not stored now")
            await asyncio.sleep(TICK_S)

    async def close(self) -> None:
        """Notes what is there at the server's end; the sessions stay open for whoever comes next to close."""
        with contextlib.suppress(StoreFailed):
            self._stamped = float("-inf")
            await self.tick()

    async def tick(self) -> None:
        """Stores what has changed, and notes now and then what is there; raises StoreFailed."""
        self._seen.settle(steady())
        self._regained()
        left = list(self._seen.taken())
        try:
            while left:
                if await self._stored(left[0]):
                    self._theirs.pop(left[0], None)
                else:
                    self._theirs[left[0]] = None
                del left[0]
        except Exception as error:
            if not isinstance(error, StoreFailed):  # a bug met in this one: the others need not wait for it for ever
                del left[0]
            raise
        finally:
            self._seen.unstored(left)
        if steady() - self._stamped >= STAMP_S:
            await self._stamp()
            self._stamped = steady()

    async def forget(self) -> None:
        """Removes what is too old; raises StoreFailed."""
        if not self._keep_s:
            return
        now = (await believed(self._store, self._clock)).at
        while await self._store.do(sessions.forget, now - self._keep_s):
            await asyncio.sleep(PAUSE_S)

    def _regained(self) -> None:
        """Sessions of jobs that other servers led begin anew where these do no longer."""
        self._theirs = {life: None for life in self._theirs if life.open}
        for life in [one for one in self._theirs if not self._leading.elsewhere(one.job)]:
            del self._theirs[life]
            self._seen.anew(life, self._clock())

    async def _stored(self, life: JobSession) -> bool:
        """Stores a session; False when another server leads its job."""
        if self._leading.elsewhere(life.job) or not await self._leading.leads(life.job):
            return False
        row = life.row(self._clock())
        try:
            await self._store.write_of(life.job, sessions.write, row)
        except NotOurs:
            return False
        self._seen.stored(life, row)
        return True

    async def _stamp(self) -> None:
        """Notes that all sessions are there that are; one that another server closed is another one from now on."""
        for life in [one for one in self._seen.open() if self._leading.elsewhere(one.job)]:
            self._theirs[life] = None
        mine = {life.id: life for life in self._seen.open() if life not in self._theirs}
        now = self._clock()
        for closed in await self._store.do(sessions.stamp, tuple(mine), now) if mine else ():
            self._seen.anew(mine[closed], now)
