"""The list of incidents: all that a line of it is searched, filtered and sorted by stands in one index.

Verdicts are large: whoever looked at the rows themselves would read them all.
"""

import sqlalchemy as sa

from hangdog_models.incident import UNDER_WAY, Incident, IncidentState, ResponseState
from hangdog_models.lists.incident_status import IncidentStatus
from hangdog_models.lists.list_page import ListPage
from hangdog_models.lists.list_query import ListQuery
from hangdog_server.store.lists.sql_page import contains, hinted, joined, paged
from hangdog_server.store.store import listed
from hangdog_server.store.tables import INCIDENTS, LEDGER, RESPONSES, storable

#: It holds the lines whole; else SQLite would take another one, and then the rows.
INDEX = "ix_incidents_lines"
_DECIDED = INCIDENTS.c.response["state"].as_string()
#: Where an incident is, as `status_of` has it.
STATUS = sa.case(
    (_DECIDED == ResponseState.DISMISSED, sa.literal(str(IncidentStatus.DISMISSED))),
    (_DECIDED == ResponseState.RESOLVED, sa.literal(str(IncidentStatus.RESOLVED))),
    (INCIDENTS.c.went_on_s != 0, sa.literal(str(IncidentStatus.WENT_ON))),
    (
        sa.func.coalesce(INCIDENTS.c.response["acknowledged_by"].as_string(), "") != "",
        sa.literal(str(IncidentStatus.ACKNOWLEDGED)),
    ),
    (INCIDENTS.c.state.in_(UNDER_WAY), sa.literal(str(IncidentStatus.UNDER_WAY))),
    (INCIDENTS.c.state == IncidentState.FAILED, sa.literal(str(IncidentStatus.FAILED))),
    else_=sa.literal(str(IncidentStatus.OPEN)),
)
TEXT = joined(
    INCIDENTS.c.id, INCIDENTS.c.job, INCIDENTS.c.state, INCIDENTS.c.kind, INCIDENTS.c.evict, INCIDENTS.c.why, INCIDENTS.c.note, INCIDENTS.c.owner,
    INCIDENTS.c.response,
)  # fmt: skip
SORTS = {
    "began": INCIDENTS.c.began, "changed": INCIDENTS.c.changed, "job": INCIDENTS.c.job, "confidence": INCIDENTS.c.confidence,
    "verdict": INCIDENTS.c.kind,
}  # fmt: skip


def page(connection: sa.Connection, query: ListQuery) -> ListPage[Incident]:
    """The page that is asked for, without the verdicts' texts. A machine finds the incidents that name it."""
    matching = [_holds(term) for term in query.terms]
    if query.job:
        matching.append(INCIDENTS.c.job == storable(query.job))
    found = paged(connection, INCIDENTS, [INCIDENTS.c.id], STATUS, matching, SORTS, query, INDEX)
    names = [name for (name,) in found.rows]
    of = {one.id: one for one in listed(connection, names)}
    return found.with_rows([of[name] for name in names if name in of])


def count(connection: sa.Connection) -> int:
    """How many incidents there are."""
    counted: int = connection.execute(
        hinted(sa.select(sa.func.count()).select_from(INCIDENTS), INCIDENTS, INDEX)
    ).scalar_one()
    return counted


def changes(connection: sa.Connection) -> tuple[object, ...]:
    """Others once any line of the list would be."""
    counted = sa.select(sa.func.count(), sa.func.max(INCIDENTS.c.changed), sa.func.sum(INCIDENTS.c.went_on_s))
    answers = connection.execute(sa.select(sa.func.count()).select_from(RESPONSES)).scalar_one()
    return (*connection.execute(hinted(counted, INCIDENTS, INDEX)).one(), answers)


def _holds(term: str) -> sa.ColumnElement[bool]:
    named = sa.select(LEDGER.c.incident).where(contains(LEDGER.c.machine, term))
    return sa.or_(contains(TEXT, term), INCIDENTS.c.id.in_(named))
