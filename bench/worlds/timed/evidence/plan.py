"""What is captured of an incident, in which folders, and which ranks cannot be captured."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.incident import Incident


class Failure(StrEnum):
    """Why a rank could not be captured."""

    GONE = "there is no such process"
    NO_FILES = "its files in /proc are gone"
    ZOMBIE = "it has ended, and nobody waited for it"
    UNREACHABLE = "its machine does not answer"
    NOT_STOPPED = "it cannot be suspended"
    NO_ANSWER = "the tool gave no answer in time"
    FORBIDDEN = "the tool may not read it"
    LOST = "its file was lost"


#: Failures of processes that have ended.
ENDED = (Failure.GONE, Failure.NO_FILES, Failure.ZOMBIE)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a bundle has: kinds of evidence, the form of its folders, and what its job.toml says.

    `folders`: `machines` (one for each), `flat` or `stacks`. `job_file`: `full`, `world` (its size alone) or `none`.
    """

    native: bool
    marks_native: bool
    processes: bool
    recorder: bool
    ras: bool
    log: bool
    kernel: bool
    workers: bool
    folders: str
    job_file: str
    stalled: bool
    separator: str
    subprocesses: bool
    failures: Mapping[Rank, Failure]
    absent: frozenset[tuple[int, Rank]]

    @property
    def names_machines(self) -> bool:
        return self.folders == "machines" or self.job_file == "full"


def plan(incident: Incident, rng: Random) -> Plan:
    """Draws what is captured."""
    job, kind = incident.job, incident.kind
    job_file = rng.choice(("full",) * 5 + ("world",) * 3 + ("none",) * 2)
    notable = kind.family in ("machine", "software", "dependency") or (
        kind.family == "healthy" and kind.name != "training"
    )
    hosts_only = job.name == "jax" or kind.name in ("name-service", "dead-store", "licence", "connecting")
    return Plan(
        native=rng.random() < 0.3,
        marks_native=rng.random() < 0.5,
        processes=rng.random() < 0.62,
        recorder=rng.random() < 0.42 and not (hosts_only and (job.name == "jax" or incident.scene.starts_up)),
        ras=rng.random() < 0.2 and not job.gloo and not incident.scene.starts_up,
        log=rng.random() < 0.5,
        kernel=rng.random() < 0.38,
        workers=rng.random() < 0.4 and job.loads_data and kind.name != "data-service",
        folders=rng.choice(("machines", "machines", "flat", "stacks")),
        job_file=job_file,
        stalled=rng.random() < 0.5 and notable and job_file != "none",
        separator=rng.choice(("", "-", "_")),
        subprocesses=rng.random() < 0.3,
        failures=_failures(incident, rng),
        absent=frozenset(
            (look, rng.choice(job.layout.ranks))
            for look in range(len(incident.looks))
            if len(incident.looks) > 1 and rng.random() < 0.12
        ),
    )


def _failures(incident: Incident, rng: Random) -> Mapping[Rank, Failure]:
    layout, guilty = incident.layout, set(incident.scene.ranks)
    failed: dict[Rank, Failure] = {}
    for rank in layout.ranks:
        at = incident.seen(rank)
        if incident.frozen(rank):
            failed[rank] = Failure.UNREACHABLE
        elif incident.host(rank).dead is not None:
            failed[rank] = rng.choice(ENDED)
        elif at is not None and at.state == "D" and rng.random() < 0.5:
            failed[rank] = Failure.NOT_STOPPED
        elif at is not None and at.state == "T" and rng.random() < 0.35:
            failed[rank] = Failure.NO_ANSWER
    if rng.random() < 0.15:
        machine = rng.choice(layout.machines)
        innocent = (
            layout.ranks_on(machine) if rng.random() < 0.3 else rng.sample(layout.ranks, min(2, len(layout.ranks) // 8))
        )
        for rank in innocent:
            if rank not in guilty and rank not in failed:
                failed[rank] = rng.choice((Failure.NO_ANSWER, Failure.FORBIDDEN, Failure.LOST))
    return failed
