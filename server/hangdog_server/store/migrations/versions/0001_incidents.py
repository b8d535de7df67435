"""Incidents, their captures, and what agents recorded while no server was there.

What is there already stays: a SQLite file of hangdog 0.1 has these tables (`user_version` 1), an older one not all of them.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Makes the tables that are not there."""
    op.create_table(
        "incidents",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("job", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("began", sa.Float, nullable=False),
        sa.Column("changed", sa.Float, nullable=False),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("note", TEXT, nullable=False),
        sa.Column("asked", sa.JSON, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("confidence", sa.Float, nullable=False),
        sa.Column("evict", sa.JSON, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "captures",
        sa.Column("incident", TEXT, sa.ForeignKey("incidents.id"), primary_key=True),
        sa.Column("machine", TEXT, primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True),
        sa.Column("packed", sa.LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "spooled",
        sa.Column("machine", TEXT, primary_key=True),
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("incident", TEXT, sa.ForeignKey("incidents.id"), nullable=False),
        sa.Column("job", TEXT, nullable=False),
        sa.Column("standstill", TEXT, nullable=False),
        sa.Column("began", sa.Float, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("told", sa.JSON, nullable=False),
        if_not_exists=True,
    )
    for table, column in (
        ("incidents", "began"),
        ("incidents", "job"),
        ("incidents", "state"),
        ("spooled", "incident"),
        ("spooled", "job"),
    ):
        op.create_index(f"ix_{table}_{column}", table, [column], if_not_exists=True)
