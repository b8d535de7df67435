"""Says of actions that wait for a decision whether their job will restart and at what cost; nothing waits for it."""

import asyncio
import logging
from collections.abc import Sequence
from itertools import groupby

import sqlalchemy as sa

from hangdog_models.errors import HangdogError
from hangdog_models.owner import read
from hangdog_models.reading.printable import printable
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.backend import BackendFailed, IsolationCase, RestartPreviewer
from hangdog_server.cluster.leadership import Leading
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.store.actions import ActionState
from hangdog_server.store.tables import INTENTS

#: Seconds for one incident: a dozen small reads, and an API server that is asked so much later is not well.
WITHIN_S = 10.0
#: Characters kept of the message: changes to two or three manifests.
WORDS = 600
#: Actions that are undecided and have no message.
OPEN = sa.and_(INTENTS.c.state.in_((ActionState.WAITING, ActionState.DRY_RUN)), INTENTS.c.message == "")

log = logging.getLogger(__name__)


class RestartPreviews:
    """One server's; at most one incident is asked about at a time."""

    def __init__(self, services: IncidentServices, leading: Leading, chosen: ActionsConfig) -> None:
        self._services = services
        self._leading = leading
        self._oldest_s = chosen.caps.evidence_s
        self._foreseers = [actor for actor in chosen.actors if isinstance(actor, RestartPreviewer)]
        self._asked: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Asks about new actions in the background; returns at once."""
        if self._foreseers and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._preview(), name="what restarts will lack")

    async def close(self) -> None:
        """Ends what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _preview(self) -> None:
        """Asks once about each incident whose machines wait for a person, or would be taken; again if there was no answer."""
        try:
            cases = await self._services.store.ask(_undecided, self._services.clock() - self._oldest_s)
            groups = {name: list(group) for name, group in groupby(cases, lambda case: case.incident)}
            self._asked &= groups.keys()
            for name, group in groups.items():
                if name in self._asked or not await self._leading.leads(group[0].job):
                    continue
                stated = await self._preview_of(group)
                if stated is None:
                    continue
                self._asked.add(name)
                noted = bool(stated) and await self._services.store.write(name, _noted, name, stated)
                if noted:
                    log.warning("incident %s: restart preview: %s", name, stated)
        except HangdogError as error:  # the store's, or another server leads by now
            log.debug("no restart preview now: %s", error)
        except Exception:
            log.exception("the restart preview failed")

    async def _preview_of(self, cases: Sequence[IsolationCase]) -> str | None:
        """The message; None if the backend is away."""
        stated = []
        for actor in self._foreseers:
            try:
                async with asyncio.timeout(WITHIN_S):
                    stated.append(await actor.preview_restart(cases))
            except TimeoutError:
                return None
            except BackendFailed as error:
                if error.again:
                    return None
                stated.append(f"{error} ({error.hint})" if error.hint else str(error))
        return printable("; ".join(filter(None, stated)), WORDS)


def _undecided(connection: sa.Connection, since: float) -> tuple[IsolationCase, ...]:
    """The machines that wait for a person, or would be taken, since then at most (Unix seconds); by incident."""
    query = sa.select(*(INTENTS.c[name] for name in ("incident", "machine", "job", "reason", "owner", "pods")))
    rows = connection.execute(query.where(OPEN, INTENTS.c.at >= since).order_by(INTENTS.c.incident, INTENTS.c.machine))
    return tuple(
        IsolationCase(row.incident, row.machine, row.job, row.reason, read(row.owner), tuple(row.pods)) for row in rows
    )


def _noted(connection: sa.Connection, incident: str, words: str, /) -> bool:
    """Stores the message, unless a person decided meanwhile; whether it is stored."""
    mine = INTENTS.update().where(INTENTS.c.incident == incident, OPEN)
    return bool(connection.execute(mine.values(message=words)).rowcount)
