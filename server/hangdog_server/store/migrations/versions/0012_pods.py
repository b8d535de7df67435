"""Acts remember which pods a job has on a machine: these are evicted, and no others that are labelled alike."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0012", "0011"


def upgrade() -> None:
    """Adds the column; of acts from before nobody knows."""
    op.add_column("intents", sa.Column("pods", sa.JSON, nullable=False, server_default="[]"))
