"""A device that hangs in a job without a flight recorder: by what NCCL's profiler shows, from the ring to the verdict."""

import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hangdog_models.errors import ServerUnreachable
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress
from support.fakes import nccl_played

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
#: Where a rank says which machine it stands for.
MACHINE = "HANGDOG_TEST_MACHINE"


@pytest.fixture
def stalled(readable: None, tmp_path: Path) -> Iterator[str]:
    """A job of two ranks that wait for their devices, of which that of rank 1 hangs; each stands for a machine."""
    nccl = nccl_played.build(tmp_path)
    job = f"ringed-{uuid4().hex[:12]}"

    def environ(rank: int) -> dict[str, str]:
        return {"HANGDOG_JOB": job, "HANGDOG_TOPOLOGY": "dp=2", MACHINE: f"{job}-{rank}"}

    with nccl_played.pair(nccl, tmp_path, environ) as processes:
        nccl_played.hang(tmp_path, processes)
        yield job


def blamed(ran: "subprocess.CompletedProcess[bytes]") -> tuple[str, str, list[str]]:
    """What a verdict is, which ranks it suspects first, and whom it evicts."""
    verdict: Mapping[str, Any] = json.loads(ran.stdout)
    return verdict["verdict"], verdict["suspects"][0]["ranks"], verdict["evict"]["machines"]


def test_a_capture_holds_the_rings_and_names_the_device(stalled: str, hangdog: Run, tmp_path: Path) -> None:
    ran = hangdog("capture", "--job", stalled, "--looks", "2", "--every", "0.2", "--machine", "both", "-o", "b.tar")
    assert ran.returncode == 0, ran.stderr.decode()
    with tarfile.open(tmp_path / "b.tar") as opened:
        names = opened.getnames()
        ring = opened.extractfile("bundle/rank1.progress.json")
        assert ring is not None
        shown = json.load(ring)
    assert "bundle/rank0.progress.json" in names and "bundle/rank1.flight.json" not in names
    assert [each["phase"] for each in shown["progress"][0]["in_flight"]] == ["launched"]
    judged = hangdog("triage", "b.tar", "--format", "json")
    assert blamed(judged)[:2] == ("machine", "1")
    assert "its own GPU" in json.loads(judged.stdout)["because"][0]
    assert [name for name in json.loads(judged.stdout)["evidence"]["ignored"] if "progress" in name] == []


def test_a_server_that_asks_for_a_snapshot_names_the_machine(stalled: str, hangdog: Run, tmp_path: Path) -> None:
    with server(tmp_path) as address, agents(tmp_path, address, stalled):
        ran = hangdog("snapshot", "--job", stalled, "--format", "json", "--server", address)
        assert blamed(ran) == ("machine", "1", ["node-1"]), ran.stderr.decode()
        incident = json.loads(hangdog("incidents", "--format", "json", "--server", address).stdout)
        (found,) = incident["incidents"]
        assert hangdog("bundle", found["id"], "-o", "kept", "--server", address).returncode == 0
    assert (tmp_path / "kept" / "rank1.progress.json").exists()
    assert blamed(hangdog("triage", "kept", "--format", "json"))[:2] == ("machine", "1")


@contextmanager
def program(log: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """One of ours, which is told to end afterwards."""
    with (
        log.open("wb") as said,
        subprocess.Popen([sys.executable, "-m", *arguments], stdout=said, stderr=said) as running,
    ):
        try:
            yield running
        finally:
            running.terminate()


@contextmanager
def server(folder: Path) -> Iterator[str]:
    log = folder / "server.log"
    with program(log, "hangdog", "server", "--listen", "127.0.0.1:0", "--store", str(folder / "s.db")):
        until(lambda: "listening on " in log.read_text())
        yield log.read_text().partition("listening on ")[2].split()[0]


@contextmanager
def agents(folder: Path, address: str, job: str) -> Iterator[None]:
    with ExitStack() as stack:
        for rank in (0, 1):
            seeing = ("--machine", f"node-{rank}", "--match-env", f"{MACHINE}={job}-{rank}")
            stack.enter_context(
                program(folder / f"agent-{rank}.log", "hangdog_agent.main", "--server", address, *seeing)
            )
        until(lambda: announced(address) == {"node-0", "node-1"})
        yield


def announced(address: str) -> set[str]:
    """The machines that have told of a job."""
    with Client(ServerAddress(address)) as client:
        try:
            return {line.name for line in client.machines() if line.connected and line.jobs}
        except ServerUnreachable:
            return set()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
