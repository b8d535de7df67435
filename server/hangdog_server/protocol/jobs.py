"""What the agents announce of a job, and the layout of the job that follows from it."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from hangdog_models import counts
from hangdog_models.errors import HangdogError
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.ranks import Rank
from hangdog_models.reading.job import read_job, read_sizes
from hangdog_models.snapshot import Job
from hangdog_models.topology import Layout
from hangdog_server.protocol.switches import shared

Ranks = tuple[Rank, ...]
Placement = Mapping[str, Ranks]
#: Words of agents that a verdict repeats: on large jobs each machine presumes ranks of its own.
_MOST_NOTES = 8
Announced = TypeVar("Announced", int, str)


@dataclass(frozen=True, slots=True)
class AnnouncedJob:
    """A job as the agent of one machine announces it; `topology` is its HANGDOG_TOPOLOGY, empty when unset.

    `owner` is whose it is; `rendezvous` where the ranks of a job without a name meet, as they say; `contested` are ranks
    that several containers of the machine claim; `pods` are the UIDs of the pods that they run in. `notes` are what the agent
    says of it that is not certain, or contradicts. `switch` is what its machine hangs behind, as Slurm says. `domains` are what its
    machine shares with others by the labels of its node: no agent says them.
    """

    job: str
    ranks: tuple[Rank, ...]
    world_size: int | None = None
    topology: str = ""
    owner: Owner = UNKNOWN
    rendezvous: str = ""
    contested: Ranks = ()
    pods: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    switch: str = ""
    domains: tuple[str, ...] = ()


def sole(sizes: Collection[int | None]) -> int | None:
    """How many ranks a job has by what its machines say; None where nobody says, or they differ."""
    known = {size for size in sizes if size}
    return known.pop() if len(known) == 1 else None


def describe(
    job: str,
    job_toml: str,
    announced: Mapping[str, AnnouncedJob],
    placed: Placement,
    stalled_s: float | None = None,
) -> tuple[Job, Layout, tuple[str, ...]]:
    """The job and its layout, with notes on what did not fit; raises the reader's error when `job_toml` is unreadable.

    What a person declares in `job_toml` wins; what the agents announce fills the rest. `placed` says where ranks run, and
    `stalled_s` for how long the job had stood still when it was suspected.
    """
    if job_toml:
        declared, layout = read_job(job_toml)
        notes = _contradicted(layout, announced)
        described = Job(job, declared.framework, declared.stalled_s or stalled_s)
    else:
        layout, notes = _announced(announced)
        described = Job(job, stalled_s=stalled_s)
    # A derived "node-3" names no machine of this cluster: only declared and reporting machines are placed upon.
    behind = shared(layout.switches, announced)
    machines = _merged(layout.machines, placed)
    layout = replace(layout, machines=machines, ranks_per_machine=None, switches=behind.switches)
    return described, layout, (*notes, *behind.notes)


def _contradicted(declared: Layout, announced: Mapping[str, AnnouncedJob]) -> tuple[str, ...]:
    """What the agents announce of the sizes that a person declared otherwise."""
    layout, _ = _announced(announced)
    differing = [dim for dim, size in layout.sizes.items() if declared.sizes and declared.sizes.get(dim, 1) != size]
    noted = ",".join(f"{dim}={layout.sizes[dim]}" for dim in differing)
    return (f"job.toml is believed, but the job's own processes say {noted}",) if differing else ()


def _announced(announced: Mapping[str, AnnouncedJob]) -> tuple[Layout, tuple[str, ...]]:
    """The layout most machines announce; the ones that say otherwise are noted."""
    noted = Counter(note for local in announced.values() for note in local.notes)
    notes = [_of_machines(note, noted[note], len(announced)) for note in _ordered(noted)[:_MOST_NOTES]]
    worlds = Counter(local.world_size for local in announced.values() if local.world_size)
    texts = Counter(local.topology for local in announced.values() if local.topology)
    if len(worlds) > 1:
        notes.append(f"machines announce different world sizes: {_counted(worlds)}; the first is believed")
    if len(texts) > 1:
        notes.append(f"machines announce different topologies: {_counted(texts)}; the first is believed")
    sizes: Mapping[str, int] = {}
    if texts:
        text = _ordered(texts)[0]
        try:
            sizes = read_sizes(text)
        except HangdogError as error:
            notes.append(f"HANGDOG_TOPOLOGY={text!r} is not used: {error}")
    return Layout(world_size=_ordered(worlds)[0] if worlds else None, sizes=sizes), tuple(notes)


def _of_machines(note: str, count: int, all_of_them: int) -> str:
    return note if count == all_of_them else f"{note} ({counts.counted(count, 'machine')})"


def _ordered(counted: Counter[Announced]) -> list[Announced]:
    """Most frequent first, ties by value: the answer must not depend on which agent came first."""
    return sorted(counted, key=lambda value: (-counted[value], value))


def _counted(counted: Counter[Announced]) -> str:
    return ", ".join(f"{value} ({counts.counted(counted[value], 'machine')})" for value in _ordered(counted))


def _merged(declared: Placement, placed: Placement) -> dict[str, tuple[Rank, ...]]:
    taken = {rank for ranks in declared.values() for rank in ranks}
    merged = dict(declared)
    for machine, ranks in sorted(placed.items()):
        rest = tuple(rank for rank in ranks if rank not in taken)
        if rest:
            merged[machine] = tuple(sorted((*merged.get(machine, ()), *rest)))
    return merged
