"""The list of what was, is and would be done to machines."""

import sqlalchemy as sa

from hangdog_models.lists.list_page import ListPage
from hangdog_models.lists.list_query import ListQuery
from hangdog_server.store import actions
from hangdog_server.store.actions import ActionRecord
from hangdog_server.store.lists.sql_page import contains, joined, paged
from hangdog_server.store.tables import INTENTS, storable

_TEXT = joined(
    INTENTS.c.machine, INTENTS.c.job, INTENTS.c.incident, INTENTS.c.state, INTENTS.c.reason, INTENTS.c.message, INTENTS.c.who,
)  # fmt: skip
_SORTS = {name: INTENTS.c[name] for name in ("at", "changed", "machine", "job", "state")}


def page(connection: sa.Connection, query: ListQuery) -> ListPage[ActionRecord]:
    """The page that is asked for."""
    matching = [contains(_TEXT, term) for term in query.terms]
    if query.job:
        matching.append(INTENTS.c.job == storable(query.job))
    key = [INTENTS.c.incident, INTENTS.c.machine]
    found = paged(connection, INTENTS, key, INTENTS.c.state, matching, _SORTS, query)
    of = {(row.incident, row.machine): row for row in actions.of_each(connection, {name for name, _ in found.rows})}
    return found.with_rows([of[one] for one in found.rows if one in of])


def changes(connection: sa.Connection) -> tuple[object, ...]:
    """Others once any line of the list would be."""
    marked = sa.func.sum(sa.cast(INTENTS.c.marked, sa.Integer))
    counted = sa.select(sa.func.count(), sa.func.max(INTENTS.c.changed), marked).select_from(INTENTS)
    return tuple(connection.execute(counted).one())
