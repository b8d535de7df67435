"""The tables on their way: from nothing, from a file of an older hangdog, by two servers at once, and never down."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from hangdog_models.errors import WrongUse
from hangdog_models.incident import IncidentState
from hangdog_models.machine_history import MentionKind
from hangdog_server.store import machine_history
from hangdog_server.store.captures import RawCapture
from hangdog_server.store.database import Database
from hangdog_server.store.offline_captures import Spooled
from hangdog_server.store.sqlite import VERSION
from hangdog_server.store.store import Store
from hangdog_server.store.tables import TABLES
from hangdog_server.store.transactions import WITHIN_S
from support.cases.old_store import BEFORE_0013, OLD, SPOOLED, old
from support.refused import refused


@pytest.mark.parametrize("script", [OLD + SPOOLED, OLD], ids=["all", "before spooled"])
async def test_a_file_of_the_first_hangdog_is_taken_over_with_all_it_holds(memory: Path, script: str) -> None:
    store = Store(old(memory / "s.db", script))
    judged = await store.find("0a")
    assert (judged.state, judged.began, judged.evict, judged.why) == (IncidentState.JUDGED, 1.5, ("a",), "page")
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


def test_what_the_steps_leave_is_what_the_code_believes(empty: Path | str) -> None:
    compare(empty)


def test_new_stores_of_tests_are_as_the_steps_leave_them(where: Path | str, tmp_path: Path) -> None:
    compare(tmp_path / "first.db")  # the others are copies of it
    compare(where)


def test_an_old_file_ends_in_the_same_tables(memory: Path) -> None:
    compare(old(memory / "s.db", OLD + SPOOLED))


def compare(where: Path | str) -> None:
    database = Database(where, WITHIN_S)
    with database.begin() as connection:
        engine = connection.dialect.name

        def here(one: Any, name: str | None, kind: str, *_: object) -> bool:
            """An index may be of one engine alone; what the database has, it is asked of all the same."""
            return kind != "index" or one.info.get("engine", engine) == engine

        opts = {"compare_type": True, "compare_server_default": False, "include_object": here}
        context = MigrationContext.configure(connection, opts=opts)
        assert compare_metadata(context, TABLES) == []
    database.close()


def test_a_database_of_a_newer_hangdog_is_refused_and_left_alone(empty: Path | str) -> None:
    database = Database(empty, WITHIN_S)
    with database.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(sa.text("DROP TABLE spooled"))
    database.close()
    with pytest.raises(WrongUse, match=r"9999.*\d{4}") as caught:
        Database(empty, WITHIN_S)
    assert caught.value.code == "store-is-newer" and "update" in caught.value.hint and "s3cret" not in str(caught.value)
    with refused("store-is-newer"):  # not damaged, nothing is mended either
        Database(empty, WITHIN_S)


def test_servers_that_start_at_once_migrate_once(empty: Path | str) -> None:
    """SQLite's lock file lets one in; PostgreSQL's advisory lock lets them migrate in turn."""
    ready = threading.Barrier(4)

    def open_one() -> str:
        ready.wait()
        try:
            Database(empty, WITHIN_S).close()
        except WrongUse as error:
            assert error.code == "store-in-use"
        return ""

    with ThreadPoolExecutor(4) as threads:
        assert [one.result() for one in [threads.submit(open_one) for _ in range(4)]] == [""] * 4
    compare(empty)


def test_a_step_that_fails_in_the_middle_leaves_nothing_behind(
    empty: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the power goes: the next start begins where this one did."""
    from hangdog_server.store.migrations import migrate as migrating

    def broken(connection: sa.Connection, name: str) -> None:
        migrate(connection, name)
        raise KeyboardInterrupt

    migrate = migrating.migrate
    monkeypatch.setattr("hangdog_server.store.database.migrate", broken)
    with pytest.raises(KeyboardInterrupt):
        Database(empty, WITHIN_S)
    monkeypatch.undo()
    if isinstance(empty, Path):
        with sqlite3.connect(empty) as file:
            assert file.execute("SELECT name FROM sqlite_master").fetchall() == []
        file.close()
    compare(empty)


async def test_what_is_kept_under_words_of_before_is_found_under_those_of_today(empty: Path | str) -> None:
    database = Database(empty, WITHIN_S)
    with database.begin() as connection:
        for statement in BEFORE_0013:
            connection.execute(sa.text(statement))
        row = "'a', '0a', 'llama', 5.0, 'convicted', 0.97, 1, 'machine'"
        columns = "machine, incident, job, at, standing, probability, among, kind"
        connection.execute(sa.text(f"INSERT INTO ledger ({columns}) VALUES ({row})"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0012'"))
    database.close()
    store = Store(empty)
    (found,) = await store.ask(machine_history.of, "a", 0.0, 9)
    assert (found.mention, found.probability, found.at) == (MentionKind.CONVICTED, 0.97, 5.0)
    store.close()
    compare(empty)
