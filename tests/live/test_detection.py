"""Faults in watched live jobs: how soon the agents suspect, how soon there is a verdict; and that healthy jobs are let be."""

import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from hangdog.demo.faults import FAULTS, Victim, replace_shards, spoil_next_checkpoint
from hangdog.demo.job.settings import write_settings
from hangdog_models.verdict import Kind, Verdict, from_json
from hangdog_server.settings import ServerSettings
from live.guard import Guard
from live.job import Job, Launcher
from live.lanes import further
from live.network import Network
from live.plan import Plan
from live.stalled import Stalled

#: What issue and README promise: from the last step to the suspicion, and from there to the verdict. Seconds.
SUSPECTED_S, JUDGED_S = 15.0, 20.0
#: Ranks alternate between work and waits for so long before a fault strikes, so that their rhythm is known. Seconds.
TRAINED_S = 14.0
#: A fault may take a while to bring the job to its standstill: loaders hold batches, checkpoints are due every fifth step.
ONSET_S = 120.0
#: Steps ahead at which a rank is told to begin something: it reads its settings before every step.
SOON = 10
#: How often steps and incidents are asked for. Seconds.
TICK_S = 0.1
#: Trainer, fault, the rank it strikes; their combination is the demo's job.
STRUCK = tuple(
    (trainer, fault, (3 * number + 5 * len(trainer)) % 8)
    for trainer in ("ddp", "fsdp", "tensor", "pipeline")
    for number, fault in enumerate(FAULTS)
)

#: With every change every other fault strikes the job of one trainer. One of DDP is struck by the dry run of `bench/gpu`
#: (tests/gpu/test_gpu_dry.py), with agents of its own.
BY_TURNS = {
    (("fsdp", "tensor", "pipeline")[number % 3], fault) for number, fault in enumerate(FAULTS) if number % 2 == 0
}
CASES = [(pytest.param if each[:2] in BY_TURNS else further)(*each, id="-".join(map(str, each))) for each in STRUCK]

#: Faults whose rank is at work, as in an evaluation. In a job that is watched for less than an hour it may be the first one,
#: and five minutes go by; what is played here stands for a job whose phases are known.
AT_WORK = ("gc",)
KNOWN = ServerSettings(young_s=0.0)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'"),
]


needs_network = pytest.mark.skipif(
    shutil.which("ip") is None or os.geteuid() != 0, reason="needs root and `ip`: apt-get install iproute2"
)


@dataclass(frozen=True, slots=True)
class Detected:
    """One fault: seconds from the last step to the suspicion, from there to the verdict, and the verdict."""

    name: str
    suspected_s: float
    judged_s: float
    kind: str


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as started:
        yield started


@pytest.fixture(scope="module")
def table() -> Iterator[list[Detected]]:
    """What was measured, printed when all is over."""
    found: list[Detected] = []
    yield found
    print("\n| fault | suspected after, s | judged after, s | verdict |\n|---|---|---|---|")
    for one in found:
        print(f"| {one.name} | {one.suspected_s:.1f} | {one.judged_s:.1f} | {one.kind} |")


@pytest.mark.parametrize(("trainer", "fault", "rank"), CASES)
def test_a_fault_is_suspected_and_judged_in_time(
    launcher: Launcher, table: list[Detected], tmp_path: Path, trainer: str, fault: str, rank: int
) -> None:
    server = KNOWN if fault in AT_WORK else None
    with Job(Plan(trainer, seed=rank), launcher) as job, Guard(job, tmp_path, server) as guard:
        train(job, guard)
        FAULTS[fault].strike(Victim(job.pids[rank], job.rank_folder(rank), random.Random(rank)))
        verdict = detected(f"{trainer} {fault} {rank}", job, guard, table)
    blamed(verdict, job, rank, FAULTS[fault].right, *FAULTS[fault].also)


@pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK) or os.geteuid() != 0, reason="needs root and FUSE")
@pytest.mark.parametrize("trainer", [further("pipeline"), further("fsdp")])
def test_a_share_whose_server_is_gone(launcher: Launcher, table: list[Detected], tmp_path: Path, trainer: str) -> None:
    with Job(Plan(trainer), launcher) as job, Guard(job, tmp_path) as guard:
        train(job, guard)
        shards = job.rank_folder(5) / "shards"
        with Stalled(shards) as stalled:
            replace_shards(shards, lambda path, name: path.symlink_to(stalled.folder / name))
            verdict = detected(f"{trainer} stalled share 5", job, guard, table)
    blamed(verdict, job, 5)


@pytest.mark.parametrize("trainer", [further("pipeline"), further("ddp")])
def test_a_disk_that_is_full_at_a_checkpoint(
    launcher: Launcher, table: list[Detected], tmp_path: Path, trainer: str
) -> None:
    with Job(Plan(trainer), launcher) as job, Guard(job, tmp_path, KNOWN) as guard:
        train(job, guard)
        spoil_next_checkpoint(job.rank_folder(3), lambda path: path.symlink_to("/dev/full"))
        verdict = detected(f"{trainer} full disk 3", job, guard, table)
    blamed(verdict, job, 3, Kind.MACHINE, Kind.DEPENDENCY, Kind.SOFTWARE, Kind.SLOW)  # which of them no stack tells


@pytest.mark.parametrize("trainer", ["tensor", further("ddp")])
def test_a_compilation_that_does_not_end(
    launcher: Launcher, table: list[Detected], tmp_path: Path, trainer: str
) -> None:
    with Job(Plan(trainer), launcher) as job, Guard(job, tmp_path, KNOWN) as guard:
        train(job, guard)
        write_settings(job.rank_folder(2) / "settings.json", {"recompile_at": job.step + SOON})
        verdict = detected(f"{trainer} runaway compile 2", job, guard, table)
    blamed(verdict, job, 2, Kind.SLOW, Kind.NONE)  # it gets on, with something all others wait for


@needs_network
@pytest.mark.parametrize("trainer", [further("ddp"), "combined", further("fsdp")])
def test_a_network_that_is_parted(launcher: Launcher, table: list[Detected], tmp_path: Path, trainer: str) -> None:
    with Network() as network, Job(Plan(trainer), launcher, network=network) as job, Guard(job, tmp_path) as guard:
        train(job, guard)
        network.part()
        verdict = detected(f"{trainer} parted network", job, guard, table)
    assert verdict.kind in (Kind.GROUP, Kind.UNDETERMINED)
    assert verdict.kind is Kind.GROUP or not verdict.evict.machines


@needs_network
@pytest.mark.parametrize("variable", ["HANGDOG_LOG", further("HANGDOG_HEARTBEAT")])
def test_ranks_that_wait_by_polling(launcher: Launcher, table: list[Detected], tmp_path: Path, variable: str) -> None:
    """All their pulses stay lively: only the journal, as a log with step lines or as a file that is touched, tells of it."""
    files = {variable: "journal.log"}
    with (
        Network() as network,
        Job(Plan("polling"), launcher, network=network, files=files) as job,
        Guard(job, tmp_path) as guard,
    ):
        train(job, guard)
        network.part()
        detected(f"polling parted network, {variable}", job, guard, table)


def train(job: Job, guard: Guard) -> None:
    """Trains until the ranks have a rhythm; nobody is alarmed by that."""
    job.train_for(TRAINED_S)
    assert not guard.incidents()


def detected(name: str, job: Job, guard: Guard, table: list[Detected]) -> Verdict:
    """Waits for the first verdict, and holds its times against the promise."""
    until = time.monotonic() + ONSET_S
    while (found := guard.verdict()) is None:
        stood = time.monotonic() - job.silent_s()
        assert time.monotonic() < until, guard.incidents()
        time.sleep(TICK_S)
    suspected_s, judged_s = found.began - stood, found.changed - found.began
    table.append(Detected(name, suspected_s, judged_s, found.kind))
    assert found.why.startswith("suspected: ")
    assert suspected_s <= SUSPECTED_S
    assert judged_s <= JUDGED_S
    return from_json(json.loads(found.verdict))


def blamed(verdict: Verdict, job: Job, rank: int, *right: Kind) -> None:
    """Holds a verdict against the truth: the machine of this rank, or software and nobody's machine."""
    assert verdict.kind in (right or (Kind.MACHINE,)), verdict.because
    machine = job.plan.machine(rank)
    if verdict.kind not in (Kind.SOFTWARE, Kind.NONE):
        assert verdict.suspects[0].machines == (machine,), verdict.because
    assert verdict.evict.machines in (((machine,), ()) if verdict.kind is Kind.MACHINE else ((),))
