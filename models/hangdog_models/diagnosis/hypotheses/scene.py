"""What explanations are drawn from: the ranks at one moment, who waits for whom, what moved, and what was counted."""

from collections.abc import Sequence
from dataclasses import dataclass

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.hypotheses.outliers import Apart
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Ranks whose stack and counters tell of different moments, and how to say it."""

    ranks: tuple[Rank, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Scene:
    """`records` are the ranks' counters, `captured` how many ranks were seen in any way, at most as many as there are.

    `stalled_s`: for how many seconds nothing had moved, as somebody stated, or looks minutes apart show; else None.
    `outliers` do something else than their peers; `contradictions` are where stacks and counters deny each other.
    """

    look: Look
    waits: Waits
    motion: Motion
    topology: Topology
    records: Sequence[RankCounters]
    clusters: Sequence[Cluster]
    outliers: Apart
    contradictions: Sequence[Contradiction]
    captured: int
    stalled_s: float | None = None
