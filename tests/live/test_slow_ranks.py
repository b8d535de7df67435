"""A real job of eight ranks over gloo, one of which comes to take longer: agents and server notice by themselves, and name it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import pytest

from frameworks.guard import ClusterGuard
from hangdog.demo.conductor import free_port
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.procfs import Proc
from hangdog_agent.settings import AgentSettings
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.incident import SLOWED_WHY, Incident
from hangdog_models.verdict import Kind, from_json
from live.lanes import further

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'"),
]
OURS, MACHINE = "HANGDOG_LIVE_SLOW", "HANGDOG_LIVE_SLOW_MACHINE"
WORLD, PER_MACHINE, GUILTY = 8, 2, 5
#: The bound of the promise: from the moment from which a rank takes longer to the verdict that names it. Seconds.
NAMED_S = 180.0
#: Healthy training that `make soak` watches. Seconds.
SOAK_S = 3600.0
#: Until all ranks step, on a crowded machine. Seconds.
PATIENCE_S = 300.0
#: One stop and the time until the next one, as of a throttled core: many kernels, for one that runs goes on meanwhile. Seconds.
PERIOD_S = 3.0
#: Five minutes of getting known are too long for every change: there steps are timed one by one, and a job is known after so long.
HURRIED = StallSettings(slow_sample_s=1.0, slow_settle_s=30.0, beat_s=0.5, log_every_s=0.5)
KNOWN_S, HURRIED_KNOWN_S = 330.0, 90.0

TRAINER = """
import os, sys, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
longest = rank == int(os.environ["LONGEST"])
dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def kernels():
    times = os.path.getsize("slowed") / 100 if rank == 5 and os.path.exists("slowed") else 1.0
    for _ in range(8 if longest else 5):
        time.sleep(0.3 * times)  # the host waits for its device, and launches the next one

def compute():
    model(torch.randn(8, 64)).square().mean().backward()
    kernels()

def average_gradients():
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    dist.all_reduce(flat)

step = 0
while True:
    step += 1
    optimizer.zero_grad()
    compute()
    average_gradients()
    optimizer.step()
    print(f"step {step} loss 0.1", flush=True)
"""


def _machine(number: int) -> str:
    """Where ranks say that they run: the jobs of two tests are told apart."""
    return f"m{number}-{os.getpid()}"


class SlowJob:
    """Eight ranks, two on each machine, of which one may be slowed; leaving the context ends them."""

    def __init__(self, folder: Path, longest: int = -1) -> None:
        (folder / "train.py").write_text(TRAINER)
        self._folder, self._longest = folder, longest

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # which ends them, too, where they do not come to train
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def _start(self, stack: ExitStack) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "RANK", "WORLD_"))}
        clean |= {
            OURS: str(self._folder), "HANGDOG_JOB": f"slowing-{os.getpid()}", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
            "CUDA_VISIBLE_DEVICES": "", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(WORLD), "LONGEST": str(self._longest),
        }  # fmt: skip
        self.ranks = []
        for rank in range(WORLD):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank % PER_MACHINE), MACHINE: _machine(rank // PER_MACHINE)}
            log = stack.enter_context((self._folder / f"rank{rank}.log").open("wb"))
            process = subprocess.Popen(
                (sys.executable, "train.py"), cwd=self._folder, env=clean | own, stdout=log, stderr=log
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            self.ranks.append(process)
        until = time.monotonic() + PATIENCE_S
        while not all("step 5 " in (self._folder / f"rank{rank}.log").read_text() for rank in range(WORLD)):
            assert time.monotonic() < until and all(one.poll() is None for one in self.ranks)
            time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def step(self) -> int:
        return int((self._folder / "rank0.log").read_text().splitlines()[-1].split()[1])

    @contextmanager
    def slowed(self, by: float) -> Iterator[None]:
        """The device of the guilty rank takes longer by this share, as at lower clocks; the file's size says how many percent."""
        (self._folder / "slowed").write_bytes(bytes(round(100 * (1 + by))))
        yield

    @contextmanager
    def throttled(self, by: float) -> Iterator[None]:
        """The guilty rank is stopped again and again, for as long as makes it take longer by this share."""
        over, pid = threading.Event(), self.ranks[GUILTY].pid
        runs_s = PERIOD_S / (1 + by)

        def throttle() -> None:
            while not over.wait(runs_s):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(PERIOD_S - runs_s)
                os.kill(pid, signal.SIGCONT)

        throttling = threading.Thread(target=throttle)
        throttling.start()
        try:
            yield
        finally:
            over.set()
            throttling.join()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


Slowing = Callable[[SlowJob, float], AbstractContextManager[None]]


@contextmanager
def watched(folder: Path, hurried: bool = False) -> Iterator[ClusterGuard]:
    settings = AgentSettings()
    if hurried:
        settings = replace(settings, stalls=HURRIED)

    def watch(machine: str) -> Watch:
        return Watch(
            ProcessTable(Proc(), frozenset([MACHINE])),
            (MACHINE, _machine(int(machine[1:]))),
            (),
            settings.link.forget_s,
        )

    machines = {f"m{number}": watch(f"m{number}") for number in range(WORLD // PER_MACHINE)}
    with ClusterGuard(machines, folder, settings) as guard:
        yield guard


def slower(guard: ClusterGuard) -> list[Incident]:
    return [one for one in guard.incidents() if one.why.startswith(SLOWED_WHY)]


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("by", "hurried", "how"),
    [
        (1.0, True, SlowJob.slowed), further(1.0, False, SlowJob.slowed), further(0.5, False, SlowJob.slowed),
        further(0.2, False, SlowJob.slowed), further(1.0, True, SlowJob.throttled),
    ],
)  # fmt: skip
def test_a_rank_that_comes_to_take_longer_is_named(tmp_path: Path, by: float, hurried: bool, how: Slowing) -> None:
    with SlowJob(tmp_path) as job, watched(tmp_path, hurried) as guard:
        begun, before = time.monotonic(), job.step()
        time.sleep(HURRIED_KNOWN_S if hurried else KNOWN_S)
        usual_s = (time.monotonic() - begun) / (job.step() - before)
        assert not slower(guard)
        broken, before = time.monotonic(), job.step()
        with how(job, by):
            while not (found := [one for one in slower(guard) if one.kind]):
                now_s = (time.monotonic() - broken) / max(1, job.step() - before)
                if time.monotonic() - broken > NAMED_S and now_s < (1 + by / 2) * usual_s:
                    pytest.skip(f"a machine too crowded to slow a rank: {usual_s:.2f} s a step, then {now_s:.2f} s")
                assert time.monotonic() - broken < NAMED_S, slower(guard)
                time.sleep(2.0)
            now_s = (time.monotonic() - broken) / (job.step() - before)
    (incident,) = found
    verdict = from_json(json.loads(incident.verdict))
    told_s, named_s = incident.began - broken, incident.changed - broken
    print(
        f"\n{by:.0%}: {usual_s:.2f} s a step, then {now_s:.2f} s; told after {told_s:.0f} s, named after {named_s:.0f} s"
    )
    print(incident.why, verdict.kind, verdict.confidence, verdict.because, flush=True)
    assert named_s < NAMED_S
    # one that is stopped in the last look is no longer merely slow
    assert verdict.kind is Kind.SLOW or how is SlowJob.throttled, verdict.because
    assert verdict.suspects[0].ranks == (GUILTY,) and verdict.suspects[0].machines == (f"m{GUILTY // PER_MACHINE}",)


@pytest.mark.soak
@pytest.mark.timeout(2 * SOAK_S)
@pytest.mark.parametrize("longest", [-1, GUILTY], ids=["all alike", "one always draws the longest samples"])
def test_an_hour_of_healthy_training_is_never_told_to_be_slower(tmp_path: Path, longest: int) -> None:
    with SlowJob(tmp_path, longest) as job, watched(tmp_path) as guard:
        begun, before = time.monotonic(), job.step()
        while time.monotonic() - begun < SOAK_S:
            time.sleep(60.0)
            passed_s = time.monotonic() - begun
            print(f"{passed_s:5.0f} s: {passed_s / (job.step() - before):.2f} s a step", guard.incidents(), flush=True)
        assert not [one for one in slower(guard) if one.evict or one.kind == Kind.SLOW]
