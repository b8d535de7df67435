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

import crashing_acts
from cast_acting import world
from hangdog_server import intents
from hangdog_server.intents import Act
from postgres import Postgres

#: Stories on each engine, of one or two deaths each, in `make test-slow` and in `make soak`.
SOME, ALL = 6, 300

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


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


def lived(servers: "subprocess.Popen[str]", where: Path | str, folder: Path, last: int, release: str) -> int:
    """Has a server live until its last point; how it ended."""
    assert servers.stdin is not None and servers.stdout is not None
    asked = {"where": str(where), "folder": str(folder), "last": last, "release": release}
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
        rows = await on.store.ask(intents.of, "0a")
        assert {row.machine: row.state for row in rows} == {"a": Act.RELEASED if release else Act.DONE, "b": Act.DONE}


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request: pytest.FixtureRequest, memory: Path) -> Iterator[Path | str]:
    """Empty stores of one kind, one after the other."""
    if request.param == "sqlite":
        return (memory / f"{number}.db" for number in itertools.count())
    running: Postgres = request.getfixturevalue("server")
    return (running.database() for _ in itertools.count())


@pytest.mark.parametrize("count", [SOME, pytest.param(ALL, marks=pytest.mark.soak)])
async def test_a_server_that_is_killed_between_intent_and_act_and_read_back(
    places: Iterator[Path | str], tmp_path: Path, count: int
) -> None:
    dice = random.Random(count)
    with nursery() as servers:
        points, died = 0, 0
        for number in range(count + 1):
            where, folder, release = next(places), tmp_path / str(number), "a" if number % 2 else ""
            async with world(where, folder) as on:
                await on.judged("0a", "a", "b")
            if not number:  # nobody dies in the first story, which tells how many points there are
                assert lived(servers, where, folder, 0, "a") == 0
                points = int((folder / "passed").read_text())
                await held(where, folder, "a")
                continue
            for last in (dice.randrange(1, points), dice.choice((0, dice.randrange(1, points))), 0):
                ended = lived(servers, where, folder, last, release)
                assert ended in (0, -signal.SIGKILL)
                died += ended != 0
            try:
                await held(where, folder, release)
            except (AssertionError, OSError) as error:
                error.add_note(f"story {number}: {last} of {points}")
                raise
        assert points >= 20 and died >= count // 2, "a story in which nobody dies shows nothing"
