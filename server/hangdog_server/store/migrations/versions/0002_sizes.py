"""How much each incident takes, and when its captures were removed: what retention goes by."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    """Adds the columns, and counts what is there already."""
    for column in ("captured_bytes", "verdict_bytes"):
        op.add_column("incidents", sa.Column(column, sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("incidents", sa.Column("pruned", sa.Float, nullable=False, server_default="0"))
    op.create_index("ix_incidents_changed", "incidents", ["changed"])
    op.execute(
        "UPDATE incidents SET verdict_bytes = length(verdict), captured_bytes = COALESCE("
        "(SELECT SUM(length(packed)) FROM captures WHERE captures.incident = incidents.id), 0)"
    )
