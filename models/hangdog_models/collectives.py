"""What the collectives library itself recorded: which operations each rank enqueued and finished in each process group."""

from dataclasses import dataclass

from hangdog_models.ranks import Rank


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """One operation of one rank. `sequence` counts within the process group; `done` says it was retired.

    Sends and receives (`p2p`) have a sequence of their own in the same group.
    """

    group: str
    sequence: int
    operation: str
    done: bool
    input_sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    p2p: bool = False


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """One rank's PyTorch flight recorder dump, reduced to what diagnosis uses.

    A process group goes by its name, which all its members share; a dump's numbers for it differ between ranks.
    `enqueued` and `completed` map a group to its last collective's sequence number (-1: none yet).
    `members` maps a group to its ranks where the dump says so (gloo's does not). `entries` run from old to new.
    """

    rank: Rank
    enqueued: dict[str, int]
    completed: dict[str, int]
    entries: tuple[CollectiveRecord, ...]
    members: dict[str, tuple[Rank, ...]]
    descriptions: dict[str, str]
