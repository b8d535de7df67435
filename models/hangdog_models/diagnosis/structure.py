"""Explanations by structure alone: where frames name nobody, the true culprit's relation to every rank tells the clusters."""

from collections.abc import Sequence

from hangdog_models.diagnosis.cluster import Cluster
from hangdog_models.diagnosis.hypothesis import Factor, Hypothesis, odds
from hangdog_models.diagnosis.motion import Motion
from hangdog_models.diagnosis.relations import Candidate, explain
from hangdog_models.diagnosis.waits import Hold, Waits
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind

#: Odds of the candidate that the relational score prefers clearly, and of one that it merely puts first. Of 255 simulated
#: incidents in which nobody stands outside, 15 of 45 clear candidates held the fault and 24 of the others were mismatched
#: collectives, which show them as broken devices do: so they are named and not evicted.
CLEAR, FIRST = 1.7, 0.6
#: The share against the strongest rival from which a candidate is clear.
CLEARLY = 0.9


def blame_structure(clusters: Sequence[Cluster], waits: Waits, motion: Motion, topology: Topology) -> list[Hypothesis]:
    """The candidate that explains best who stands where; asked only when all wait, stand still, and no counter tells more."""
    counted = any(hold.counted for hold in waits.holds)
    if waits.roots or counted or not motion.known or len(topology.machines) < 2:
        return []
    found = explain({rank: number for number, cluster in enumerate(clusters) for rank in cluster.ranks}, topology)
    if not found.candidates:
        return []
    best = found.candidates[0]
    if len(best.ranks) == 1 and not best.relations:
        return []  # odd alone, which no relation explains: it runs other code, as 18 of 19 such ones did
    clear = found.share >= CLEARLY
    factors = odds(
        "its relations explain who stands where" + ("" if clear else ", as others' do"), CLEAR if clear else FIRST
    )
    return [_hypothesis(best, factors, topology)]


def _hypothesis(best: Candidate, factors: tuple[Factor, ...], topology: Topology) -> Hypothesis:
    machines = topology.machines_of(best.ranks)
    if len(machines) == 1:
        return Hypothesis(Kind.MACHINE, factors, best.ranks, machines, (best.because,))
    hold = Hold(best.kind, best.ranks, (), best.name)
    return Hypothesis(Kind.GROUP, factors, best.ranks, (), (best.because,), hold)
