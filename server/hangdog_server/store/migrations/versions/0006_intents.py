"""What is to be done to machines, and what came of it; and whether the breaker is open."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0006", "0005"

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "intents",
        sa.Column("incident", TEXT, primary_key=True),
        sa.Column("machine", TEXT, primary_key=True),
        sa.Column("job", TEXT, nullable=False),
        sa.Column("domain", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("changed", sa.Float, nullable=False),
        sa.Column("because", TEXT, nullable=False),
        sa.Column("words", TEXT, nullable=False),
        sa.Column("who", TEXT, nullable=False),
        sa.Column("evidence_at", sa.Float, nullable=False),
        sa.Column("boot", TEXT, nullable=False),
        sa.Column("serial", TEXT, nullable=False),
        sa.Column("marked", sa.Boolean, nullable=False),
        sa.Column("runs", sa.JSON, nullable=False),
    )
    for column in ("machine", "state", "at"):
        op.create_index(f"ix_intents_{column}", "intents", [column])
    op.create_table(
        "breaker",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("who", TEXT, nullable=False),
    )
