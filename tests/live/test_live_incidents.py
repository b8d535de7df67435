"""Real jobs of every parallelism, broken from outside or merely busy: recorded by the agent's own capture, and judged."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models import topology
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.errors import OurFault
from hangdog_models.verdict import Kind, Verdict
from live.incident import Incident, look_alikes, play
from live.job import Job, Launcher
from live.lanes import further
from live.plan import DUTIES, Plan

#: An incident takes some 8 s with 8 ranks on two idle cores, one of 32 ranks some 40; this bounds a busy machine. Seconds.
INCIDENT_S = 400.0
#: Trainer, ranks, ranks on each machine, fault, the rank it strikes: with flight recorders, which the watched jobs of
#: test_detection.py have not, and larger than those. They hold every fault on 8 ranks of each trainer.
INCIDENTS = (
    ("pipeline", 8, 2, "gc", 6),
    ("combined", 16, 4, "skip-collective", 13),
)
#: Much like those, and judged by `make soak` only.
FURTHER = (
    ("ddp", 8, 2, "skip-collective", 5),
    ("combined", 32, 4, "dataloader", 21),
    ("fsdp", 32, 8, "sigstop", 17),
    ("fsdp", 8, 2, "dataloader", 4),
    ("tensor", 8, 2, "checkpoint", 4),
    ("pipeline", 8, 2, "lock", 2),
    ("ddp", 16, 4, "dataloader", 9),
    ("pipeline", 16, 4, "lock", 5),
)
#: What a look-alike may be called. `slow` is what one rank is that works for seconds while all others wait for it.
HARMLESS = (Kind.NONE, Kind.UNDETERMINED)
ALONE = {"review", "export", "recompile"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(INCIDENT_S),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'"),
]


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as running:
        yield running


@pytest.fixture(scope="module", params=["combined", *map(further, ("ddp", "fsdp", "tensor", "pipeline"))])
def harmless(
    request: pytest.FixtureRequest, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """One healthy job, recorded at each of its duties.

    A job that dies by itself is no healthy one and shows nothing of hangdog: another is played, and what it died of is told.
    """

    def recorded(seed: int) -> dict[str, Path]:
        plan = Plan(request.param, seed=seed)
        return dict(look_alikes(plan, launcher, tmp_path_factory.mktemp("harmless"), list(DUTIES)))

    try:
        return recorded(1)
    except OurFault as death:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\nplayed once more: {death}")
        return recorded(2)


@pytest.mark.parametrize(
    ("number", "trainer", "world", "per_machine", "fault", "rank"),
    [
        (further if each in FURTHER else pytest.param)(number, *each, id="-".join(map(str, (*each[:2], *each[3:]))))
        for number, each in enumerate((*INCIDENTS, *FURTHER))
    ],
)
def test_the_culprit_is_named(
    launcher: Launcher, tmp_path: Path, number: int, trainer: str, world: int, per_machine: int, fault: str, rank: int
) -> None:
    incident = Incident(Plan(trainer, world, number, per_machine), fault, rank)
    play(incident, launcher, tmp_path / "bundle")
    for counted in (True, False):
        verdict = judged(tmp_path / "bundle", counted)
        assert verdict.kind in (incident.fault.right, *incident.fault.also), verdict.because
        if verdict.kind is Kind.SOFTWARE:
            assert not verdict.evict.machines
        else:
            assert verdict.suspects[0].machines == (incident.machine,), verdict.because
            assert verdict.evict.machines in ((incident.machine,), ())


@pytest.mark.parametrize("duty", DUTIES)
def test_what_merely_takes_its_time_is_no_alarm(harmless: dict[str, Path], duty: str) -> None:
    for counted in (True, False):
        verdict = judged(harmless[duty], counted)
        assert verdict.kind in (*HARMLESS, *([Kind.SLOW] if duty in ALONE else [])), verdict.because
        assert not verdict.evict.machines


def judged(bundle: Path, counted: bool) -> Verdict:
    """The verdict on a bundle, with what its flight recorders counted or without."""
    snapshot, layout = open_bundle(bundle)
    assert snapshot.counters
    built, _ = topology.build(layout, snapshot.highest_rank())
    return diagnose(snapshot if counted else replace(snapshot, counters=()), built)


def test_nothing_of_a_job_outlives_it(launcher: Launcher) -> None:
    with Job(Plan("ddp"), launcher) as job:
        job.train_until(1)
        workers = {pid: children(pid) for pid in job.pids.values()}
        assert all(workers.values())  # those of its loader
    everybody = [pid for trainer, below in workers.items() for pid in (trainer, *below)]
    assert not [pid for pid in everybody if Path(f"/proc/{pid}").exists()]


def children(pid: int) -> list[int]:
    return [int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()]
