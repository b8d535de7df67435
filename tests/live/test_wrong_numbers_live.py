"""NaN in one rank's gradient of a real torch job: one incident that names the rank, and the tests of bits it asks for find its machine."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog_models.incident import NUMBERS_WHY, Incident
from hangdog_models.verdict import Act, Kind, Verdict
from hangdog_models.views.first_line import headline
from support.fakes import ladder
from support.real.killable_server import KillableServer, clean_environ

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


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KillableServer]:
    """A server and the agents of three machines."""
    with ExitStack() as stack:
        server = KillableServer(tmp_path, stack, PATIENCE_S)
        for name in sorted(set(MACHINES)):
            broken = {
                "PYTHONPATH": str(FAULTS),
                "HANGDOG_TEST_FAULT": "rare gradient",
                "HANGDOG_TEST_VICTIM": "minigpt",
            }
            environ = clean_environ() | (broken if name == MACHINES[GUILTY] else {})
            sets = [word for one in SMALL for word in ("--set", one)]
            command = ("--server", server.address, "--machine", name, "--match-env", f"{OURS}={name}", *sets)
            server.start("-m", "hangdog_agent.main", *command, env=environ)
        yield server


def train(server: KillableServer, folder: Path) -> list[subprocess.Popen[bytes]]:
    """A job of four ranks, each with a log of its own."""
    (folder / "train.py").write_text(TRAINER)
    common = clean_environ() | {
        "HANGDOG_JOB": "numbers", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "", "FOLDER": str(folder),
    }  # fmt: skip
    return [
        server.start(str(folder / "train.py"), env=common | {"RANK": str(rank), OURS: name}, log=f"rank{rank}")
        for rank, name in enumerate(MACHINES)
    ]


def judged(server: KillableServer, rank: int) -> tuple[Incident, Verdict]:
    """The incident, once its verdict names this rank: reports of several machines may come one after another."""
    until = server.deadline()
    while True:
        for line in server.incidents(NUMBERS_WHY):
            verdict = server.verdict(line.id)
            if verdict is not None and verdict.numbers is not None and verdict.numbers.rank == rank:
                return line, verdict
        server.wait(until)


def logged(folder: Path, steps: int) -> None:
    """Returns once every rank has logged so many steps."""
    until = time.monotonic() + PATIENCE_S
    while any((folder / f"rank{rank}").read_text().count("step:") < steps for rank in range(len(MACHINES))):
        assert time.monotonic() < until, (folder / "rank0").read_text()
        time.sleep(0.2)


def test_nan_in_one_gradient_is_one_incident_and_alignment_finds_the_machine(
    server: KillableServer, tmp_path: Path
) -> None:
    trainers = train(server, tmp_path)
    server.knows(len(MACHINES))
    logged(tmp_path, 40)  # a job that never had sound numbers has no onset
    (tmp_path / "go").touch()
    until = time.monotonic() + PATIENCE_S
    while not (tmp_path / "struck").exists() or not (tmp_path / "struck").read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    step, at = (tmp_path / "struck").read_text().split()
    time.sleep(3.0)
    server.kill_and_serve_again()
    incident, verdict = judged(server, GUILTY)
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
    server.knows(0)
    time.sleep(8.0)  # longer than a crash is collected: it was ended, and is told or not beside this
    command = ("test", "run", "--incident", incident.id, "--level", "4", "--budget", "5m", "--server", server.address)
    began = time.monotonic()
    tests = subprocess.run(
        (sys.executable, "-m", "hangdog", *command, "--format", "json"),
        check=False,
        env=clean_environ(),
        capture_output=True,
        text=True,
    )
    print(f"alignment: {time.monotonic() - began:.1f} s, status {tests.returncode}")
    assert [one["machine"] for one in json.loads(tests.stdout)["convicted"]] == ["m1"], tests.stderr
    assert [one.id for one in server.incidents(NUMBERS_WHY)] == [incident.id]
