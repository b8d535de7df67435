"""The engines that the tests of the store run on: SQLite always, PostgreSQL where its binaries are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import postgres
from postgres import Postgres


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    """A PostgreSQL for all tests of the session."""
    with postgres.started() as running:
        if running is None:
            pytest.skip("PostgreSQL is not installed: no initdb and pg_ctl on PATH or in /usr/lib/postgresql/*/bin")
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """An empty store of each kind, as `--store` names it."""
    if request.param == "sqlite":
        return tmp_path / "s.db"
    running: Postgres = request.getfixturevalue("server")
    return running.database()
