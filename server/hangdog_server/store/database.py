"""The database behind the store: opens the engine that a setting names, brings its tables up to date, runs transactions."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from hangdog_models.errors import WrongUse
from hangdog_server.store.migrations.migrate import migrate
from hangdog_server.store.postgres import SCHEMES, WRITTEN, Postgres
from hangdog_server.store.sqlite import Sqlite
from hangdog_server.store.store_errors import advice, failed, words_of

#: A database that was started anew, or failed over, takes connections again within so long: a step waits for it.
BACK_S = 5.0
#: Between two attempts to connect.
AGAIN_S = 0.2


class Database:
    """An open store, called `name`, for `threads` transactions at once; raises HangdogError, with advice, if it cannot be opened."""

    def __init__(self, where: Path | str, within_s: float) -> None:
        """`where` is the path of a SQLite file or the URL of a PostgreSQL database; no statement outlasts `within_s`."""
        self._behind = _opened(where, within_s)
        self.name, self.threads, self.shared = self._behind.name, self._behind.threads, self._behind.shared
        self._patience_s = BACK_S if isinstance(self._behind, Postgres) else 0.0
        try:
            with self._behind.engine.begin() as connection, self._behind.migration(connection):
                migrate(connection, self.name)
        except sa.exc.DBAPIError as error:
            self.close()
            words = words_of(error.orig, self._behind.secrets)
            raise WrongUse(
                f"cannot open the store {self.name}: {words}", advice(error.orig), code="cannot-open-store"
            ) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of it."""
        self._behind.close()

    @contextmanager
    def begin(self, reads: bool = False) -> Iterator[sa.Connection]:
        """A transaction, which is on the disk at the end of the block; `reads`: it changes nothing. Raises StoreFailed."""
        try:
            with self._connected().execution_options(reads=reads) as connection, connection.begin():
                yield connection
        except sa.exc.DBAPIError as error:
            raise failed(error.orig, self._behind.secrets) from error

    def one_at_a_time(self, connection: sa.Connection, what: str) -> None:
        """Transactions that name the same `what`, of whichever server, take turns from here to their end."""
        self._behind.one_at_a_time(connection, what)

    def shrink(self, pages: int) -> bool:
        """Gives up to so many free pages back to the disk; whether there are more. Raises StoreFailed."""
        return self._behind.shrink(pages)

    def _connected(self) -> sa.Connection:
        """A connection that works, waiting a moment for a database that comes back: nothing was said on it yet."""
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return self._behind.engine.connect()
            except sa.exc.OperationalError:
                if time.monotonic() >= until:
                    raise
            time.sleep(AGAIN_S)


def _opened(where: Path | str, within_s: float) -> Sqlite | Postgres:
    if isinstance(where, str) and where.startswith(SCHEMES):
        return Postgres(where, within_s)
    if isinstance(where, str) and "://" in where:
        kind = where.partition("://")[0][:20]
        raise WrongUse(
            f"--store does not accept a {kind} URL", f"give --store a file, or {WRITTEN}", code="wrong-store-address"
        )
    return Sqlite(Path(where))
