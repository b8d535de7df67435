"""The engines that the tests of the store run on: SQLite always, PostgreSQL where its binaries are."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cases import new_stores
from support.real import postgres
from support.real.postgres import Postgres


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    """A PostgreSQL for all tests of the session."""
    with postgres.started() as running:
        if running is None:
            pytest.skip("PostgreSQL is not installed: no initdb and pg_ctl on PATH or in /usr/lib/postgresql/*/bin")
        yield running


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a test that ends nothing hard need not wait for the disk's syncs."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="hangdog-") as folder:
        yield Path(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, memory: Path) -> Path | str:
    """A new store of each kind, as `--store` names it."""
    if request.param == "sqlite":
        return memory / "s.db"
    running: Postgres = request.getfixturevalue("server")
    return running.store()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, memory: Path) -> Iterator[Path | str]:
    """A place without tables for a store of each kind; whatever is opened there is migrated."""
    with new_stores.migrated():
        if request.param == "sqlite":
            yield memory / "s.db"
        else:
            running: Postgres = request.getfixturevalue("server")
            yield running.database()


@pytest.fixture
def here(memory: Path) -> Path:
    """An empty store for what no engine has a part in."""
    return memory / "s.db"
