"""The processes of a measurement: the server, and what plays its cluster; they answer a line with a line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Process:
    """`python -m COMMAND...`, whose errors go to `log`."""

    def __init__(self, log: Path, *command: str) -> None:
        environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                (sys.executable, "-m", *command),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environ,
            )  # fmt: skip

    def line(self) -> str:
        """What it says next; `SystemExit` when it has ended."""
        line = cast("IO[str]", self._process.stdout).readline().strip()
        if not line:
            raise SystemExit("a part of the measurement has ended: its log says why")
        return line

    def ask(self, what: str = "") -> dict[str, float]:
        """Its answer to a line."""
        told = cast("IO[str]", self._process.stdin)
        told.write(f"{what}\n")
        told.flush()
        return cast("dict[str, float]", json.loads(self.line()))

    def cpu_s(self) -> float:
        """Processor time it used so far, in seconds."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def peak_mib(self) -> float:
        """The most memory it had."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def kill(self) -> None:
        """Ends it as a lost machine would."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Ends it in order."""
        self._process.terminate()
        self._process.wait()


def server(log: Path, store: str, *more: str) -> tuple[Process, str]:
    """A real server on a free port of this machine, and its address."""
    process = Process(log, "hangdog", "server", "--listen", "127.0.0.1:0", "--store", store, *more)
    said = process.line()
    return process, next(word for word in said.split() if word.startswith("127.0.0.1:")).rstrip(",.;")
