"""Acts remember whose job they are for: their number is bounded for each user, too."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0010", "0009"

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the column; of acts from before nobody knows whose job it was."""
    op.add_column("intents", sa.Column("owner", TEXT, nullable=False, server_default=""))
