"""What verdicts said of machines, across jobs; filled with what the verdicts that are there say."""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0003", "0002"

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
#: A hypothesis of more machines than this says nothing of any of them.
MOST = 64


def upgrade() -> None:
    """Makes the table."""
    ledger = op.create_table(
        "ledger",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("machine", TEXT, nullable=False),
        sa.Column("incident", TEXT, nullable=False),
        sa.Column("job", TEXT, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("standing", TEXT, nullable=False),
        sa.Column("probability", sa.Float, nullable=False),
        sa.Column("among", sa.Integer, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
    )
    op.create_index("ix_ledger_machine_at", "ledger", ["machine", "at"])
    op.create_index("ix_ledger_incident", "ledger", ["incident"])
    op.create_index("ix_ledger_at", "ledger", ["at"])
    incidents = sa.table("incidents", *map(sa.column, ("id", "job", "changed", "kind", "state", "verdict")))
    connection = op.get_bind()
    judged = sa.select(incidents).where(incidents.c.state == "judged").order_by(incidents.c.changed, incidents.c.id)
    for incident in connection.execute(judged):
        rows = [
            {"incident": incident.id, "job": incident.job, "at": incident.changed, "kind": incident.kind, **row}
            for row in _said(incident.verdict)
        ]
        if rows:
            connection.execute(sa.insert(ledger), rows)


def _said(verdict: str) -> Iterator[dict[str, Any]]:
    """What a verdict says of each machine; nothing where it is none of ours."""
    try:
        document = json.loads(verdict)
        evicted = list(document["evict"]["machines"])
        named = [(one["machines"], one["probability"]) for one in document["suspects"]]
        named.append((evicted, document["evict"]["coverage"]))
    except (KeyError, TypeError, ValueError):
        return
    told: set[str] = set()
    for machines, probability in sorted(named, key=lambda one: len(one[0])):
        for machine in machines if len(machines) <= MOST else ():
            if machine not in told:
                told.add(machine)
                standing = "convicted" if machine in evicted else "suspected"
                yield {"machine": machine, "standing": standing, "probability": probability, "among": len(machines)}
