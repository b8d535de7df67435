"""How far the date is believed, so that a clock that jumps forward makes nothing old."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0011", "0010"


def upgrade() -> None:
    """Makes the table. A store of before is believed to be as old as the last that happened in it, whatever the date is."""
    dates = op.create_table(
        "dates",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("believed", sa.Float, nullable=False),
        sa.Column("boot", sa.String, nullable=False),
        sa.Column("up_s", sa.Float, nullable=False),
        sa.Column("gap_s", sa.Float, nullable=False),
        sa.Column("held_s", sa.Float, nullable=False),
    )
    last = op.get_bind().execute(sa.text("SELECT max(changed) FROM incidents")).scalar()
    if last is not None:
        op.bulk_insert(dates, [{"id": 1, "believed": last, "boot": "", "up_s": 0.0, "gap_s": 0.0, "held_s": 0.0}])
