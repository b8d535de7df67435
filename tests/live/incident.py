"""Plays incidents and harmless moments of live jobs, and records each as a bundle."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hangdog.demo.faults import FAULTS, Fault, Victim
from hangdog_server.settings import ServerSettings
from live.job import Job, Launcher
from live.plan import DUTIES, FIRST_DUTY, NEXT_DUTY, Plan

#: The fault strikes after this step: all that is set up once is set up.
STRIKE_AFTER = 4
#: Looks at a job: those the server asks for.
ROUNDS = ServerSettings().rounds


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault of the demo on one rank of a live job."""

    plan: Plan
    cause: str
    rank: int

    @property
    def name(self) -> str:
        return f"{self.plan.trainer}-{self.plan.world}-{self.cause}-{self.rank}-{self.plan.seed}"

    @property
    def fault(self) -> Fault:
        return FAULTS[self.cause]

    @property
    def machine(self) -> str:
        return self.plan.machine(self.rank)


def play(incident: Incident, launcher: Launcher, bundle: Path) -> None:
    """Trains, breaks the rank, waits for the standstill, and records it."""
    with Job(incident.plan, launcher) as job:
        job.train_until(STRIKE_AFTER)
        chance = random.Random(incident.plan.seed)
        incident.fault.strike(Victim(job.pids[incident.rank], job.rank_folder(incident.rank), chance))
        job.until_still(incident.rank)
        job.record(bundle, incident.name, ROUNDS)


def look_alikes(plan: Plan, launcher: Launcher, folder: Path, duties: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Records one healthy job at each of these duties, in this order; yields a duty and its bundle."""
    due = {duty: FIRST_DUTY + NEXT_DUTY * number for number, duty in enumerate(duties)}
    settings = {f"{duty}_at": step for duty, step in due.items() if duty != "training"}
    doers = {f"{duty}_at": DUTIES[duty] for duty in duties}
    with Job(plan, launcher, settings, doers) as job:
        for duty, step in due.items():
            bundle = folder / f"{plan.trainer}-{plan.world}-{duty}-{plan.seed}"
            if duty == "training":
                job.train_until(step)
            else:
                job.until_begun(duty)
            job.record(bundle, bundle.name, ROUNDS)
            job.enough(duty)
            yield duty, bundle
