"""Healthy live jobs that compile, evaluate, export and save are watched, and nobody is alarmed."""

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from hangdog_models.incident import Incident
from live.guard import Guard
from live.job import Job, Launcher
from live.lanes import further
from live.plan import DUTIES, Plan

#: Each duty lasts so long; a compilation is one, however long it takes. Seconds.
BRIEF_S, LONG_S = 8.0, 40.0
#: Steps until the first duty and between two: some ten seconds.
APART = 20
TRAINERS = ("ddp", "fsdp", "tensor", "pipeline", "combined")
#: Healthy training that is watched altogether by `make soak`. Seconds.
SOAK_S = 3600.0

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'"),
]


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as started:
        yield started


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("trainer", ["combined", further("polling")])
def test_a_healthy_job_alarms_nobody(launcher: Launcher, tmp_path: Path, trainer: str) -> None:
    assert watched(Plan(trainer), launcher, tmp_path, BRIEF_S) == []


@pytest.mark.soak
@pytest.mark.timeout(2 * SOAK_S)
def test_an_hour_of_healthy_training_alarms_nobody(launcher: Launcher, tmp_path: Path) -> None:
    began, number, found = time.monotonic(), 0, []
    while time.monotonic() - began < SOAK_S:
        plan = Plan(TRAINERS[number % len(TRAINERS)], seed=number)
        found += watched(plan, launcher, tmp_path / str(number), LONG_S)
        number += 1
        print(f"{time.monotonic() - began:5.0f} s: {number} jobs, {len(found)} false alarms", flush=True)
    assert found == []


def watched(plan: Plan, launcher: Launcher, folder: Path, lasting_s: float) -> list[Incident]:
    """Runs a job through all its duties under watch; the incidents that were opened."""
    folder.mkdir(exist_ok=True)
    duties = [duty for duty in DUTIES if duty != "training"]
    due = {f"{duty}_at": APART * (1 + number) for number, duty in enumerate(duties)}
    doers = {f"{duty}_at": DUTIES[duty] for duty in duties}
    files = {"HANGDOG_LOG": "journal.log", "HANGDOG_HEARTBEAT": "journal.log"}  # duties make no steps, so these stall
    with Job(plan, launcher, due, doers, files=files) as job, Guard(job, folder) as guard:
        for duty in duties:
            job.until_begun(duty)
            if duty != "recompile":
                job.go_on_for(lasting_s)
            job.enough(duty)
        job.go_on_for(lasting_s)
        return guard.incidents()
