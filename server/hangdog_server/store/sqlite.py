"""The store in one SQLite file: opened for one server alone, which a lock beside the file ensures."""

import contextlib
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa

from hangdog_models.errors import WrongUse
from hangdog_proto.private_files import make_file, make_folder, restrict_folder
from hangdog_server.store import json_columns
from hangdog_server.store.migrations.migrate import newer
from hangdog_server.store.store_errors import failed

#: What today's files hold in user_version. A hangdog older than the migrations knows 1 and refuses what is higher; one
#: with migrations goes by their revision, and refuses a file that is higher than this.
VERSION = 2
#: How long a statement waits for another program that has the file open (a backup, somebody's sqlite3 shell).
BUSY_MS = 5000
#: A file from before it could shrink is written anew when the server starts, up to this size: some seconds on any disk.
REWRITTEN_BYTES = 1 << 30
#: What somebody can do whose store does not open.
ADVICE = "give --store a file that this user may write, on a local disk with free space"
#: What of a folder is the server's: the store's own files, the audit log, people's tokens. Other names make it a shared one.
BESIDE = ("audit.jsonl*", "tokens.json*", "denied.json*", "server.sock*", "lost+found")
#: SQLite's auto_vacuum: free pages are given back when the server asks for it, a few at a time.
_INCREMENTAL = 2


class Sqlite:
    """An open file; `close` lets go of it. Raises WrongUse when it cannot be opened."""

    #: One writer at a time is all that SQLite knows, and one thread needs no waiting for another's lock.
    threads = 1
    secrets: tuple[str, ...] = ()
    shared = False

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._lock = _locked(path)
        url = sa.URL.create("sqlite", database=str(path))
        self.engine = sa.create_engine(url, json_serializer=json_columns.write, json_deserializer=json_columns.read)
        sa.event.listen(self.engine, "connect", _prepare)
        sa.event.listen(self.engine, "begin", _begin)
        try:
            _make_ready(self.engine, path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of the file."""
        self.engine.dispose()
        self._lock.close()

    @contextmanager
    def migration(self, connection: sa.Connection) -> Iterator[None]:
        """Nobody else migrates: the file is locked. Hangdogs that know no migrations refuse it from then on."""
        yield
        connection.execute(sa.text(f"PRAGMA user_version = {VERSION}"))

    def one_at_a_time(self, connection: sa.Connection, what: str) -> None:
        """Nothing to do: a transaction that writes is alone from its begin."""

    def shrink(self, pages: int) -> bool:
        """Gives up to so many free pages back to the disk; whether there are more. Raises StoreFailed."""
        try:
            with _raw(self.engine) as connection:
                connection.executescript(f"PRAGMA incremental_vacuum({pages:d})")  # `execute` would free one page only
                return _number(connection, "auto_vacuum") == _INCREMENTAL and _number(connection, "freelist_count") > 0
        except sqlite3.Error as error:
            raise failed(error) from error
        except sa.exc.DBAPIError as error:
            raise failed(error.orig) from error


def _locked(path: Path) -> IO[bytes]:
    """Owns the store: two servers upon one file would each take the other's running incidents for abandoned ones.

    From here on the file is its owner's alone. What SQLite puts beside it has the same mode.
    """
    beside = path.with_name(path.name + ".lock")
    try:
        make_folder(path.parent)
        make_file(beside)
        lock = beside.open("wb")
    except OSError as error:
        raise WrongUse(f"cannot open the store {path}: {error.strerror}", ADVICE, code="cannot-open-store") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise WrongUse(
            f"the store {path} is in use by another server", "give each server its own --store", code="store-in-use"
        ) from error
    except OSError as error:
        lock.close()
        raise WrongUse(f"cannot lock the store {path}: {error.strerror}", ADVICE, code="cannot-open-store") from error
    with contextlib.suppress(OSError):  # whoever opens the file says it better
        make_file(path)
    restrict_folder(path.parent, (f"{path.name}*", *BESIDE))
    return lock


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # `_begin` says when: Python's own way would leave a migration half done
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    cursor.execute("PRAGMA synchronous = FULL")  # a state that somebody was told has reached the disk
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """Who will write says so at once: else the lock is asked for in the middle, where waiting for it is no use."""
    reads = connection.get_execution_options().get("reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _make_ready(engine: sa.Engine, path: Path) -> None:
    try:
        with _raw(engine) as connection:
            version = _number(connection, "user_version")
            if version > VERSION:
                raise newer(str(path), str(version), str(VERSION))
            if _number(connection, "auto_vacuum") != _INCREMENTAL and _may_be_rewritten(connection, path):
                connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
                if _number(connection, "page_count"):
                    connection.execute("VACUUM")  # an older file can shrink only after this
            connection.execute("PRAGMA journal_mode = WAL").fetchall()  # people read while the server writes
    except sqlite3.Error as error:
        raise WrongUse(f"cannot open the store {path}: {error}", ADVICE, code="cannot-open-store") from error
    except sa.exc.DBAPIError as error:
        raise WrongUse(f"cannot open the store {path}: {error.orig}", ADVICE, code="cannot-open-store") from error


def _may_be_rewritten(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is new, or small enough, and the disk has room for what writing it anew takes."""
    size = _number(connection, "page_count") * _number(connection, "page_size")
    return size <= REWRITTEN_BYTES and shutil.disk_usage(path.parent).free > 3 * size and os.access(path, os.W_OK)


@contextmanager
def _raw(engine: sa.Engine) -> Iterator[sqlite3.Connection]:
    """A connection outside of any transaction."""
    taken = engine.raw_connection()
    try:
        connection: Any = taken.driver_connection
        yield connection
    finally:
        taken.close()


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
