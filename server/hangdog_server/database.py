"""The SQLite file of the server: its tables, its version, and the lock that keeps a second server off it."""

import fcntl
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa

from hangdog_models.errors import WrongUse

#: Version of the tables below, kept in SQLite's user_version; a file of a newer hangdog is refused, not damaged.
VERSION = 1
#: How long a statement waits for another program that has the file open (a backup, somebody's sqlite3 shell).
BUSY_MS = 5000
#: What somebody can do whose store does not open.
ADVICE = "give --store a file that this user may write, on a local disk with free space"

TABLES = sa.MetaData()
INCIDENTS = sa.Table(
    "incidents",
    TABLES,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("job", sa.String, nullable=False, index=True),
    sa.Column("state", sa.String, nullable=False, index=True),
    sa.Column("began", sa.Float, nullable=False, index=True),
    sa.Column("changed", sa.Float, nullable=False),
    sa.Column("why", sa.String, nullable=False),
    sa.Column("note", sa.String, nullable=False),
    sa.Column("asked", sa.JSON, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("confidence", sa.Float, nullable=False),
    sa.Column("evict", sa.JSON, nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
)
CAPTURES = sa.Table(
    "captures",
    TABLES,
    sa.Column("incident", sa.ForeignKey("incidents.id"), primary_key=True),
    sa.Column("machine", sa.String, primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("packed", sa.LargeBinary, nullable=False),
)
#: What agents recorded while no server was there, one row for each message that was acknowledged: its capture stands in
#: `captures`, and none is ever taken twice. A hangdog that does not know this table leaves it alone.
SPOOLED = sa.Table(
    "spooled",
    TABLES,
    sa.Column("machine", sa.String, primary_key=True),
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("incident", sa.ForeignKey("incidents.id"), nullable=False, index=True),
    sa.Column("job", sa.String, nullable=False, index=True),
    sa.Column("standstill", sa.String, nullable=False),
    sa.Column("began", sa.Float, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("told", sa.JSON, nullable=False),
)


class Database:
    """An open store file; raises WrongUse, saying what to change, when it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._lock = _locked(path)
        self.engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
        sa.event.listen(self.engine, "connect", _prepare)
        try:
            with self.engine.connect() as connection:
                _check_version(connection, path)
            with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sa.text("PRAGMA journal_mode = WAL"))  # people read while the server writes
            with self.engine.begin() as connection:
                TABLES.create_all(connection)
                connection.execute(sa.text(f"PRAGMA user_version = {VERSION}"))
        except sa.exc.DBAPIError as error:
            self.close()
            raise WrongUse(f"cannot open the store {path}: {error.orig}", ADVICE) from error
        except WrongUse:
            self.close()
            raise

    def close(self) -> None:
        self.engine.dispose()
        self._lock.close()


def _locked(path: Path) -> IO[bytes]:
    """Owns the store: two servers upon one file would each take the other's running incidents for abandoned ones."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(path.name + ".lock").open("wb")
    except OSError as error:
        raise WrongUse(f"cannot open the store {path}: {error.strerror}", ADVICE) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise WrongUse(f"the store {path} is in use by another server", "give each server its own --store") from error
    except OSError as error:
        lock.close()
        raise WrongUse(f"cannot lock the store {path}: {error.strerror}", ADVICE) from error
    return lock


def _prepare(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    cursor.execute("PRAGMA synchronous = FULL")  # a state that somebody was told has reached the disk
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _check_version(connection: sa.Connection, path: Path) -> None:
    version = connection.execute(sa.text("PRAGMA user_version")).scalar_one()
    if version > VERSION:
        newer = f"the store {path} was written by a newer hangdog: its tables are version {version}, here {VERSION}"
        raise WrongUse(newer, "update this hangdog, or give it another --store")
