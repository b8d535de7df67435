"""What the ledger says of machines, as far as a list of them shows it, and what tells that it says something else."""

import sqlalchemy as sa

from hangdog_models.machine_history import MentionKind
from hangdog_models.views.answer_text import LEAST
from hangdog_server.store import machine_history
from hangdog_server.store.lists import incident_list
from hangdog_server.store.tables import INCIDENTS, INTENTS, LEDGER

#: What may be said against a machine.
_AGAINST = (MentionKind.CONVICTED, MentionKind.SUSPECTED)


def accused(connection: sa.Connection, since: float) -> frozenset[str]:
    """The machines against which a verdict since then (Unix seconds) still speaks: what people took back does not.

    Nor does what only suspected a machine whose job went on: nobody was to blame.
    """
    lines = machine_history.last(since).subquery()
    over = sa.select(INCIDENTS.c.id).where(INCIDENTS.c.id == lines.c.incident, INCIDENTS.c.went_on_s != 0)
    blamed = sa.or_(lines.c.mention == MentionKind.CONVICTED, ~sa.exists(over))
    against = (lines.c.mention.in_(_AGAINST), lines.c.probability >= LEAST, blamed)
    return frozenset(connection.execute(sa.select(lines.c.machine).where(*against)).scalars())


def marked(connection: sa.Connection) -> frozenset[str]:
    """The machines upon which a mark of ours stands."""
    return frozenset(connection.execute(sa.select(INTENTS.c.machine).where(INTENTS.c.marked)).scalars())


def changes(connection: sa.Connection) -> tuple[object, ...]:
    """Others once the ledger says something else."""
    spoken = sa.select(sa.func.count(), sa.func.max(LEDGER.c.id), sa.func.sum(LEDGER.c.probability))
    return (*connection.execute(spoken).one(), *incident_list.changes(connection))
