"""What people are told of, and whether it came."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0007", "0006"

#: PostgreSQL orders text by code points, as SQLite does.
TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "notices",
        sa.Column("subject", TEXT, primary_key=True),
        sa.Column("receiver", TEXT, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("about", TEXT, nullable=False),
        sa.Column("mark", TEXT, nullable=False),
        sa.Column("message", sa.JSON, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("noted", sa.Float, nullable=False),
        sa.Column("changed", sa.Float, nullable=False),
        sa.Column("due", sa.Float, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("unsure", sa.Boolean, nullable=False),
        sa.Column("words", TEXT, nullable=False),
    )
    for column in ("state", "noted"):
        op.create_index(f"ix_notices_{column}", "notices", [column])
