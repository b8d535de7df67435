"""The SQLite file of a store: what is said when it is not to be used, and what becomes of one of an older hangdog."""

import sqlite3
from pathlib import Path

import pytest

from hangdog_models.errors import WrongUse
from hangdog_server.store.sqlite import VERSION
from hangdog_server.store.store import Store
from support.refused import refused


def test_a_file_that_cannot_be_a_store_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "photo.db").write_bytes(b"\x89PNG" * 1000)
    (tmp_path / "file").write_text("")
    for path, words in (
        (tmp_path / "folder", "unable to open database file"),
        (tmp_path / "photo.db", "file is not a database"),
        (tmp_path / "file" / "s.db", "Not a directory|File exists"),
        (Path("/proc/hangdog/s.db"), "No such file"),
    ):
        with pytest.raises(WrongUse, match=words) as caught:
            Store(path)
        assert caught.value.code == "cannot-open-store"
        assert str(path) in str(caught.value) and "--store" in caught.value.hint


def test_a_read_only_store_is_refused_at_the_start(tmp_path: Path) -> None:
    """Root may write everywhere, so the file is made read-only for SQLite itself: its journal cannot be made."""
    path = tmp_path / "s.db"
    Store(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA journal_mode = DELETE")
    (tmp_path / "s.db-wal").mkdir()
    with pytest.raises(WrongUse, match=r"s\.db: ") as caught:
        Store(path)
    assert caught.value.code == "cannot-open-store"


def test_two_servers_do_not_share_a_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    with refused("store-in-use"):
        Store(tmp_path / "s.db")
    store.close()
    Store(tmp_path / "s.db").close()


def test_a_store_of_a_newer_hangdog_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "s.db") as newer:
        newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = (tmp_path / "s.db").read_bytes()
    with refused("store-is-newer"):
        Store(tmp_path / "s.db")
    assert (tmp_path / "s.db").read_bytes() == before
