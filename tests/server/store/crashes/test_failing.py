"""What fails under the store, and comes back: said clearly, taken back whole, and never a reason to stop the server."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from hangdog_models.errors import HangdogError, WrongUse
from hangdog_models.incident import Incident, IncidentState
from hangdog_proto.client.incidents import Client
from hangdog_server.store.captures import RawCapture
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed, advice
from support.real import postgres
from support.real.postgres import Postgres
from support.real.small_disk import small_disk
from support.refused import refused
from support.servers.cast import PATIENT, cluster, stage, trainer
from support.worded import names

FIRST = Incident("0a", "llama", 1.0)


@pytest.fixture
def syncing() -> Iterator[Postgres]:
    """A PostgreSQL that the test may kill: what it acknowledged must outlive its end."""
    yield from lent(fsync=True)


@pytest.fixture
def own() -> Iterator[Postgres]:
    """One that the test may stop; it need not wait for the disk."""
    yield from lent(fsync=False)


def lent(fsync: bool) -> Iterator[Postgres]:
    with postgres.started(fsync) as running:
        if running is None:
            pytest.skip("PostgreSQL is not installed: no initdb and pg_ctl on PATH or in /usr/lib/postgresql/*/bin")
        yield running


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    with small_disk(tmp_path / "small", 2048) as folder:
        yield folder


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


async def failing(store: Store, name: str = "0b") -> StoreFailed:
    """How a step fails now."""
    with pytest.raises(StoreFailed) as caught:
        await store.begin(replace(FIRST, id=name), {})
    return caught.value


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_the_database_of_the_tests_is_started_by_no_child_in_which_fork_handlers_run() -> None:
    """Those of gRPC crash in it, now and then: the database did not come back because it was never started."""
    program = (
        "import ctypes, os, subprocess\nfrom support.real import postgres\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.__register_atfork(None, None, libc.abort, None)\n"  # of glibc: what pthread_atfork calls
        "print(subprocess.run([*postgres.as_other(os.geteuid(), os.getegid()), 'true']).returncode)\n"
        "print(subprocess.run(['true'], preexec_fn=lambda: None).returncode)\n"  # the handler is there
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(postgres.__file__).parents[2])}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert ran.stdout.split() == ["0", str(-signal.SIGABRT)]


@pytest.mark.slow
@pytest.mark.parallel
async def test_a_database_killed_and_back_has_all_that_was_acknowledged(
    syncing: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangdog_server.store.database.BACK_S", 60.0)  # a busy machine starts one slowly
    store = Store(syncing.database())
    await store.begin(FIRST, {})
    for number in range(20):
        await store.keep("0a", [RawCapture("m", number, b"x" * 5000)])
    syncing.kill()
    with ThreadPoolExecutor(1) as other:
        waiting = asyncio.create_task(store.move("0a", IncidentState.CAPTURING, 2.0))  # asked while it is away
        await asyncio.sleep(0)
        starting = asyncio.get_running_loop().run_in_executor(other, syncing.start)
        await asyncio.gather(waiting, starting)  # a database that is back within seconds costs nobody a step
    _, kept = await store.recall("0a")
    assert len(kept) == 20 and (await store.find("0a")).state is IncidentState.CAPTURING
    store.close()


async def test_a_database_that_stays_away_is_said_and_the_server_goes_on_when_it_is_back(
    own: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangdog_server.store.database.BACK_S", 0.2)
    url = own.database()
    async with stage(url) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot())
        await a.answer(await a.order(), trainer(0))
        assert (await asking)[-1].verdict is not None
        own.stop()
        error = await failing(on.store)
        assert error.code == "store-unavailable" and "by itself" in error.hint and "s3cret" not in str(error)
        assert [line.name for line in await on.machines()] == ["a"], "the server itself is well"
        monkeypatch.setattr("hangdog_server.store.database.BACK_S", 60.0)  # a busy machine answers slowly
        own.start()
        asking = asyncio.create_task(on.snapshot())
        await a.answer(await a.order(), trainer(0))
        assert (await asking)[-1].text == "undetermined"
        assert [line.state for line in await on.store.latest("", 9)] == [IncidentState.JUDGED] * 2


@pytest.mark.slow
@pytest.mark.parallel
async def test_a_database_that_hangs_holds_up_nobody_and_what_was_given_up_is_not_done(own: Postgres) -> None:
    url = own.database()
    store = Store(url, within_s=1.0)
    await store.begin(FIRST, {})
    hung = own.processes()
    for pid in hung:
        os.kill(pid, signal.SIGSTOP)
    try:
        steps = asyncio.gather(*(failing(store, f"1{number}") for number in range(6)))  # more than it has threads
        turns = 0
        while not steps.done():
            turns += 1
            await asyncio.sleep(0.01)
        assert turns > 20, "the event loop went on meanwhile"
        assert all(error.code == "store-unavailable" and names(str(error), "1 s") for error in await steps)
    finally:
        for pid in hung:
            os.kill(pid, signal.SIGCONT)
    async with asyncio.timeout(60):
        while True:
            try:
                await store.begin(replace(FIRST, id="2"), {})
                break
            except StoreFailed:
                pass
    assert [line.id for line in await store.latest("", 20)] == ["0a", "2"]
    store.close()


async def test_a_full_disk_takes_nothing_back_that_was_acknowledged(small: Path) -> None:
    store = Store(small / "s.db")
    await store.begin(FIRST, {})
    kept = 0
    with refused("store-unavailable", StoreFailed, "disk is full") as caught:
        for number in range(100):
            await store.keep("0a", [RawCapture("m", number, os.urandom(100_000))])
            kept += 1
    assert 3 < kept < 30 and "free space" in caught.value.hint
    assert len((await store.recall("0a"))[1]) == kept
    remount(small, "size=8m")
    await store.keep("0a", [RawCapture("m", 99, os.urandom(100_000))])
    store.close()
    store = Store(small / "s.db")
    assert len((await store.recall("0a"))[1]) == kept + 1
    store.close()


def test_a_disk_that_becomes_read_only_is_said_and_taken_up_again(small: Path) -> None:
    Store(small / "s.db").close()
    remount(small, "ro")
    with pytest.raises(WrongUse, match="Read-only file system") as caught:
        Store(small / "s.db")
    assert caught.value.code == "cannot-open-store"
    remount(small, "rw")
    Store(small / "s.db").close()


async def test_a_locked_file_is_said_and_the_next_step_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdog_server.store.sqlite.BUSY_MS", 50)
    store = Store(tmp_path / "s.db")
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        error = await failing(store)
        assert error.code == "store-unavailable" and "locked" in str(error) and "another program" in error.hint
        assert await store.latest("", 9) == (), "people read on"
        other.execute("ROLLBACK")
    await store.begin(FIRST, {})
    store.close()


async def test_a_locked_table_of_postgresql_is_given_up_by_the_database_itself(server: Postgres) -> None:
    url = server.database()
    store = Store(url, within_s=0.5)
    name = store.name.rpartition("/")[2]
    with server.connection(name) as other:
        other.execute("BEGIN")
        other.execute("LOCK TABLE incidents")
        assert (await failing(store)).code == "store-unavailable"
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hangdog' AND wait_event_type = 'Lock'"
        )
        async with asyncio.timeout(60):
            while other.execute(waiting).fetchall() != [(0,)]:
                await asyncio.sleep(0.05)  # no connection is left waiting behind the step that was given up
        other.execute("ROLLBACK")
    await store.begin(FIRST, {})
    store.close()


async def test_a_step_that_was_cancelled_is_not_done_later(where: Path | str) -> None:
    store = Store(where)
    begun, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def step(connection: sa.Connection) -> None:
        connection.execute(sa.text("UPDATE incidents SET note = 'late'"))
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()

    await store.begin(FIRST, {})
    task = asyncio.create_task(store.do(step))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    go.set()
    await asyncio.to_thread(store.close)
    store = Store(where)
    assert (await store.find("0a")).note == ""
    store.close()


async def test_a_server_tells_people_that_its_store_failed(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", settings=PATIENT) as on:
        with closing(sqlite3.connect(tmp_path / "s.db")) as other:
            other.execute("ALTER TABLE incidents RENAME TO gone")

        def ask() -> None:
            with Client(on.address) as client:
                client.incidents()

        with pytest.raises(HangdogError, match="no such table") as caught:
            await asyncio.to_thread(ask)
        assert caught.value.code == "store-unavailable" and caught.value.exit_code == 70


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (psycopg.errors.DiskFull(), "disk of the database is full"),
        (psycopg.errors.TooManyConnections(), "ran out of a resource"),
        (psycopg.errors.ReadOnlySqlTransaction(), "standby"),
        (psycopg.errors.InvalidPassword(), "refuses this user"),
        (psycopg.errors.InsufficientPrivilege(), "grant it"),
        (psycopg.errors.UndefinedTable(), "bug in hangdog"),
        (psycopg.errors.CannotConnectNow(), "goes on by itself"),
        (psycopg.errors.InvalidTextRepresentation(), "refused this"),
        (psycopg.OperationalError("connection refused"), "goes on by itself"),
        (sqlite3.OperationalError("by Python itself"), "bug in hangdog"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_every_failure_comes_with_what_to_do(error: Exception, words: str) -> None:
    assert words in advice(error)
