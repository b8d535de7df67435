"""The tables on their way: from nothing, from a file of an older hangdog, by two servers at once, and never down."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from hangdog_models.errors import WrongUse
from hangdog_server.database import Database
from hangdog_server.spooled import Spooled
from hangdog_server.sqlite import VERSION
from hangdog_server.store import WITHIN_S, RawCapture, State, Store
from hangdog_server.tables import TABLES

#: The tables as hangdog 0.1 made them before there were migrations, with one incident of each kind.
OLD = """
CREATE TABLE incidents (id VARCHAR NOT NULL, job VARCHAR NOT NULL, state VARCHAR NOT NULL, began FLOAT NOT NULL,
    changed FLOAT NOT NULL, why VARCHAR NOT NULL, note VARCHAR NOT NULL, asked JSON NOT NULL, kind VARCHAR NOT NULL,
    confidence FLOAT NOT NULL, evict JSON NOT NULL, verdict TEXT NOT NULL, PRIMARY KEY (id));
CREATE INDEX ix_incidents_began ON incidents (began);
CREATE INDEX ix_incidents_job ON incidents (job);
CREATE INDEX ix_incidents_state ON incidents (state);
CREATE TABLE captures (incident VARCHAR NOT NULL, machine VARCHAR NOT NULL, round INTEGER NOT NULL,
    packed BLOB NOT NULL, PRIMARY KEY (incident, machine, round), FOREIGN KEY(incident) REFERENCES incidents (id));
INSERT INTO incidents VALUES ('0a', 'llama', 'judged', 1.5, 9.0, 'page', '', '{"rounds": 2}', 'machine', 0.97,
    '["a"]', '{"schema": "hangdog.verdict/1"}');
INSERT INTO incidents VALUES ('0b', 'qwen', 'recorded', 2.5, 2.5, 'recorded', '', '{}', '', 0.0, '[]', '');
INSERT INTO captures VALUES ('0a', 'a', 0, X'00FF'), ('0b', 'b', 0, X'01');
"""
SPOOLED = """
CREATE TABLE spooled (machine VARCHAR NOT NULL, id VARCHAR NOT NULL, incident VARCHAR NOT NULL, job VARCHAR NOT NULL,
    standstill VARCHAR NOT NULL, began FLOAT NOT NULL, round INTEGER NOT NULL, told JSON NOT NULL,
    PRIMARY KEY (machine, id), FOREIGN KEY(incident) REFERENCES incidents (id));
CREATE INDEX ix_spooled_incident ON spooled (incident);
CREATE INDEX ix_spooled_job ON spooled (job);
INSERT INTO spooled VALUES ('b', '1', '0b', 'qwen', 's', 2.5, 0, '{"local": {"job": "qwen", "ranks": [0],
    "world_size": 1, "topology": ""}, "last": true, "more": false, "rounds": 1, "interval_s": 2.0, "why": "", "refused": 0}');
"""


def old(path: Path, script: str, version: int = 1) -> Path:
    """A file as an older hangdog left it, in the journal mode it used."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(script)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    return path


@pytest.mark.parametrize("script", [OLD + SPOOLED, OLD], ids=["all", "before spooled"])
async def test_a_file_of_the_first_hangdog_is_taken_over_with_all_it_holds(memory: Path, script: str) -> None:
    store = Store(old(memory / "s.db", script))
    judged = await store.find("0a")
    assert (judged.state, judged.began, judged.evict, judged.why) == (State.JUDGED, 1.5, ("a",), "page")
    assert await store.recall("0a") == ({"rounds": 2}, (RawCapture("a", 0, b"\0\xff"),))
    kept = await Spooled(store).of("0b")
    assert [(one.machine, one.packed) for one in kept] == ([("b", b"\1")] if script != OLD else [])
    await store.keep("0a", [RawCapture("a", 1, b"new")])
    store.close()
    with sqlite3.connect(memory / "s.db") as file:
        assert file.execute("PRAGMA user_version").fetchone() == (VERSION,), "the first hangdog refuses it by name"
        assert file.execute("PRAGMA auto_vacuum").fetchone() == (2,), "it can shrink"
        assert not file.execute("PRAGMA foreign_key_check").fetchall()
    file.close()
    store = Store(memory / "s.db")
    assert len((await store.recall("0a"))[1]) == 2
    store.close()


def test_what_the_steps_leave_is_what_the_code_believes(where: Path | str) -> None:
    compare(where)


def test_an_old_file_ends_in_the_same_tables(memory: Path) -> None:
    compare(old(memory / "s.db", OLD + SPOOLED))


def compare(where: Path | str) -> None:
    database = Database(where, WITHIN_S)
    with database.begin() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": False})
        assert compare_metadata(context, TABLES) == []
    database.close()


def test_a_database_of_a_newer_hangdog_is_refused_and_left_alone(where: Path | str) -> None:
    database = Database(where, WITHIN_S)
    with database.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(sa.text("DROP TABLE spooled"))
    database.close()
    with pytest.raises(
        WrongUse, match=r"written by a newer hangdog: its tables are version 9999, here \d{4}"
    ) as caught:
        Database(where, WITHIN_S)
    assert "update" in caught.value.hint and "s3cret" not in str(caught.value)
    with pytest.raises(WrongUse, match="newer"):  # not damaged, nothing is mended either
        Database(where, WITHIN_S)


def test_servers_that_start_at_once_migrate_once(where: Path | str) -> None:
    """SQLite's lock file lets one in; PostgreSQL's advisory lock lets them migrate in turn."""
    ready = threading.Barrier(4)

    def open_one() -> str:
        ready.wait()
        try:
            Database(where, WITHIN_S).close()
        except WrongUse as error:
            assert "in use by another server" in str(error)
        return ""

    with ThreadPoolExecutor(4) as threads:
        assert [one.result() for one in [threads.submit(open_one) for _ in range(4)]] == [""] * 4
    compare(where)


def test_a_step_that_fails_in_the_middle_leaves_nothing_behind(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the power goes: the next start begins where this one did."""
    from hangdog_server import migrating

    def broken(connection: sa.Connection, name: str) -> None:
        migrate(connection, name)
        raise KeyboardInterrupt

    migrate = migrating.migrate
    monkeypatch.setattr("hangdog_server.database.migrate", broken)
    with pytest.raises(KeyboardInterrupt):
        Database(where, WITHIN_S)
    monkeypatch.undo()
    if isinstance(where, Path):
        with sqlite3.connect(where) as file:
            assert file.execute("SELECT name FROM sqlite_master").fetchall() == []
        file.close()
    compare(where)
