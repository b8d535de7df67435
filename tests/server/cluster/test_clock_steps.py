"""Agents whose date jumps by an hour, back and forth, at every stage: real agents, a real server, real trainers that hang."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog_models.incident import Incident
from hangdog_proto.client.incidents import Client
from support.fakes.targets import WAIT, running, until
from support.real import stepped
from support.real.stepped import Clock
from support.servers.guarded import Cluster, guarded, made

HOUR, DAY = 3600, 86400
MARK = "HANGDOG_TEST_STEPS"
#: An agent that makes up its mind within two seconds, and a line that comes back at once.
QUICK = {
    "beat_s": 0.1, "settle_s": 0, "suspicious_s": 0.3, "patience_s": 0.5, "scan_s": 0.1, "backoff_most_s": 0.1,
    "away_s": 0.3, "away_rounds": 2, "away_interval_s": 0.2, "spool_pause_s": 0.05,
    # where a process that asks the libraries starts slowly, what it heard comes in a message of its own, behind the looks
    "profiler_ring": 0, "ras": 0, "recorder_socket": 0, "recorder_pipe": 0,
}  # fmt: skip
PYSPY = shutil.which("py-spy") or Path(sys.executable).with_name("py-spy").exists()


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = stepped.shim(tmp_path_factory.mktemp("stepped"))
    if found is None:
        pytest.skip("no C compiler: apt-get install gcc")
    return found


def now() -> float:
    return time.time()  # noqa: TID251  # the true date, which the server's must be


@contextlib.contextmanager
def agent(port: int, machine: str, folder: Path, clock: Clock) -> Iterator[None]:
    command = [sys.executable, "-m", "hangdog_agent.main", "--server", f"127.0.0.1:{port}", "--machine", machine]
    command += ["--match-env", f"{MARK}={os.getpid()}-{machine}", "--state", str(folder / machine)]
    for name, value in QUICK.items():
        command += ["--set", f"{name}={value}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ | clock.environ) as process:
        try:
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def server(port: int, store: Path, log: Path) -> Iterator[str]:
    """The server as a program; gives the address of its metrics."""
    command = [sys.executable, "-m", "hangdog", "server", "--listen", f"127.0.0.1:{port}", "--store", str(store)]
    with (
        log.open("wb") as said,
        subprocess.Popen([*command, "--metrics", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=said) as process,
    ):
        try:
            assert process.stdout is not None and process.stdout.readline().startswith(b"listening on")
            yield next(word for word in log.read_text().split() if word.endswith("/metrics"))
        finally:
            process.send_signal(signal.SIGTERM)


def counted(metrics: str) -> dict[str, float]:
    with urllib.request.urlopen(metrics) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("hangdog_looks_")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


@pytest.mark.slow
@pytest.mark.skipif(not PYSPY, reason="needs py-spy")
def test_a_standstill_is_recorded_told_and_judged_at_the_servers_time(tmp_path: Path, library: Path) -> None:
    port, store, log, began = free_port(), tmp_path / "s.db", tmp_path / "log", now()
    clocks = [Clock(library, tmp_path / f"clock-{name}") for name in "ab"]

    def jump(hours: int) -> None:
        for clock, sign in zip(clocks, (1, -1), strict=True):
            clock.step(sign * hours * HOUR)

    def spooled() -> list[Path]:
        return list(tmp_path.glob("[ab]/spool/*.look"))

    def judged(client: Client, why: str) -> list[Incident]:
        return [line for line in client.incidents() if line.why.startswith(why) and line.kind]

    with contextlib.ExitStack() as stack:
        for rank, (machine, clock) in enumerate(zip("ab", clocks, strict=True)):
            environ = {"RANK": str(rank), "WORLD_SIZE": "2", "HANGDOG_JOB": "llama", MARK: f"{os.getpid()}-{machine}"}
            stack.enter_context(running(WAIT, environ=environ))
            stack.enter_context(agent(port, machine, tmp_path, clock))
        until(lambda: len(spooled()) >= 1, 30)
        jump(1)  # between one recorded look and the next
        until(lambda: len(spooled()) == 4, 30)
        jump(-1)  # between recording and handing over
        metrics = stack.enter_context(server(port, store, log))
        client = stack.enter_context(Client(f"127.0.0.1:{port}"))
        until(lambda: not spooled(), 30)
        jump(1)  # between presence, pulse and looks: a living incident goes on meanwhile
        until(lambda: bool(judged(client, "recorded while no server was there")), 30)
        until(lambda: bool(judged(client, "suspected")), 40)
        jump(-1)
        steps = list(client.snapshot("llama", rounds=2, interval_s=0.2))
        (recorded,) = judged(client, "recorded")
        suspected = judged(client, "suspected")
        assert steps[-1].verdict is not None and steps[-1].verdict.coverage.captured == 2
        for line in client.incidents():
            assert began - 1 <= line.began <= now() and line.state == "judged", line
        assert recorded.began < suspected[0].began, "a look is as old as the agent's steady clock says"
        looks = counted(metrics)
        assert all(line.connected and line.silent_s < 15 for line in client.machines())
    wrong = ("unreadable", "late", "unasked", "again", "refused", "failed")
    assert not {name: count for name, count in looks.items() if count and any(f'"{word}"' in name for word in wrong)}
    assert looks['hangdog_looks_recorded_total{outcome="kept"}'] == 4
    assert "refused" not in log.read_text()


@pytest.mark.parametrize("off", [HOUR, -HOUR])
async def test_certificates_bear_an_hour(tmp_path: Path, library: Path, off: int) -> None:
    cluster = made(tmp_path / "ca")
    async with guarded(cluster) as on:
        said = await first_words(on.address, cluster, Clock(library, tmp_path / "clock", off))
        assert "connected to" in said


@pytest.mark.parametrize("off", [-3 * DAY, 400 * DAY])
async def test_a_date_that_fits_no_certificate_is_named_as_what_is_wrong(
    tmp_path: Path, library: Path, off: int
) -> None:
    cluster = made(tmp_path / "ca")
    async with guarded(cluster) as on:
        said = await first_words(on.address, cluster, Clock(library, tmp_path / "clock", off))
        assert "no connection to" in said and "date here" in said


async def first_words(address: str, cluster: Cluster, clock: Clock) -> str:
    """What an agent with this clock says of its line first."""
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hangdog_agent.main", "--machine", "gpu-a", "--server", address),
        *("--tls", str(cluster.machine("gpu-a")), "--match-env", "HANGDOG_JOB=of-nobody"),
        env=os.environ | clock.environ,
        stderr=asyncio.subprocess.PIPE,
    )
    assert agent.stderr is not None
    try:
        async with asyncio.timeout(30):
            while True:
                line = (await agent.stderr.readline()).decode()
                if not line or "connected to" in line or "no connection to" in line:
                    return line
    finally:
        agent.kill()
        await agent.communicate()
