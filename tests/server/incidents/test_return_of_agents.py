"""The whole way with the programs themselves: an agent records alone, both ends are killed with -9, and one incident comes of it."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog_proto.client.incidents import Client
from support.fakes.targets import WAIT, running, until
from support.worded import names

MARK = ("HANGDOG_TEST_RETURN", str(os.getpid()))
ENVIRON = dict([MARK], RANK="0", WORLD_SIZE="1", HANGDOG_JOB="alone")
LOOKS = 6
#: An agent that makes up its mind within two seconds, and a line that comes back at once.
QUICK = {
    "beat_s": 0.1,
    "settle_s": 0,
    "suspicious_s": 0.3,
    "patience_s": 0.5,
    "scan_s": 0.1,
    # where a process that asks the libraries starts slowly, what it heard comes in a message of its own, behind the looks
    "profiler_ring": 0,
    "ras": 0,
    "recorder_socket": 0,
    "recorder_pipe": 0,
    "backoff_most_s": 0.1,
    "away_s": 0,
    "away_rounds": LOOKS,
    "away_interval_s": 0.05,
    "spool_pause_s": 0.1,
}


@contextlib.contextmanager
def agent(port: int, folder: Path) -> Iterator[None]:
    """The agent as a program, killed with -9 in the end."""
    command = [sys.executable, "-m", "hangdog_agent.main", "--server", f"127.0.0.1:{port}", "--machine", "a"]
    command += ["--match-env", "=".join(MARK), "--state", str(folder)]
    for name, value in QUICK.items():
        command += ["--set", f"{name}={value}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def server(port: int, store: Path) -> Iterator[None]:
    """The server as a program, killed with -9 in the end."""
    command = [sys.executable, "-m", "hangdog", "server", "--listen", f"127.0.0.1:{port}", "--store", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None and process.stdout.readline().startswith(b"listening on")
            yield
        finally:
            process.kill()


def rows(store: Path) -> list[int]:
    """The looks that the store has."""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        return [number for (number,) in connection.execute("select round from captures order by round")]


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("py-spy") is None and not Path(sys.executable).with_name("py-spy").exists(), reason="needs py-spy"
)
def test_a_standstill_without_a_server_is_judged_by_the_next_one_whoever_is_killed(tmp_path: Path) -> None:
    port, store, spool = free_port(), tmp_path / "s.db", tmp_path / "state" / "spool"
    with running(WAIT, environ=ENVIRON), agent(port, tmp_path / "state"):
        until(lambda: len(list(spool.glob("*.look"))) == LOOKS, 30)
    kept = len(list(spool.glob("*.look")))
    assert kept == LOOKS, "the job is over and its agent was killed: what they left is on the disk"
    with agent(port, tmp_path / "state"):
        with server(port, store):
            until(lambda: store.exists() and len(rows(store)) >= 2, 30)
        assert len(rows(store)) < LOOKS, "killed in the middle"
        with server(port, store), Client(f"127.0.0.1:{port}") as client:
            until(lambda: not list(spool.glob("*.look")), 30)
            until(lambda: any(line.kind for line in client.incidents()), 30)
            (incident,) = client.incidents()
    assert rows(store) == list(range(LOOKS)), "nothing that was acknowledged is lost, and nothing is there twice"
    assert incident.job == "alone" and names(incident.why, "recorded", "no server") and ": rank" in incident.why
