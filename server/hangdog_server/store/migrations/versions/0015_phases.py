"""What jobs were seen to survive: for how long each was watched, and its phases by call site."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0015", "0014"

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "phases",
        sa.Column("job", TEXT, primary_key=True),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("seen", sa.Float, nullable=False),
        sa.Column("watched_s", sa.Float, nullable=False),
        sa.Column("longest", sa.JSON, nullable=False),
    )
    op.create_index("ix_phases_seen", "phases", ["seen"])
