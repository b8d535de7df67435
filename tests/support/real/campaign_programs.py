"""A server, agents and their tests as real programs on this machine, for campaigns from one end to the other."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from hangdog_models.errors import ServerUnreachable
from hangdog_proto.client.campaigns import CampaignClient
from support.fakes import ladder

FAULTS = Path(ladder.__file__).parents[2] / "agent" / "machine_tests" / "faults"
#: Enough to see, in a second or two of one core; nothing here is about speed.
SMALL = ("memory_bytes=8388608", "gemm_size_cpu=192", "gemm_repetitions=5", "speed_repetitions=5", "speed_drop_cpu=0.99",
         "pair_drop_cpu=0.999")  # fmt: skip


@contextmanager
def process(log: IO[bytes], *arguments: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of ours, which is told to end afterwards."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, env={**os.environ, **environ}, stdout=log, stderr=log) as running:
        try:
            yield running
        finally:
            running.terminate()


@contextmanager
def server(folder: Path, port: int, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """One with these further options; its store and its log are in the folder."""
    with (folder / "server.log").open("ab") as log:
        where = ("--listen", f"127.0.0.1:{port}", "--store", str(folder / "s.db"))
        with process(log, "hangdog", "server", *where, *more) as running:
            yield running


@contextmanager
def agents(folder: Path, port: int, names: Sequence[str], fault: str, victim: str, *more: str) -> Iterator[None]:
    """One for each name; in the processes of the last one's tests whose command line holds `victim`, torch has a fault.

    `more` are further options of all of them but the first. People without a token come in by the server's socket.
    """
    broken = {"PYTHONPATH": str(FAULTS), "HANGDOG_TEST_FAULT": fault, "HANGDOG_TEST_VICTIM": victim} if fault else {}
    sets = [word for one in SMALL for word in ("--set", f"diagnose.{one}")]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "agents.log").open("ab"))
        for name in names:
            called = (
                "--server",
                f"127.0.0.1:{port}",
                "--machine",
                name,
                "--match-env",
                f"NOBODY_HAS={os.getpid()}",
                *sets,
                "--set",
                "diagnose_abandon_s=600",  # a server may take minutes to start where the machine has much else to do
                *(more if name != names[0] else ()),
            )
            environ = broken if name == names[-1] else {}
            stack.enter_context(process(log, "hangdog_agent.main", *called, **environ))
        until(lambda: connected(folder) == set(names))
        yield


def connected(folder: Path) -> set[str]:
    """The machines whose agents the server of this folder hears."""
    with CampaignClient(f"unix:{folder / 'server.sock'}") as client:
        try:
            return {line.name for line in client.machines() if line.connected}
        except ServerUnreachable:
            return set()


def until(true: Callable[[], bool], every_s: float = 0.05) -> None:
    """Returns once it is true, which is asked so often."""
    end = time.monotonic() + 400  # a machine with ten times as much to do as it can is slow, not broken
    while not true():
        assert time.monotonic() < end
        time.sleep(every_s)
