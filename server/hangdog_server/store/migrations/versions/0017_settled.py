"""Incidents remember what people said that they turned out to be."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0017", "0016"


def upgrade() -> None:
    """Adds the column; of those from before nobody said anything."""
    op.add_column("incidents", sa.Column("settled", sa.JSON, nullable=False, server_default="{}"))
