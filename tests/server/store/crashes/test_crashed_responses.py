"""A server is killed with -9 between any two steps of what people do: each is done once, with all that follows from it."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_models.actions.caps import Mode
from hangdog_models.incident import ResponseState
from hangdog_server.store import machine_history
from hangdog_server.store.history import responses
from support.real.postgres import Postgres
from support.servers import crashing_responses
from support.servers.cast_acting import world
from support.servers.crashing_responses import NIGHT

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(3600)]


@pytest.fixture
def servers() -> Iterator["subprocess.Popen[str]"]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, crashing_responses.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request: pytest.FixtureRequest, memory: Path) -> Iterator[Path | str]:
    """Empty stores of one kind, one after the other."""
    if request.param == "sqlite":
        return (memory / f"{number}.db" for number in itertools.count())
    running: Postgres = request.getfixturevalue("server")
    return (running.database() for _ in itertools.count())


def lived(servers: "subprocess.Popen[str]", where: Path | str, folder: Path, last: int) -> int:
    """Has a server live until its last point; how it ended."""
    assert servers.stdin is not None and servers.stdout is not None
    servers.stdin.write(json.dumps({"where": str(where), "folder": str(folder), "last": last}) + "\n")
    servers.stdin.flush()
    return int(servers.stdout.readline())


async def story(servers: "subprocess.Popen[str]", where: Path | str, folder: Path, last: int) -> None:
    """A server that dies at that point (0: none), and the one after it."""
    async with world(where, folder, mode=Mode.APPROVE) as on:
        await on.judged("0a", "a", "b")
        await on.acting.tick()
    died = lived(servers, where, folder, last)
    assert died == (-signal.SIGKILL if last else 0)
    assert lived(servers, where, folder, 0) == 0
    async with world(where, folder, mode=Mode.APPROVE) as on:
        entries = await on.store.ask(responses.of, "0a")
        assert [one.number for one in entries] == [*range(1, len(NIGHT) + 1)], (last, entries)
        found = await on.store.find("0a")
        assert found.response.state == ResponseState.RESOLVED and found.response.entries == len(NIGHT)
        assert found.settled is not None and found.settled.machines == ("b",)
        last_of = {one: (await on.store.ask(machine_history.of, one, 0.0, 9))[0].mention for one in "ab"}
        assert last_of == {"a": "taken back", "b": "convicted"}
        await on.acting.tick()
        assert await on.states("0a") in ({"b": "waiting"}, {"b": "waiting", "a": "dismissed"})


async def test_a_server_that_is_killed_at_any_step(
    servers: "subprocess.Popen[str]", places: Iterator[Path | str], tmp_path: Path
) -> None:
    await story(servers, next(places), tmp_path / "0", 0)
    points = len(NIGHT) * 3
    for last in range(1, points + 1):
        await story(servers, next(places), tmp_path / str(last), last)
