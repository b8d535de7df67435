"""Campaigns of diagnostics, their launches, and what machines and their parts were tested for and convicted of."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0005", "0004"

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "campaigns",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("state", TEXT, nullable=False, index=True),
        sa.Column("began", sa.Float, nullable=False, index=True),
        sa.Column("changed", sa.Float, nullable=False, index=True),
        sa.Column("who", TEXT, nullable=False),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("incident", TEXT, nullable=False),
        sa.Column("asked", sa.JSON, nullable=False),
        sa.Column("convicted", sa.JSON, nullable=False),
        sa.Column("note", TEXT, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
    )
    op.create_table(
        "launches",
        sa.Column("campaign", TEXT, sa.ForeignKey("campaigns.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("test", TEXT, nullable=False),
        sa.Column("machines", sa.JSON, nullable=False),
        sa.Column("repetitions", sa.Integer, nullable=False),
        sa.Column("began", sa.Float, nullable=False),
        sa.Column("deadline_s", sa.Float, nullable=False),
        sa.Column("meet", TEXT, nullable=False),
        sa.Column("ended", sa.Float, nullable=False),
        sa.Column("result", TEXT, nullable=False),
        sa.Column("came", sa.JSON, nullable=False),
    )
    op.create_table(
        "tests",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("machine", TEXT, nullable=False),
        sa.Column("campaign", TEXT, nullable=False),
        sa.Column("at", sa.Float, nullable=False, index=True),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("test", TEXT, nullable=False),
        sa.Column("outcome", TEXT, nullable=False),
        sa.Column("repetitions", sa.BigInteger, nullable=False),
        sa.Column("says", TEXT, nullable=False),
        sa.Column("others", sa.JSON, nullable=False),
    )
    op.create_index("ix_tests_machine_at", "tests", ["machine", "at"])
    op.create_table(
        "parts",
        sa.Column("part", TEXT, primary_key=True),
        sa.Column("machine", TEXT, nullable=False, index=True),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "convictions",
        sa.Column("campaign", TEXT, primary_key=True),
        sa.Column("machine", TEXT, primary_key=True),
        sa.Column("part", TEXT, primary_key=True),
        sa.Column("at", sa.Float, nullable=False, index=True),
    )
