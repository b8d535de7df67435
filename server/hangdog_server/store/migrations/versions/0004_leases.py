"""Which of several servers leads the incidents of a job, and until when."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0004", "0003"

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "leases",
        sa.Column("job", TEXT, primary_key=True),
        sa.Column("holder", TEXT, nullable=False),
        sa.Column("address", TEXT, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
    )
