"""Lists of incidents are searched in an index of their lines: verdicts, which are large, are not read for it."""

from alembic import op

revision, down_revision = "0019", "0018"

#: In the order in which they are listed, then all that a line is searched, filtered and sorted by.
LINE = (
    "began", "id", "job", "state", "kind", "changed", "confidence", "evict", "why", "note", "owner", "went_on_s",
    "response",
)  # fmt: skip


def upgrade() -> None:
    """Adds the index in SQLite. PostgreSQL keeps what is large beside its rows, and takes no such long lines into an index."""
    if op.get_bind().dialect.name == "sqlite":
        op.create_index("ix_incidents_lines", "incidents", list(LINE))
