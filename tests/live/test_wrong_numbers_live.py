"""NaN in one rank's gradient of a real torch job: one incident that names the rank, and the tests of bits it asks for find its machine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog.demo.pipes import first_line
from hangdog_models.incident import NUMBERS_WHY, Incident
from hangdog_models.verdict import Act, Kind, Verdict
from hangdog_models.views.first_line import headline
from hangdog_proto.client.channel_options import ServerAddress
from hangdog_proto.client.incidents import Client
from support.fakes import ladder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'"),
]
OURS = "HANGDOG_LIVE_NUMBERS"
FAULTS = Path(ladder.__file__).parents[2] / "agent" / "machine_tests" / "faults"
PATIENCE_S = 120.0
#: Machine of each rank; rank 2 computes wrongly, and so do the tests on m1.
MACHINES = ("m0", "m0", "m1", "m2")
GUILTY = 2
#: Three values that confirm it, four seconds for other ranks, five for other machines, and a server that is killed and starts anew.
JUDGED_S = 90.0
#: Small steps of alignment, for nothing here is about speed; a job that ended is forgotten at once.
SMALL = ("forget_s=1", "diagnose.alignment_repetitions=6", "diagnose.alignment_width_cpu=32")

TRAINER = """
import os, pathlib, time
import torch, torch.distributed as dist
rank, folder = int(os.environ["RANK"]), pathlib.Path(os.environ["FOLDER"])
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
target, draw = torch.randn(16, 1), torch.Generator().manual_seed(rank)
step = 0
while True:
    step += 1
    batch = torch.randn(32, 16, generator=draw)
    loss = (model(batch) - batch @ target).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    if rank == 2 and (folder / "go").exists() and not (folder / "struck").exists():
        model.weight.grad[0, 3] = float("nan")
        (folder / "struck").write_text(f"{step} {time.monotonic()}")
    norm = torch.stack([one.grad.norm() for one in model.parameters()]).norm().item()
    print(f"step: {step}  loss: {loss.item():.4f}  grad_norm: {norm:.4f}", flush=True)
    for one in model.parameters():
        dist.all_reduce(one.grad)
        one.grad /= dist.get_world_size()
    optimizer.step()
    time.sleep(0.2)
"""


class Cluster:
    """A server that can be killed, agents of three machines, and a job of four ranks."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.folder, self._stack = folder, stack
        self.clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HANGDOG_", "SLURM_", "RANK", "WORLD_"))
        }
        self._server = self.serve()
        for name in sorted(set(MACHINES)):
            broken = {
                "PYTHONPATH": str(FAULTS),
                "HANGDOG_TEST_FAULT": "rare gradient",
                "HANGDOG_TEST_VICTIM": "minigpt",
            }
            environ = self.clean | (broken if name == MACHINES[GUILTY] else {})
            sets = [word for one in SMALL for word in ("--set", one)]
            command = ("--server", self.address, "--machine", name, "--match-env", f"{OURS}={name}", *sets)
            self.start("agents", ("-m", "hangdog_agent.main", *command), environ)

    def start(
        self, log: str, command: tuple[str, ...], env: Mapping[str, str], piped: bool = False
    ) -> subprocess.Popen[bytes]:
        file = self._stack.enter_context((self.folder / log).open("ab"))
        out = subprocess.PIPE if piped else file
        process = subprocess.Popen((sys.executable, *command), env=env, stdout=out, stderr=file)
        if process.stdout is not None:
            self._stack.callback(process.stdout.close)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        return process

    def serve(self) -> subprocess.Popen[bytes]:
        command = ("-m", "hangdog", "server", "--store", str(self.folder / "s.db"), "--listen", self.address)
        server = self.start("server", command, self.clean, piped=True)
        assert first_line(server, PATIENCE_S).startswith("listening on ")
        return server

    def kill_and_serve_again(self) -> None:
        self._server.send_signal(signal.SIGKILL)
        self._server.wait()
        self._server = self.serve()

    def train(self) -> list[subprocess.Popen[bytes]]:
        (self.folder / "train.py").write_text(TRAINER)
        common = {
            "HANGDOG_JOB": "numbers", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "", "FOLDER": str(self.folder),
        }  # fmt: skip
        return [
            self.start(
                f"rank{rank}", (str(self.folder / "train.py"),), self.clean | common | {"RANK": str(rank), OURS: name}
            )
            for rank, name in enumerate(MACHINES)
        ]

    def running(self) -> int:
        """How many ranks the server knows."""
        with Client(ServerAddress(self.address)) as client:
            return sum(len(job.ranks) for line in client.machines() if line.connected for job in line.jobs)

    def ranks(self, count: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while self.running() != count:
            assert time.monotonic() < until, (self.folder / "agents").read_text()
            time.sleep(0.25)

    def incidents(self) -> list[Incident]:
        with Client(ServerAddress(self.address)) as client:
            return [line for line in client.incidents("", 9) if line.why.startswith(NUMBERS_WHY)]

    def judged(self, rank: int) -> tuple[Incident, Verdict]:
        """The incident, once its verdict names this rank: reports of several machines may come one after another."""
        until = time.monotonic() + PATIENCE_S
        while True:
            for line in self.incidents():
                with Client(ServerAddress(self.address)) as client:
                    verdict = client.incident(line.id)[1]
                if verdict is not None and verdict.numbers is not None and verdict.numbers.rank == rank:
                    return line, verdict
            assert time.monotonic() < until, (self.folder / "agents").read_text()
            time.sleep(0.25)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def logged(folder: Path, steps: int) -> None:
    """Returns once every rank has logged so many steps."""
    until = time.monotonic() + PATIENCE_S
    while any((folder / f"rank{rank}").read_text().count("step:") < steps for rank in range(len(MACHINES))):
        assert time.monotonic() < until, (folder / "rank0").read_text()
        time.sleep(0.2)


def test_nan_in_one_gradient_is_one_incident_and_alignment_finds_the_machine(cluster: Cluster, tmp_path: Path) -> None:
    trainers = cluster.train()
    cluster.ranks(len(MACHINES))
    logged(tmp_path, 40)  # a job that never had sound numbers has no onset
    (tmp_path / "go").touch()
    until = time.monotonic() + PATIENCE_S
    while not (tmp_path / "struck").exists() or not (tmp_path / "struck").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    step, at = (tmp_path / "struck").read_text().split()
    time.sleep(3.0)
    cluster.kill_and_serve_again()
    incident, verdict = cluster.judged(GUILTY)
    judged_s = time.monotonic() - float(at)
    print(f"NaN at step {step}, server killed after 3 s, judged after {judged_s:.1f} s: {headline(verdict)}")
    assert judged_s < JUDGED_S
    assert verdict.kind is Kind.UNDETERMINED and not verdict.evict.machines
    assert verdict.numbers is not None and verdict.numbers.step == int(step) and verdict.numbers.value == "NaN"
    assert verdict.suspects[0].machines == ("m1",) and verdict.suspects[0].probability < 0.5
    assert verdict.next[0].do is Act.TEST and verdict.next[0].machines == ("m1",)
    assert all(one.poll() is None for one in trainers), "nobody touched the job"
    for one in trainers:
        one.kill()
        one.wait()
    cluster.ranks(0)
    time.sleep(8.0)  # longer than a crash is collected: it was ended, and is told or not beside this
    command = ("test", "run", "--incident", incident.id, "--level", "4", "--budget", "5m", "--server", cluster.address)
    began = time.monotonic()
    tests = subprocess.run(
        (sys.executable, "-m", "hangdog", *command, "--format", "json"),
        check=False,
        env=cluster.clean,
        capture_output=True,
        text=True,
    )
    print(f"alignment: {time.monotonic() - began:.1f} s, status {tests.returncode}")
    assert [one["machine"] for one in json.loads(tests.stdout)["convicted"]] == ["m1"], tests.stderr
    assert [one.id for one in cluster.incidents()] == [incident.id]
