"""The evidence that hypotheses are drawn from: rank states at one moment, waits, motion, and counters."""

from collections.abc import Sequence
from dataclasses import dataclass

from hangdog_models.collectives import FLIGHT_RECORDER, RankCounters
from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.hypotheses.outliers import Apart
from hangdog_models.diagnosis.observe.motion import ROUNDS_THAT_LAST, Look, Motion
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from hangdog_models.verdict import VerdictReason


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Ranks whose stack and counters are of different moments, and the reason that says so."""

    ranks: tuple[Rank, ...]
    reason: VerdictReason


@dataclass(frozen=True, slots=True)
class Scene:
    """All evidence of one diagnosis.

    - `records`: the ranks' counters.
    - `outliers`: ranks that do something else than their peers.
    - `contradictions`: where stacks and counters contradict each other.
    - `captured`: the number of ranks with any evidence, at most the world size.
    - `stalled_s`: the seconds for which nothing had moved, as stated or as rounds minutes apart show; None if unknown.
    - `stood`: ranks whose flight records of two rounds show that they completed nothing in between.
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
    stood: frozenset[Rank] = frozenset()

    def device_in_one_moment(self, rank: Rank) -> bool:
        """Whether several looks show a rank unchanged, but one moment alone tells how far its device is.

        Two looks may both meet a healthy job where each step waits for its devices. A recorder's dumps of one moment then
        name whoever is last. A watchdog that gave up, and a profiler's rings, tell how long an operation has lasted.
        """
        motion = self.motion  # a job that moved a moment ago may be slow: it takes twice as many looks
        lasting = motion.lasting and (not motion.moved_on or motion.rounds >= 2 * ROUNDS_THAT_LAST)
        if not motion.known or lasting or self.stalled_s is not None or rank in self.stood:
            return False
        return any(one.rank == rank and one.source == FLIGHT_RECORDER for one in self.records)
