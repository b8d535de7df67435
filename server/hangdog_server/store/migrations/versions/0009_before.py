"""Looks that show what the look behind them shows are kept beside it, instead of in rows of their own."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0009", "0008"


def upgrade() -> None:
    """Adds the column; what was kept before has a row for each look, and none beside it."""
    op.add_column("captures", sa.Column("before", sa.LargeBinary))
