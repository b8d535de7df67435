"""Real jobs of torchrun whose ranks end: a crash is one incident that names the first to fail, and a job that ends otherwise is none."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from frameworks.guard import ClusterGuard
from hangdog.demo.conductor import free_port
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.procfs import Proc
from hangdog_agent.settings import AgentSettings
from hangdog_models.incident import CRASHED_WHY, Incident
from hangdog_models.verdict import Kind, Verdict, from_json
from hangdog_models.views.first_line import headline
from live.lanes import further

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'"),
]
OURS, MACHINE = "HANGDOG_LIVE_CRASH", "HANGDOG_LIVE_CRASH_MACHINE"
PATIENCE_S = 90.0
#: The rank that fails, and not the first one.
GUILTY = 1
#: A job that ended is watched for so long: longer than a crash is collected and judged. Seconds.
QUIET_S = 14.0
#: From the fault to the verdict, on a crowded machine: six seconds of collecting, and what torchrun takes to end the rest.
JUDGED_S = 30.0

TRAINER = """
import os, pathlib, signal, time
import torch, torch.distributed as dist
rank, folder = int(os.environ["RANK"]), pathlib.Path(os.environ["HANGDOG_LIVE_CRASH"])
def fails():
    kind = os.environ["KIND"]
    if kind == "exception":
        raise ValueError("labels run from 1, and the loss wants 0")
    if kind == "ecc":  # as torch writes it; there is no such GPU here
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    if kind == "exit":
        os._exit(3)
    if kind == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
dist.init_process_group("gloo")
(folder / f"pid{rank}").write_text(str(os.getpid()))
begun = time.monotonic()
while True:
    done = torch.tensor([1.0 if (folder / "go").exists() and rank == 0 else 0.0])
    dist.broadcast(done, 0)
    if done.item():
        break
    time.sleep(0.1)
if os.environ["KIND"] != "well":
    if rank == 1:
        fails()
    while True:
        dist.all_reduce(torch.ones(1))
        time.sleep(0.1)
dist.destroy_process_group()
"""


@dataclass
class CrashJob:
    """A running job of torchrun: `nodes` machines with two ranks each."""

    folder: Path
    launchers: list[subprocess.Popen[bytes]]
    ranks: int

    def pid(self, rank: int) -> int:
        path = self.folder / f"pid{rank}"
        until = time.monotonic() + PATIENCE_S
        while not (path.exists() and path.read_text()):
            assert time.monotonic() < until, (self.folder / "m0.log").read_text()
            time.sleep(0.1)
        return int(path.read_text())

    def joined(self) -> None:
        """Returns once all ranks train, and the agents know them."""
        for rank in range(self.ranks):
            self.pid(rank)
        time.sleep(AgentSettings().link.scan_s + 1.5)

    def go(self) -> None:
        (self.folder / "go").touch()


@contextmanager
def running(folder: Path, kind: str, nodes: int = 1) -> Iterator[CrashJob]:
    (folder / "train.py").write_text(TRAINER)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "RANK", "WORLD_"))}
    clean |= {
        OURS: str(folder),
        "HANGDOG_JOB": "crashing",
        "KIND": kind,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "",
    }
    port = free_port()
    with ExitStack() as stack:
        launchers = []
        for node in range(nodes):
            log = stack.enter_context((folder / f"m{node}.log").open("wb"))
            command = ("-m", "torch.distributed.run", "--nnodes", str(nodes), "--node-rank", str(node),
                       "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(port), "train.py")  # fmt: skip
            process = subprocess.Popen(
                (sys.executable, *command), cwd=folder, env={**clean, MACHINE: f"m{node}"}, start_new_session=True,
                stdout=log, stderr=log,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.send_signal, signal.SIGTERM)
            launchers.append(process)
        yield CrashJob(folder, launchers, 2 * nodes)


@contextmanager
def watched(folder: Path, nodes: int = 1) -> Iterator[ClusterGuard]:
    settings = AgentSettings()

    def watch(machine: str) -> Watch:
        return Watch(ProcessTable(Proc(), frozenset([MACHINE])), (MACHINE, machine), (), settings.link.forget_s)

    machines = {f"m{node}": watch(f"m{node}") for node in range(nodes)}
    with ClusterGuard(machines, folder, settings, crashes=True) as guard:
        yield guard


def judged(guard: ClusterGuard) -> tuple[Incident, Verdict]:
    until = time.monotonic() + PATIENCE_S
    while (incident := guard.verdict()) is None:
        assert time.monotonic() < until, "no incident"
        time.sleep(0.25)
    return incident, from_json(json.loads(incident.verdict))


def kill(job: CrashJob) -> None:
    os.kill(job.pid(GUILTY), signal.SIGKILL)


@pytest.mark.parametrize(
    ("kind", "nodes", "breaks", "expected", "words"),
    [
        ("exception", 2, CrashJob.go, Kind.SOFTWARE, "ValueError"),
        ("ecc", 2, CrashJob.go, Kind.MACHINE, "memory error"),
        further("exit", 1, CrashJob.go, Kind.SOFTWARE, "exit code 3"),
        further("segv", 1, CrashJob.go, Kind.SOFTWARE, "segmentation fault"),
        ("kill", 1, kill, Kind.UNDETERMINED, "SIGKILL"),
    ],
)
def test_a_crash_is_one_incident_that_names_the_first_to_fail(
    tmp_path: Path, kind: str, nodes: int, breaks: Callable[[CrashJob], None], expected: Kind, words: str
) -> None:
    with running(tmp_path, kind, nodes) as job, watched(tmp_path, nodes) as guard:
        job.joined()
        broken = time.monotonic()
        breaks(job)
        incident, verdict = judged(guard)
        opened_s, judged_s = incident.began - broken, incident.changed - broken
        print(f"{kind} on {nodes} machines: first end after {opened_s:.1f} s, judged after {judged_s:.1f} s")
        assert judged_s < JUDGED_S
        assert incident.why.startswith(CRASHED_WHY)
        assert verdict.kind is expected, verdict
        assert verdict.evict.machines == (("m0",) if kind == "ecc" else ())
        assert verdict.culprit is not None and verdict.culprit.ranks == (GUILTY,), verdict.because
        assert verdict.culprit.machines == ("m0",) and words in verdict.because[0].text
        assert f"rank {GUILTY} on m0 failed first " in headline(verdict)
        time.sleep(QUIET_S)
        assert len(guard.incidents()) == 1


@pytest.mark.parametrize(
    ("kind", "how"), [("well", None), ("stopped", signal.SIGTERM), further("stopped", signal.SIGINT)]
)
def test_a_job_that_ends_well_or_is_stopped_is_no_incident(
    tmp_path: Path, kind: str, how: signal.Signals | None
) -> None:
    with running(tmp_path, kind) as job, watched(tmp_path) as guard:
        job.joined()
        if how is None:
            job.go()
        else:
            job.launchers[0].send_signal(how)
        job.launchers[0].wait(PATIENCE_S)
        time.sleep(QUIET_S)
        assert not guard.incidents()
