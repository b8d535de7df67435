"""Incidents remember what earlier looks at the same stall came to, and for how long the job stood until it went on."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0014", "0013"


def upgrade() -> None:
    """Adds the columns; of incidents from before nobody knows."""
    op.add_column("incidents", sa.Column("earlier", sa.JSON, nullable=False, server_default="[]"))
    op.add_column("incidents", sa.Column("went_on_s", sa.Float, nullable=False, server_default="0"))
