"""The store in a PostgreSQL database: a few connections, each with bounds, and no secret in any word about it."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import sqlalchemy as sa

from hangdog_models.errors import ServerUnreachable, WrongUse
from hangdog_server.store import json_columns
from hangdog_server.store.store_errors import advice, words_of

#: What a store's setting begins with that is no file.
SCHEMES = ("postgresql://", "postgres://", "postgresql+psycopg://")
#: What somebody can do who gave a URL that is none.
WRITTEN = "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with anything but letters and digits as %XX"
#: Seconds one attempt to connect may take; a database in the same network answers in a hundredth of one.
CONNECT_S = 3
#: A connection that nothing is heard on is given up after about so long: below the store's own deadline (`store_s`).
SILENT_S = 10
#: A transaction that lies idle for so long holds its locks for a server that is stopped or gone.
IDLE_S = 60
#: How long a server waits at its start for another one that migrates the same database.
MIGRATING_S = 120
#: Our part of the numbers that advisory locks have in common: "HANG".
_OURS = 0x48414E47


class Postgres:
    """An open database; `close` lets go of it. Raises WrongUse or ServerUnreachable when it cannot be opened."""

    #: Incidents that run at once write a few times a minute each; more connections than this would only wait in turn.
    threads = 4
    shared = True

    def __init__(self, url: str, within_s: float) -> None:
        """No statement runs for longer than `within_s` seconds."""
        parsed = _parsed(url)
        self.name, self.secrets = _name(parsed), _secrets(parsed)
        bounds = {
            "statement_timeout": within_s,
            "lock_timeout": within_s,
            "idle_in_transaction_session_timeout": IDLE_S,
        }
        options = [str(parsed.query.get("options", "")), *(f"-c {key}={int(s * 1000)}" for key, s in bounds.items())]
        self.engine = sa.create_engine(
            parsed,
            pool_size=self.threads,
            max_overflow=0,
            pool_pre_ping=True,  # a database that was started anew closed them all: found out before they are used
            hide_parameters=True,
            json_serializer=json_columns.write,
            json_deserializer=json_columns.read,
            connect_args={
                "connect_timeout": CONNECT_S,
                "application_name": "hangdog",
                "options": " ".join(options).strip(),
                "keepalives_idle": SILENT_S // 2,
                "keepalives_interval": 1,
                "keepalives_count": SILENT_S // 2,
                "tcp_user_timeout": SILENT_S * 1000,
                "prepare_threshold": None,  # a pooler such as PgBouncer hands connections around between statements
            },
        )
        try:
            _check(self.engine, self.name)
        except sa.exc.DBAPIError as error:
            self.close()
            what = f"cannot open the store {self.name}: {words_of(error.orig, self.secrets)}"
            kind = ServerUnreachable if isinstance(error, sa.exc.OperationalError) else WrongUse
            raise kind(what, advice(error.orig)) from None  # its cause may show what it was opened with
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of the database."""
        self.engine.dispose()

    @contextmanager
    def migration(self, connection: sa.Connection) -> Iterator[None]:
        """Servers that start at once migrate one after the other, in the transaction given."""
        connection.execute(sa.text("SET LOCAL statement_timeout = 0"))  # a step over a large table takes its time
        connection.execute(sa.text(f"SET LOCAL lock_timeout = '{MIGRATING_S}s'"))
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:ours)"), {"ours": _OURS})
        yield

    def one_at_a_time(self, connection: sa.Connection, what: str) -> None:
        """Transactions that name the same `what` take turns from here to their end."""
        number = zlib.crc32(what.encode()) - (1 << 31)
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:ours, :what)"), {"ours": _OURS, "what": number})

    def shrink(self, pages: int) -> bool:
        """Nothing to do: autovacuum makes room again where rows were."""
        return False


def _parsed(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise WrongUse(
            "the URL given as --store cannot be read", WRITTEN, code="wrong-store-address"
        ) from None  # its words would show the secret
    if not parsed.database:
        raise WrongUse(f"the store {_name(parsed)} names no database", WRITTEN, code="wrong-store-address")
    return parsed.set(drivername="postgresql+psycopg")


def _name(url: sa.URL) -> str:
    """What people call the database: nothing of its password, and none of its options, which may hold one."""
    asked = url.query.get("host", "")
    host = url.host or (asked if isinstance(asked, str) else ",".join(asked))
    user = f"{quote(url.username)}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{user}{quote(host)}{port}/{quote(url.database or '')}"


def _secrets(url: sa.URL) -> tuple[str, ...]:
    """All that must not be shown, the longest first."""
    given = [str(url.password or ""), *(str(url.query.get(key, "")) for key in ("password", "sslpassword"))]
    return tuple(
        sorted({form for text in given if text for form in (text, quote(text, safe=""))}, key=len, reverse=True)
    )


def _check(engine: sa.Engine, name: str) -> None:
    with engine.connect() as connection:
        if connection.execute(sa.text("SELECT pg_is_in_recovery()")).scalar():
            raise WrongUse(
                f"the store {name} is a read-only standby", "give --store the primary", code="unsuitable-database"
            )
        encoding = connection.execute(sa.text("SHOW server_encoding")).scalar()
        if encoding != "UTF8":
            hint = "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            raise WrongUse(
                f"the store {name} holds text as {encoding}, which cannot hold every name",
                hint,
                code="unsuitable-database",
            )
