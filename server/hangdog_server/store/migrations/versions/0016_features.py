"""Incidents remember by what later ones are compared with them, and whose job it was."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0016", "0015"

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the columns; those from before are compared with nothing."""
    op.add_column("incidents", sa.Column("features", sa.JSON, nullable=False, server_default="{}"))
    op.add_column("incidents", sa.Column("owner", TEXT, nullable=False, server_default=""))
