"""A server is killed with -9 anywhere between a verdict and its end: every machine is marked once, the job starts again once."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangdog_server.store import actions
from hangdog_server.store.actions import ActionState
from support.real.postgres import Postgres
from support.servers import crashing_acts
from support.servers.cast_acting import world

#: Stories of two deaths on each engine, in `make test-slow` and in `make soak`.
SOME, ALL = 1, 300

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(3600)]


@contextmanager
def nursery() -> Iterator["subprocess.Popen[str]"]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, crashing_acts.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def lived(
    servers: "subprocess.Popen[str]", where: Path | str, folder: Path, last: int, release: str, acts: bool
) -> int:
    """Has a server live until its last point; how it ended."""
    assert servers.stdin is not None and servers.stdout is not None
    asked = {"where": str(where), "folder": str(folder), "last": last, "release": release, "acts": acts}
    servers.stdin.write(json.dumps(asked) + "\n")
    servers.stdin.flush()
    return int(servers.stdout.readline())


async def held(where: Path | str, folder: Path, release: str) -> None:
    """What must be true after any story."""
    excluded = (folder / "excluded").read_text().splitlines()
    names = [line.partition("#")[0].strip() for line in excluded]
    assert names == [machine for machine in ("a", "b") if machine != release], excluded
    assert (folder / "starts").read_text() == "without a b\n", "the job started again once, without either"
    async with world(where, folder) as on:
        rows = await on.store.ask(actions.of, "0a")
        assert {row.machine: row.state for row in rows} == {
            "a": ActionState.RELEASED if release else ActionState.DONE,
            "b": ActionState.DONE,
        }


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request: pytest.FixtureRequest, memory: Path) -> Iterator[Path | str]:
    """Empty stores of one kind, one after the other."""
    if request.param == "sqlite":
        return (memory / f"{number}.db" for number in itertools.count())
    running: Postgres = request.getfixturevalue("server")
    return (running.database() for _ in itertools.count())


async def story(
    servers: "subprocess.Popen[str]", where: Path | str, folder: Path, deaths: tuple[int, ...], acts: bool
) -> int:
    """Servers that end at these points one after the other, and one that ends nothing; how many died."""
    async with world(where, folder) as on:
        await on.judged("0a", "a", "b")
    release = "" if deaths and deaths[0] % 2 and not acts else "a"
    ended = [lived(servers, where, folder, last, release, acts) for last in (*deaths, 0)]
    assert set(ended[:-1]) <= {0, -signal.SIGKILL} and ended[-1] == 0
    try:
        await held(where, folder, release)
    except (AssertionError, OSError) as error:
        error.add_note(f"they ended at points {deaths} of {'acts' if acts else 'all'}")
        raise
    return sum(how != 0 for how in ended)


async def test_a_server_that_is_killed_between_intent_and_act_and_read_back(
    places: Iterator[Path | str], tmp_path: Path
) -> None:
    with nursery() as servers:
        assert await story(servers, next(places), tmp_path / "0", (), acts=True) == 0
        points = int((tmp_path / "0" / "passed").read_text())
        assert points >= 10, "both sides of two marks, of a move and of a release, and what is asked before a move"
        for last in range(1, points + 1):
            assert await story(servers, next(places), tmp_path / str(last), (last,), acts=True) == 1


@pytest.mark.parametrize("count", [SOME, pytest.param(ALL, marks=pytest.mark.soak)])
async def test_a_server_that_is_killed_anywhere(places: Iterator[Path | str], tmp_path: Path, count: int) -> None:
    dice = random.Random(count)
    with nursery() as servers:
        await story(servers, next(places), tmp_path / "0", (), acts=False)
        points = int((tmp_path / "0" / "passed").read_text())
        for number in range(1, count + 1):
            deaths = dice.randrange(1, points), dice.randrange(1, points)
            await story(servers, next(places), tmp_path / str(number), deaths, acts=False)
