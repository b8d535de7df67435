"""A server and an agent as they are shipped, as processes over loopback."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hangdog_agent.confinement.capabilities import CAPABILITIES

#: Starting a program, or what it does within seconds, on a busy machine. Seconds.
PATIENCE_S = 60.0
#: A trainer has a rhythm after half a second of work, and is suspected after another half of standing still.
HASTY = ("settle_s=0.5", "beat_s=0.1", "suspicious_s=0.5", "patience_s=0.5", "scan_s=0.5")
#: All that the unit leaves to the agent: see deploy/systemd.
UNIT = (
    "setpriv",
    "--bounding-set=" + ",".join(("-all", *(f"+{each.name.lower()}" for each in CAPABILITIES))),
    "--no-new-privs",
)


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """Yields the address at which it listens."""
    command = [sys.executable, "-m", "hangdog", "server", "--listen", "127.0.0.1:0", "--store", str(folder / "s.db")]
    with (folder / "server.log").open("wb") as log, running(command, stdout=subprocess.PIPE, stderr=log) as process:
        assert process.stdout is not None
        said = process.stdout.readline().decode().split()
        assert said[:2] == ["listening", "on"], said
        yield said[2]


@contextlib.contextmanager
def agent(
    address: str, folder: Path, *arguments: str, sets: Sequence[str] = HASTY, within: Sequence[str] = ()
) -> Iterator["subprocess.Popen[bytes]"]:
    """The agent of machine `m`; `within` is a program that starts it, with its own arguments."""
    settings = [word for one in sets for word in ("--set", one)]
    command = [*within, sys.executable, "-m", "hangdog_agent.main", "--server", address, "--machine", "m"]
    with (
        (folder / "agent.log").open("wb") as log,
        running([*command, *settings, *arguments], stdout=log, stderr=log) as process,
    ):
        until(lambda: any(machine["connected"] for machine in asked("machines", address)))
        yield process


def asked(command: str, address: str) -> list[dict[str, Any]]:
    """What `hangdog COMMAND --format json` tells."""
    call = [sys.executable, "-m", "hangdog", command, "--server", address, "--format", "json"]
    told = subprocess.run(call, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    answer = json.loads(told.stdout)
    return list(answer if isinstance(answer, list) else answer[command])


@contextlib.contextmanager
def running(command: Sequence[str], **how: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that is told to end afterwards, and ends."""
    with subprocess.Popen(command, **how) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def until(reached: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < end, f"not reached within {within_s:g} s"
        time.sleep(0.1)
