"""One job: how large it is, how fast, and which of the habits that jobs have."""

from dataclasses import dataclass
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.jobs.places import Places
from worlds.timed.layout import Layout


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things last. `queue`: how many kernels a host runs ahead of its device. `chunks`: pieces of the model."""

    kernel_s: float
    host_s: float
    collective_s: float
    queue: int
    chunks: int = 4
    microbatches: int = 4
    bucket: int = 26214400
    sequence: int = 4096
    hidden: int = 4096


@dataclass(frozen=True, slots=True)
class Habits:
    """How a job waits: after each collective, after messages, for a norm, for the loss in mid-step, and what else it does."""

    blocking: bool
    syncs_messages: bool
    syncs_broadcast: bool
    syncs_experts: bool
    syncs_norm: bool
    syncs_gather: bool
    syncs_loss: bool
    clips: bool
    log_every: int
    schedule: str = "none"
    sharded_optimizer: bool = False
    tied_embedding: bool = False
    timers: bool = False
    sparse: bool = False
    syncs_sparse: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job of one framework. `newer`: which of two generations of versions it runs."""

    name: str
    seed: str
    layout: Layout
    places: Places
    pace: Pace
    habits: Habits
    steps: int
    newer: bool
    pinned: bool
    timeout_s: int

    @property
    def gloo(self) -> bool:
        return self.name == "inhouse-gloo"

    @property
    def loads_data(self) -> bool:
        """Whether it has data loaders with worker processes."""
        return "worker_reads" in self.places

    def has_loader(self, rank: Rank) -> bool:
        if self.name == "megatron":
            return self.layout.reads_data(rank)
        return self.loads_data

    def rng(self, rank: Rank, what: str) -> Random:
        """Chance that is the same for the same rank and purpose, whatever else happens."""
        return Random(f"{self.seed}/{rank}/{what}")
