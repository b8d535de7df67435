"""Incidents remember what people do about them; tests about an incident convict in it, and not beside it."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0018", "0017"

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the column and the table; what people said before that incidents turned out to be has resolved them."""
    op.add_column("incidents", sa.Column("response", sa.JSON, nullable=False, server_default="{}"))
    op.create_table(
        "responses",
        sa.Column("incident", TEXT, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("what", TEXT, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("who", TEXT, nullable=False),
        sa.Column("text", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
    )
    _resolve()
    ledger = sa.table("ledger", sa.column("incident"), sa.column("kind"))
    campaigns = sa.table("campaigns", sa.column("id"), sa.column("incident"))
    about = sa.select(campaigns.c.incident).where(campaigns.c.id == ledger.c.incident).scalar_subquery()
    known = sa.exists().where(campaigns.c.id == ledger.c.incident, campaigns.c.incident != "")
    op.execute(ledger.update().where(ledger.c.kind == "diagnosis", known).values(incident=about))


def _resolve() -> None:
    incidents = sa.table("incidents", sa.column("id"), sa.column("settled", sa.JSON), sa.column("response", sa.JSON))
    connection = op.get_bind()
    for row in connection.execute(sa.select(incidents.c.id, incidents.c.settled)).all():
        said = row.settled if isinstance(row.settled, dict) else {}
        if said.get("cause"):
            kept = {
                "state": "resolved", "who": str(said.get("who", "")), "at": float(said.get("at") or 0.0),
                "reason": str(said.get("reason", "")), "decisions": 1,
            }  # fmt: skip
            connection.execute(incidents.update().where(incidents.c.id == row.id).values(response=kept))
