"""The processes of one measurement: started here, and gone when it ends."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hangdog.demo.conductor import FOREIGN
from hangdog.demo.pipes import first_line
from hangdog.demo.processes import Processes

#: The live trainers lie among the tests.
TESTS = Path(__file__).resolve().parents[2] / "tests"
#: What the agent tells our processes from all others by.
MARK = ("HANGDOG_BENCH_OVERHEAD", str(os.getpid()))
#: Loading PyTorch, or whatever else a start takes. Seconds.
START_S = 120.0
#: Characters shown of what a process wrote.
MOST_SAID = 800
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class NotStarted(Exception):
    """A process of the measurement did not come up; the words are its own."""


class Stage:
    """Starts processes, whose files lie in `folder`; each comes up within `patience_s`."""

    def __init__(self, folder: Path, processes: Processes, patience_s: float = START_S) -> None:
        self.folder, self._processes, self._patience_s = folder, processes, patience_s
        self._server = ""
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self._environ = own | {"TMPDIR": str(folder), "PYTHONPATH": str(TESTS), MARK[0]: MARK[1]}

    def start(self, name: str, *arguments: str, says: str = "", **environ: str) -> subprocess.Popen[bytes]:
        """Starts Python with these arguments; waits for its first line where it is known what it begins with."""
        process = self._processes.start(name, (sys.executable, "-P", *arguments), self._environ | environ)
        if says and not first_line(process, self._patience_s).startswith(says):
            raise NotStarted(f"{name} did not start: {self.last_words(name)}")
        return process

    def last_words(self, name: str) -> str:
        return self._processes.last_line(name)

    def said(self, name: str) -> str:
        """The end of what a process wrote to stderr."""
        return self._processes.log(name).read_text(errors="replace").strip()[-MOST_SAID:]

    def server(self) -> str:
        """The address of the one server, which is started where none runs yet."""
        if not self._server:
            store = str(self.folder / "hangdog.db")
            server = self.start("server", "-m", "hangdog", "server", "--listen", "127.0.0.1:0", "--store", store)
            line = first_line(server, self._patience_s)
            if not line.startswith("listening on "):
                raise NotStarted(f"the server did not start: {self.last_words('server')}")
            self._server = line.removeprefix("listening on ").strip()
        return self._server

    def agent(self, *options: str) -> subprocess.Popen[bytes]:
        """An agent of the server as it is run in a cluster, with these options, once it is connected."""
        match = ("--match-env", "=".join(MARK))
        agent = self.start("agent", "-m", "hangdog_agent.main", "--server", self.server(), *match, *options)
        until = time.monotonic() + self._patience_s
        while "connected to" not in self._processes.log("agent").read_text():
            if time.monotonic() > until or agent.poll() is not None:
                raise NotStarted(f"the agent did not connect: {self.last_words('agent')}")
            time.sleep(0.1)
        return agent


@contextmanager
def stage(patience_s: float = START_S) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="ho-") as folder, Processes(Path(folder)) as processes:
        yield Stage(Path(folder), processes, patience_s)


def rank_environ(rank: int, world: int) -> dict[str, str]:
    """What a launcher says to one of `world` ranks on this machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "HANGDOG_JOB": "overhead",
        "HANGDOG_TOPOLOGY": f"dp={world}",
    }


class CpuUsed(NamedTuple):
    """Seconds of CPU: of an agent its own, those of the processes that read files for it, and of its tools that have ended."""

    own: float
    readers: float
    tools: float


def cpu_s(pid: int) -> CpuUsed:
    """What a process has used, its children that live, and those that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        tasks = [(folder / "children").read_text() for folder in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:  # it has ended meanwhile: what it used is its parent's
        return CpuUsed(0.0, 0.0, 0.0)
    user, system, of_children, in_children = (int(field) / _TICKS_PER_S for field in fields[11:15])
    return CpuUsed(
        user + system, sum(sum(cpu_s(int(child))) for child in " ".join(tasks).split()), of_children + in_children
    )


def memory_mib(pid: int, name: str) -> float:
    """A line of `/proc/PID/status`, in MiB: `VmRSS` is what it has in memory, `VmHWM` the most it ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def met(yes: bool) -> str:
    return "met" if yes else "MISSED"
