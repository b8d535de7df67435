"""What the collectives library itself recorded: which operations each rank enqueued and finished in each process group."""

from dataclasses import dataclass

from hangdog_models.ranks import Rank


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """One operation of one rank. `sequence` counts within the process group; `done` says it was retired."""

    group: str
    sequence: int
    operation: str
    done: bool
    input_sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """One rank's PyTorch flight recorder dump, reduced to what diagnosis uses.

    `enqueued` and `completed` map a process group id to the last sequence number (-1: none yet).
    `members` maps a group id to its ranks where the dump says so (gloo's does not).
    """

    rank: Rank
    enqueued: dict[str, int]
    completed: dict[str, int]
    entries: tuple[CollectiveRecord, ...]
    members: dict[str, tuple[Rank, ...]]
    descriptions: dict[str, str]
