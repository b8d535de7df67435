"""Columns and a table bear the field's words: a machine's mention, a stall, a reason, a message."""

from alembic import op

revision, down_revision = "0013", "0012"

#: Table, name before, name now.
RENAMED = (
    ("ledger", "standing", "mention"),
    ("spooled", "standstill", "stall"),
    ("spooled", "told", "stated"),
    ("intents", "because", "reason"),
    ("intents", "words", "message"),
    ("notices", "words", "outcome"),
)


def upgrade() -> None:
    """Renames them; nothing that a row holds changes."""
    for table, before, now in RENAMED:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {before} TO {now}")
    op.rename_table("standstills", "stalls")
