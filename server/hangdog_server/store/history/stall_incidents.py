"""Finds the incident of a standstill: one standstill is one incident, whoever asks, and whichever server leads."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hangdog_models.incident import ENDED, RUNS_ON, SLOWED_WHY
from hangdog_server.store import actions
from hangdog_server.store.tables import INCIDENTS, INTENTS, SPOOLED, storable


@dataclass(frozen=True, slots=True)
class StallIncident:
    """An incident that may be of the standstill that is seen now; `acted`: machines were taken for it.

    `changed`: Unix time of its latest verdict.
    """

    id: str
    kind: str
    confidence: float
    evict: tuple[str, ...]
    changed: float
    acted: bool


def find(connection: sa.Connection, job: str, name: str, since: float) -> StallIncident | None:
    """The newest incident of a job, if it is of the standstill that began at `since` (Unix seconds), or has that `name`.

    One that is under way is none, nor one whose job went on since, nor what agents recorded without a server.
    A job that came to stand still while it was slow is another matter, too.
    """
    elsewhere = sa.or_(*(INCIDENTS.c.why.startswith(why) for why in (*RUNS_ON, SLOWED_WHY)))
    columns = ("id", "state", "began", "changed", "kind", "confidence", "evict", "went_on_s")
    query = sa.select(*(INCIDENTS.c[one] for one in columns)).where(
        INCIDENTS.c.job == storable(job), sa.not_(elsewhere)
    )
    if name:
        query = query.where(INCIDENTS.c.id == name)
    row = connection.execute(query.order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id).limit(1)).first()
    if row is None or row.went_on_s or row.state not in ENDED or not (name or row.began >= since):
        return None
    if connection.execute(sa.select(SPOOLED.c.id).where(SPOOLED.c.incident == row.id).limit(1)).first():
        return None
    return _found(row, acted(connection, row.id))


def acted(connection: sa.Connection, incident: str) -> bool:
    """Whether anything was done to machines for an incident."""
    taken = sa.select(INTENTS.c.machine).where(INTENTS.c.incident == incident, INTENTS.c.state.in_(actions.TOOK))
    return connection.execute(taken.limit(1)).first() is not None


def _found(row: Any, taken: bool) -> StallIncident:
    return StallIncident(row.id, row.kind, row.confidence, tuple(row.evict), row.changed, taken)
