"""Gives new stores of tests the tables of the first one, which was migrated.

Hundreds of tests begin with a new store. Its eighteen migrations take 0.15 s of a core each time, a copy of what they
leave takes milliseconds. A test of the migrations themselves takes the fixture `migrated`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from hangdog_server.store import database
from hangdog_server.store.migrations.migrate import migrate

_NONE = "SELECT NOT EXISTS (SELECT * FROM sqlite_master)"


class _Copied:
    """`migrate` for the stores of tests: a file that holds nothing yet gets what the first such file got."""

    def __init__(self) -> None:
        self._statements: tuple[str, ...] = ()

    def __call__(self, connection: sa.Connection, name: str) -> None:
        file = connection.connection.driver_connection
        if connection.dialect.name != "sqlite" or file is None or not file.execute(_NONE).fetchone()[0]:
            migrate(connection, name)
        elif self._statements:
            for statement in self._statements:
                file.execute(statement)
        else:
            migrate(connection, name)
            # the transaction is the store's own
            self._statements = tuple(one for one in file.iterdump() if one not in ("BEGIN TRANSACTION;", "COMMIT;"))


@contextmanager
def copied() -> Iterator[None]:
    """Has new SQLite stores of this process copy the tables of the first one while the block lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "migrate", _Copied())
        yield


@contextmanager
def migrated() -> Iterator[None]:
    """Has every store be migrated while the block lasts, as in earnest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "migrate", migrate)
        yield
