"""The case: all evidence and hypotheses that a verdict is drawn from."""

from collections.abc import Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis
from hangdog_models.diagnosis.hypotheses.scene import Contradiction
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.options import Options
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology


@dataclass(frozen=True, slots=True)
class Case:
    """All evidence and hypotheses of one diagnosis."""

    snapshot: Snapshot
    topology: Topology
    options: Options
    rules: str
    looks: Sequence[Look]
    look: Look
    motion: Motion
    waits: Waits
    hypotheses: Sequence[Hypothesis]
    clusters: Sequence[Cluster]
    contradictions: Sequence[Contradiction] = ()
