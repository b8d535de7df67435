"""The store: what it remembers over a restart, and what it says when its file is not to be used."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from cast import verdict
from hangdog_models.errors import WrongUse
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind
from hangdog_server.database import VERSION
from hangdog_server.store import Incident, RawCapture, State, Store, StoreFailed

FIRST, SECOND = Incident("0a1b", "llama", 1.0, "page"), Incident("0a2c", "qwen", 2.0)
JUDGED = replace(
    verdict(Snapshot(Job("llama"), (Round(0, ()),)), Topology(8, {}, {"a": (Rank(0),)})),
    kind=Kind.MACHINE,
    evict=Eviction(("a",), 0.97),
)


async def test_incidents_outlive_the_server(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "s.db")
    await store.begin(FIRST, {"rounds": 2})
    await store.begin(SECOND, {})
    await store.keep(FIRST.id, [RawCapture("b", 0, b"two"), RawCapture("a", 0, b"one")])
    await store.judged(FIRST.id, JUDGED, 5.0)
    store.close()
    store = Store(tmp_path / "deep" / "s.db")
    newest, oldest = await store.latest("", 10)
    assert newest == replace(SECOND, changed=2.0)
    assert (oldest.state, oldest.changed, oldest.kind, oldest.evict) == (State.JUDGED, 5.0, "machine", ("a",))
    assert not oldest.verdict and (await store.find("0a1b")).verdict.startswith('{"schema": "hangdog.verdict/1"')
    assert await store.recall(FIRST.id) == ({"rounds": 2}, (RawCapture("a", 0, b"one"), RawCapture("b", 0, b"two")))
    assert [line.id for line in await store.latest("qwen", 10)] == ["0a2c"]
    assert [line.id for line in await store.latest("", 1)] == ["0a2c"]
    store.close()


async def test_only_the_unfinished_are_abandoned(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    for incident in (FIRST, SECOND):
        await store.begin(incident, {})
    await store.judged(FIRST.id, JUDGED, 3.0)
    assert await store.abandon(9.0, "the power went") == ("0a2c",)
    assert await store.abandon(10.0, "again") == ()
    newest, oldest = await store.latest("", 10)
    assert (newest.state, newest.note, newest.changed) == (State.FAILED, "the power went", 9.0)
    assert oldest.state is State.JUDGED
    store.close()


async def test_a_prefix_must_say_which(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    for name in ("0a1b", "0a2c", "0a2"):
        await store.begin(replace(FIRST, id=name), {})
    assert (await store.find("0a1")).id == "0a1b"
    assert (await store.find("0a2")).id == "0a2", "a whole name is no prefix"
    for wanted, words in (
        ("0a", "several incidents begin with '0a': "),
        ("ff", "no incident"),
        ("", "no incident"),
        ("%", "no incident"),
        ("_a1b", "no incident"),
    ):
        with pytest.raises(WrongUse, match=words):
            await store.find(wanted)
    store.close()


async def test_captures_are_kept_all_or_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    await store.begin(FIRST, {})
    with pytest.raises(StoreFailed, match="UNIQUE"):
        await store.keep(FIRST.id, [RawCapture("a", 0, b"1"), RawCapture("a", 0, b"2")])
    assert await store.recall(FIRST.id) == ({}, ())
    store.close()


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
        assert str(path) in str(caught.value) and "--store" in caught.value.hint


def test_a_read_only_store_is_refused_at_the_start(tmp_path: Path) -> None:
    """Root may write everywhere, so the file is made read-only for SQLite itself: its journal cannot be made."""
    path = tmp_path / "s.db"
    Store(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA journal_mode = DELETE")
    (tmp_path / "s.db-wal").mkdir()
    with pytest.raises(WrongUse, match=r"cannot open the store .*s\.db: "):
        Store(path)


def test_two_servers_do_not_share_a_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    with pytest.raises(WrongUse, match="in use by another server"):
        Store(tmp_path / "s.db")
    store.close()
    Store(tmp_path / "s.db").close()


def test_a_store_of_a_newer_hangdog_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "s.db") as newer:
        newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = (tmp_path / "s.db").read_bytes()
    with pytest.raises(WrongUse, match="written by a newer hangdog"):
        Store(tmp_path / "s.db")
    assert (tmp_path / "s.db").read_bytes() == before
