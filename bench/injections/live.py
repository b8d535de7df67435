"""The injections that a CPU can play, in a real gloo job over machines that are namespaces, each with a real agent."""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from hangdog.supervising.descendants import with_environ
from hangdog_models.ranks import format_ranks
from hangdog_models.verdict import Kind, Verdict
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress
from injections.machines import DATA, SERVER, Machines

RANKS = 4
#: What all processes of one play carry in their environment.
MARK = "HANGDOG_INJECTIONS"
TRAINER = Path(__file__).with_name("gloo_job.py")
#: A rank that is slow gets this share of a core.
QUOTA = 0.12
#: A fault that stops the job strikes after so long, and is waited for so long; one that slows it down takes longer. Seconds.
STRUCK_S, PATIENCE_S = 30.0, 240.0
SLOW_STRUCK_S, SLOW_PATIENCE_S = 420.0, 420.0
READY_S, LOOK_S = 120.0, 0.5
#: A path has two ends.
ENDS = 2


@dataclass(frozen=True, slots=True)
class Live:
    """A job at work: its machines, the folder in which ranks are told to fail, and what its processes carry in their environment."""

    machines: Machines
    folder: Path
    mark: str

    def tell(self, rank: int, what: str) -> None:
        (self.folder / f"strike-{rank}").write_text(what)

    def pid(self, rank: int) -> int:
        """The trainer's, as this process counts."""
        return min(set(with_environ("RANK", str(rank))) & set(with_environ(MARK, self.mark)))

    def stop(self, rank: int) -> None:
        os.kill(self.pid(rank), signal.SIGSTOP)

    def end(self) -> None:
        """Ends all that is left of it."""
        for pid in with_environ(MARK, self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            _GROUP.rmdir()


#: Each fault: what it does to a rank, whether it stops the job, and the kinds that a verdict may have.
FAULTS: dict[str, tuple[Callable[[Live, int], None], bool, frozenset[Kind]]] = {
    "NIC down": (lambda job, rank: job.machines.cut(rank), True, frozenset({Kind.MACHINE, Kind.GROUP})),
    "process stopped": (lambda job, rank: job.stop(rank), True, frozenset({Kind.MACHINE, Kind.SOFTWARE})),
    "delayed rank": (lambda job, rank: job.tell(rank, "delay"), True, frozenset({Kind.MACHINE, Kind.SOFTWARE, Kind.DEPENDENCY, Kind.SLOW, Kind.UNDETERMINED})),
    "mismatched call": (lambda job, rank: job.tell(rank, "mismatch"), True, frozenset({Kind.SOFTWARE})),
    "NIC slow": (lambda job, rank: job.machines.slow(rank), False, frozenset({Kind.SLOW})),
    "host slow": (lambda job, rank: _throttle(job.pid(rank)), False, frozenset({Kind.SLOW})),
}  # fmt: skip


def play(names: list[str], seeds: int) -> int:
    """Plays each fault with every seed; prints a row each. How many were judged wrongly."""
    print("| fault | rank | suspected after s | judged right after s | verdict | first suspect | evicts | right |")
    print("|---|---:|---:|---:|---|---|---|---|", flush=True)
    wrong = 0
    for name in names:
        for seed in range(seeds):
            rank = Random(f"{name} {seed}").randrange(RANKS)
            wrong += not _played(name, rank)
    return wrong


def _played(name: str, rank: int) -> bool:
    strike, stops, kinds = FAULTS[name]
    with cluster() as (job, client):
        time.sleep(STRUCK_S if stops else SLOW_STRUCK_S)
        before = len(client.incidents("", 100))
        began = time.time()  # noqa: TID251  # incidents are dated by the clock
        strike(job, rank)
        until = time.monotonic() + (PATIENCE_S if stops else SLOW_PATIENCE_S)
        told: Told | None = None
        while time.monotonic() < until and not (told and told.right(rank, kinds)):
            time.sleep(LOOK_S)
            told = _told(client, before, began) or told
    right = told is not None and not before and told.right(rank, kinds)
    cells = [name, str(rank), *(told.cells() if told else "-----"), "yes" if right else "NO"]
    print(f"| {' | '.join(cells)} |{f' ({before} incidents before)' if before else ''}", flush=True)
    return right


@dataclass(frozen=True, slots=True)
class Told:
    """A verdict: the incident's first suspicion and the verdict, in seconds after the fault."""

    suspected_s: float
    judged_s: float
    verdict: Verdict

    def right(self, rank: int, kinds: frozenset[Kind]) -> bool:
        """Whether it is of one of these kinds, its first suspect is that rank or a path of it, and it evicts no other."""
        first = self.verdict.suspects[0] if self.verdict.suspects else None
        named = first is not None and rank in first.ranks and len(first.ranks) <= ENDS
        return named and self.verdict.kind in kinds and set(self.verdict.evict.machines) <= {f"node-{rank}"}

    def cells(self) -> list[str]:
        first = self.verdict.suspects[0] if self.verdict.suspects else None
        who = f"{format_ranks(first.ranks)} ({100 * first.probability:.0f} %)" if first else "nobody"
        evicts = ", ".join(self.verdict.evict.machines) or "nobody"
        return [f"{self.suspected_s:.0f}", f"{self.judged_s:.0f}", str(self.verdict.kind), who, evicts]


def _told(client: Client, before: int, began: float) -> Told | None:
    """The latest verdict of the first incident after `before` others."""
    lines = client.incidents("", 100)
    if len(lines) <= before:
        return None
    first = sorted(lines, key=lambda one: one.began)[before]
    verdict = client.incident(first.id)[1] if first.kind else None
    now = time.time()  # noqa: TID251  # incidents are dated by the clock
    return Told(first.began - began, now - began, verdict) if verdict is not None else None


@contextmanager
def cluster() -> Iterator[tuple[Live, Client]]:
    """A job that trains, watched by a server and by an agent on each machine."""
    with (
        tempfile.TemporaryDirectory(prefix="hangdog-injections-") as name,
        Machines(RANKS) as machines,
        ExitStack() as stack,
    ):
        folder = Path(name)
        job = Live(machines, folder, secrets.token_hex(8))

        def start(called: str, command: tuple[str, ...]) -> "subprocess.Popen[bytes]":
            own = {MARK: job.mark, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
            with (folder / f"{called}.log").open("wb") as log:
                process = subprocess.Popen(
                    command,
                    env=os.environ | own,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        python, store = (sys.executable, "-m"), folder / "hangdog.db"
        listen = ("server", "--insecure", "--store", str(store), "--listen", f"{SERVER}:0")
        start("server", machines.beside(*python, "hangdog", *listen))
        address = _line(folder / "server.log", "listening on ")
        for rank in range(RANKS):
            own = {"RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_RANK": 0, "HANGDOG_JOB": "injections"}
            own |= {"MASTER_ADDR": machines.address(0), "MASTER_PORT": 29611, "GLOO_SOCKET_IFNAME": DATA}
            trainer = (
                "env",
                *(f"{key}={value}" for key, value in own.items()),
                sys.executable,
                str(TRAINER),
                str(folder),
            )
            agent = (*python, "hangdog_agent.main", "--insecure", "--server", address, "--machine", f"node-{rank}")
            start(f"node-{rank}", machines.inside(rank, trainer, agent))
        _until(lambda: all((folder / f"ready-{rank}").exists() for rank in range(RANKS)), folder / "node-0.log")
        stack.callback(job.end)
        with Client(ServerAddress(f"unix:{folder / 'server.sock'}")) as client:
            yield job, client


def _line(log: Path, begins: str) -> str:
    """The rest of the line of a log that begins so, once it is there."""
    _until(lambda: log.exists() and any(line.startswith(begins) for line in log.read_text().splitlines()), log)
    return next(line.removeprefix(begins).strip() for line in log.read_text().splitlines() if line.startswith(begins))


def _until(true: Callable[[], bool], log: Path) -> None:
    until = time.monotonic() + READY_S
    while not true():
        if time.monotonic() > until:
            sys.exit(f"it does not start: {log.read_text()[-2000:]}")
        time.sleep(LOOK_S)


#: A control group of the first version's hierarchy, in which a process gets a share of a core.
_GROUP = Path("/sys/fs/cgroup/cpu") / f"hangdog-injections-{os.getpid()}"


def _throttle(pid: int) -> None:
    _GROUP.mkdir(exist_ok=True)
    (_GROUP / "cpu.cfs_quota_us").write_text(str(int(QUOTA * 100_000)))
    (_GROUP / "cgroup.procs").write_text(str(pid))
