"""The real programs in network namespaces: half of the machines are parted in the middle of a capture, and joined again."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hangdog_models.stack import Reason
from live.network import ADDRESS, INTERFACE, Network
from support.fakes import targets

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip (iproute2)"),
]

#: Two machines on either side, of one rank each; the server is on the left.
MACHINES = {"a": "left", "b": "left", "c": "right", "d": "right"}
#: The capture, and how long its verdict may take: `rounds - 1` pauses, patience, and what a busy machine adds. Seconds.
ROUNDS, INTERVAL_S, PATIENCE_S, SLACK_S = 2, 4.0, 20.0, 4.0


@dataclass
class Cluster:
    network: Network
    address: str

    def hangdog(self, *arguments: str) -> "subprocess.Popen[str]":
        command = inside(self.network, "left", "hangdog", *arguments, "--server", self.address, "--insecure")
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def snapshot(self) -> "subprocess.Popen[str]":
        return self.hangdog("snapshot", "--rounds", str(ROUNDS), "--interval", str(INTERVAL_S), "--format", "json")

    def connected(self, patience_s: float = 60.0) -> None:
        """Waits until all machines are connected and have said what runs there."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            said, _ = self.hangdog("machines", "--format", "json").communicate(timeout=30)
            here = [one for one in json.loads(said)["machines"] if one["connected"] and one["jobs"]]
            if len(here) == len(MACHINES):
                return
            time.sleep(0.2)
        raise AssertionError(said)


def inside(network: Network, side: str, module: str, *arguments: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", network.side(side), sys.executable, "-m", module, *arguments)


def missing(asking: "subprocess.Popen[str]") -> dict[str, str]:
    """Why ranks are missing, by the verdict a snapshot ended with."""
    said, told = asking.communicate(timeout=60)
    assert asking.returncode in (0, 1, 2), told
    document: dict[str, Any] = json.loads(said)
    failed: dict[str, str] = document["coverage"]["failed"]
    return failed


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        try:
            network = stack.enter_context(Network())
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")

        def start(command: tuple[str, ...]) -> "subprocess.Popen[str]":
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            stack.callback(process.communicate, timeout=30)
            stack.callback(process.terminate)
            return process

        listen = ("server", "--insecure", "--listen", f"{ADDRESS['left']}:0", "--store", str(tmp_path / "s.db"))
        server = start(inside(network, "left", "hangdog", *listen, "--patience", str(PATIENCE_S)))
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        for rank, (machine, side) in enumerate(MACHINES.items()):
            mark = ("HANGDOG_TEST_NETNS", f"{os.getpid()}-{machine}")
            environ = dict([mark], RANK=str(rank), WORLD_SIZE=str(len(MACHINES)), HANGDOG_JOB="llama")
            stack.enter_context(targets.running(targets.WAIT, environ=environ))
            quiet = ("--set", "patience_s=100000", "--set", "start_s=100000", "--set", "suspicious_s=100000")
            who = ("--insecure", "--server", address, "--machine", machine, "--match-env", "=".join(mark))
            start(inside(network, side, "hangdog_agent.main", *who, *quiet))
        made = Cluster(network, address)
        made.connected()
        yield made


def test_a_parting_in_the_middle_of_a_capture_and_its_end(cluster: Cluster) -> None:
    began = time.monotonic()
    asking = cluster.snapshot()
    assert asking.stderr is not None
    for line in asking.stderr:
        if re.search(r"asked 4 machines", line):
            break
    time.sleep(INTERVAL_S / 2)  # between the two looks: the first one takes well below a second
    cluster.network.part()
    why = missing(asking)
    assert time.monotonic() - began <= (ROUNDS - 1) * INTERVAL_S + PATIENCE_S + SLACK_S
    assert why.keys() == {"2", "3"}, why
    assert all(words.startswith(f"{Reason.NO_AGENT}: ") and "agent of" in words for words in why.values()), why
    cluster.network.join()
    cluster.connected()
    assert not missing(cluster.snapshot())


def test_packets_that_are_lost_and_late_cost_no_rank(cluster: Cluster) -> None:
    with contextlib.suppress(FileNotFoundError):
        netem = ("tc", "-n", cluster.network.side("right"), "qdisc", "add", "dev", INTERFACE, "root", "netem")
        done = subprocess.run((*netem, "delay", "100ms", "20ms", "loss", "5%"), capture_output=True, check=False)
        if done.returncode == 0:
            assert not missing(cluster.snapshot())
            return
    pytest.skip("no tc, or a kernel without netem: the proxies of test_network_faults do the same")
