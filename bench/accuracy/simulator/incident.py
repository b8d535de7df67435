"""The nouns of the benchmark: an incident whose truth is known, seen through several levels of evidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Layout, Topology
from hangdog_models.verdict import Kind


class Evidence(StrEnum):
    """What a diagnosis is given of one and the same incident."""

    STACKS = "stacks"
    RECORDER = "stacks + flight recorder"
    RAS = "stacks + RAS"
    NATIVE = "native stacks"


@dataclass(frozen=True, slots=True)
class Truth:
    """What really happened.

    `fault` is its name in the fault matrix, `family` one of "host", "own work", "device", "link", "software",
    "dependency", "healthy", "slow" and "two". `kinds` are the verdicts that are right. `ranks` hold the job up, and `machines` are
    the guilty ones; without these it is wrong to evict anybody. `faults` counts the true faults: 0, 1 or 2. Where a rank's own
    work holds the job up, its machine is to be `found`, and is sound. `at_work`: whose healthy phase the others wait for.
    """

    fault: str
    family: str
    kinds: tuple[Kind, ...]
    ranks: tuple[Rank, ...]
    machines: tuple[str, ...]
    faults: int
    found: tuple[str, ...] = ()
    at_work: tuple[Rank, ...] = ()

    @property
    def sought(self) -> tuple[str, ...]:
        """The machines that the first suspect should be among: the guilty ones, else those of whoever holds the job up."""
        return self.machines or self.found


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident of `framework`; `snapshots` holds one look at it for each level of evidence that applies."""

    name: str
    seed: int
    framework: str
    topology: Topology
    layout: Layout
    truth: Truth
    snapshots: Mapping[Evidence, Snapshot]
