"""What agents show of jobs: when each begins, stands still and ends."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0008", "0007"

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "sessions",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("job", TEXT, nullable=False),
        sa.Column("began", sa.Float, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.Column("start", sa.Boolean, nullable=False),
        sa.Column("state", TEXT, nullable=False),
    )
    for column in ("job", "until", "state"):
        op.create_index(f"ix_sessions_{column}", "sessions", [column])
    op.create_table(
        "standstills",
        sa.Column("session", TEXT, sa.ForeignKey("sessions.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("noticed", sa.Float, nullable=False),
        sa.Column("over", sa.Float),
    )
