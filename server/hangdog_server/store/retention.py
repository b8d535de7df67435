"""Removes what is older or more than the settings allow: raw captures first, then whole incidents, never one that still runs.

Old is what is old by a date that is believed (`dates`): a clock that jumps forward removes nothing.
In small bites with pauses, so that the store is there for incidents meanwhile. Every incident that loses something is logged.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hangdog_models.incident import ENDED
from hangdog_server.settings import ServerSettings
from hangdog_server.store import actions, machine_history, phases
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.store.tables import CAPTURES, INCIDENTS, RESPONSES, SPOOLED
from hangdog_server.store.trusted_date import ClockRun, believed

#: Captures removed in one transaction, and their bytes at most (but one at least): some ten milliseconds on any disk.
ROWS, BYTES = 256, 8 << 20
#: Free pages of a SQLite file given back in one step: 4 MiB.
PAGES = 1000
#: Pauses are so many times as long as the bites before them, and between these: most of the time is left to others.
TIMES, PAUSE_S, PAUSES_S = 4, 0.02, 1.0

#: That the date is not believed is said again after so many seconds.
LOGGED_S = 86400.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Due:
    """An incident that loses its captures, or is removed as a `whole`, and why."""

    incident: str
    job: str
    whole: bool
    why: str


@dataclass(frozen=True, slots=True)
class Bite:
    """What one transaction removed of an incident; `last`: nothing more of it is due."""

    due: Due
    freed: int
    last: bool


class Retention:
    """Keeps a store within its settings; `clock` gives the date in Unix seconds, `run` the machine's steady clock."""

    def __init__(
        self,
        store: Store,
        settings: ServerSettings,
        clock: Callable[[], float],
        run: Callable[[], ClockRun] | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._run = run
        self._logged_at = float("-inf")
        self._freed: dict[str, int] = {}

    async def keep(self) -> None:
        """Looks every `prune_s` seconds whether something is due; ends only by being cancelled."""
        while True:
            try:
                await self.once()
            except StoreFailed as error:
                log.error("nothing is pruned now: %s", error)
            except Exception:  # a bug of ours must not end the watch over the disk
                log.exception("pruning failed")
            await asyncio.sleep(self._settings.prune_s)

    async def once(self) -> None:
        """Removes all that is due; raises StoreFailed."""
        loop = asyncio.get_running_loop()
        now = await self._now()
        began = loop.time()
        while (bite := await self._store.do(_bite, self._settings, now)) is not None:
            self._note(bite)
            await asyncio.sleep(min(PAUSES_S, max(PAUSE_S, TIMES * (loop.time() - began))))
            began = loop.time()
        while self._settings.keep_s and await self._store.do(machine_history.forget, now - self._settings.keep_s):
            await asyncio.sleep(PAUSE_S)
        if self._settings.keep_s:
            await self._store.do(actions.forget, now - self._settings.keep_s)
        while await self._store.do(phases.forget, now - self._settings.keep_s if self._settings.keep_s else 0.0):
            await asyncio.sleep(PAUSE_S)
        over = await self._store.ask(_over, self._settings)
        if over > 0:
            log.warning("the store holds %s more than keep_bytes, all of incidents that still run", mib(over))
        while await self._store.shrink(PAGES):
            await asyncio.sleep(PAUSE_S)

    async def _now(self) -> float:
        """How far time is believed to have come; that the date is beyond is said once a day."""
        found = await believed(self._store, self._clock, self._run)
        now = asyncio.get_running_loop().time()
        if found.ahead_s and now - self._logged_at >= LOGGED_S:
            self._logged_at = now
            log.warning(
                "the date jumped %s ahead, so nothing is removed for its age. If the date is wrong, correct it. If it is "
                "right, start the server once with --trust-date, or let it run for %s",
                _days(found.ahead_s), _days(found.left_s),
            )  # fmt: skip
        elif not found.ahead_s:
            self._logged_at = float("-inf")
        return found.at

    def _note(self, bite: Bite) -> None:
        due = bite.due
        freed = self._freed[due.incident] = self._freed.get(due.incident, 0) + bite.freed
        if bite.last:
            what = "removed" if due.whole else "its captures are removed"
            log.info("incident %s of job %s: %s (%s), %s", due.incident, due.job, what, mib(freed), due.why)
            del self._freed[due.incident]


def mib(size: int) -> str:
    """A size as people read it."""
    return f"{size / (1 << 20):.1f} MiB"


def _bite(connection: sa.Connection, settings: ServerSettings, now: float) -> Bite | None:
    due = _due(connection, settings, now)
    if due is None:
        return None
    mine = INCIDENTS.c.id == due.incident
    # Whoever folds a late look into it waits, or was first: then it runs again, and is not touched.
    held = connection.execute(sa.select(INCIDENTS.c.state).where(mine).with_for_update()).scalar()
    if held not in ENDED:
        return Bite(due, 0, last=False)
    size = sa.func.length(CAPTURES.c.packed) + sa.func.coalesce(sa.func.length(CAPTURES.c.before), 0)
    query = sa.select(CAPTURES.c.machine, CAPTURES.c.round, size).where(CAPTURES.c.incident == due.incident)
    rows = connection.execute(query.order_by(CAPTURES.c.machine, CAPTURES.c.round).limit(ROWS + 1)).all()
    taken: list[dict[str, object]] = []
    freed = 0
    for machine, number, length in rows[:ROWS]:
        if taken and freed + length > BYTES:
            break
        taken.append({"of": machine, "number": number})
        freed += length
    if taken:
        one = sa.and_(CAPTURES.c.machine == sa.bindparam("of"), CAPTURES.c.round == sa.bindparam("number"))
        connection.execute(CAPTURES.delete().where(CAPTURES.c.incident == due.incident, one), taken)
    last = len(taken) == len(rows)
    if last and due.whole:
        connection.execute(SPOOLED.delete().where(SPOOLED.c.incident == due.incident))
        connection.execute(RESPONSES.delete().where(RESPONSES.c.incident == due.incident))
        connection.execute(INCIDENTS.delete().where(mine))
    else:
        left = 0 if last else INCIDENTS.c.captured_bytes - freed
        connection.execute(INCIDENTS.update().where(mine).values(captured_bytes=left, pruned=now))
    return Bite(due, freed, last)


def _due(connection: sa.Connection, settings: ServerSettings, now: float) -> Due | None:
    """The next incident that is to lose something: by age, else by size the oldest."""
    if settings.keep_s and (row := _oldest(connection, INCIDENTS.c.changed < now - settings.keep_s)):
        return Due(row.id, row.job, True, f"ended {_days(now - row.changed)} ago (keep_s)")
    full = INCIDENTS.c.captured_bytes > 0
    stale = INCIDENTS.c.changed < now - settings.keep_captures_s
    if settings.keep_captures_s and (row := _oldest(connection, full, stale)):
        return Due(row.id, row.job, False, f"ended {_days(now - row.changed)} ago (keep_captures_s)")
    if _over(connection, settings) > 0:
        why = "the store holds more than keep_bytes"
        if row := _oldest(connection, full):
            return Due(row.id, row.job, False, why)
        if row := _oldest(connection):
            return Due(row.id, row.job, True, why)
    return None


def _oldest(connection: sa.Connection, *that: sa.ColumnElement[bool]) -> Any:
    """Of the ended incidents of that kind the one that ended first, as (id, job, changed); None when there is none."""
    query = sa.select(INCIDENTS.c.id, INCIDENTS.c.job, INCIDENTS.c.changed).where(INCIDENTS.c.state.in_(ENDED), *that)
    return connection.execute(query.order_by(INCIDENTS.c.changed, INCIDENTS.c.id).limit(1)).first()


def _over(connection: sa.Connection, settings: ServerSettings) -> int:
    """Bytes of captures and verdicts beyond what may be kept."""
    if not settings.keep_bytes:
        return 0
    total = sa.func.sum(INCIDENTS.c.captured_bytes + INCIDENTS.c.verdict_bytes)
    return int(connection.execute(sa.select(total)).scalar() or 0) - settings.keep_bytes


def _days(seconds: float) -> str:
    return f"{seconds / 86400:.1f} days"
