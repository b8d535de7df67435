"""What a failing database means for whoever uses the store: in its own words, without secrets, and with what to do."""

import sqlite3
from collections.abc import Iterable

from hangdog_models.errors import HangdogError

#: Characters of a database's own words; PostgreSQL adds hints and the statement's values behind the first lines.
_WORDS = 300
_BUG = "this is a bug in hangdog; the server's log says more"
_AWAY = "the database does not answer: the server goes on by itself once it is back"
_ELSE = "the database refused this: its log says more"
#: Advice by SQLite's primary result code.
_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk that holds the store is full: free space there, or have less kept (keep_bytes)",
    sqlite3.SQLITE_READONLY: "the store may not be written: check its owner, and whether its disk became read-only",
    sqlite3.SQLITE_CANTOPEN: "the store is gone or may not be opened: check its directory and that the disk is there",
    sqlite3.SQLITE_IOERR: "the disk that holds the store failed: the kernel log says more",
    sqlite3.SQLITE_BUSY: "another program holds the store: end it (a backup, a sqlite3 shell)",
    sqlite3.SQLITE_LOCKED: "another program holds the store: end it (a backup, a sqlite3 shell)",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore a backup, or start with another --store",
    sqlite3.SQLITE_NOTADB: "the file is no store: give another --store",
    sqlite3.SQLITE_CONSTRAINT: _BUG,
}
#: Advice by the first letters of PostgreSQL's SQLSTATE; the longest that fits counts.
_POSTGRES = {
    "53100": "the disk of the database is full: free space there, or have less kept (keep_bytes)",
    "53": "the database ran out of a resource: its log says more",
    "25006": "the database takes no writing: is it a standby? give --store the primary",
    "28": "the database refuses this user: check the name and password that --store or PGPASSFILE gives",
    "3D": "there is no such database: create it, or name another in --store",
    "42501": "this user may not do that: grant it the database, or its schema",
    "57014": "the database took too long: its log says more",
    "55P03": "another program holds the tables: end it (a migration, a backup, a psql shell)",
    "40": "the database gave this up for another transaction: it is tried again with the next step",
    "23": _BUG,
    "42": _BUG,
    "57P": _AWAY,
    "08": _AWAY,
}


class StoreFailed(HangdogError):
    """The disk or the database failed while the server ran; whatever was to be done is not done."""


def failed(orig: BaseException | None, secrets: Iterable[str] = ()) -> StoreFailed:
    """What an error of a database's driver means."""
    return StoreFailed(f"the store failed: {words_of(orig, secrets)}", advice(orig), code="store-unavailable")


def words_of(orig: BaseException | None, secrets: Iterable[str] = ()) -> str:
    """The database's own words in one line, secrets blotted out."""
    words = " ".join(str(orig).split())
    for secret in secrets:
        words = words.replace(secret, "***")
    return words[:_WORDS]


def advice(orig: BaseException | None) -> str:
    """What somebody can do about it."""
    if isinstance(orig, sqlite3.Error):
        code = getattr(orig, "sqlite_errorcode", None)  # none where Python itself refused
        return _SQLITE.get(code & 0xFF, "check the disk that holds the store") if code is not None else _BUG
    state = getattr(orig, "sqlstate", None) or ""
    for length in (5, 3, 2):
        if state[:length] in _POSTGRES:
            return _POSTGRES[state[:length]]
    return _ELSE if state else _AWAY  # without a state nobody answered who could give one
