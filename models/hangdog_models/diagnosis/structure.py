"""Explanations by structure alone: where frames name nobody, who stands where tells which group holds the others up."""

from collections.abc import Sequence

from hangdog_models.diagnosis.apart import Apart
from hangdog_models.diagnosis.cluster import Cluster
from hangdog_models.diagnosis.hypothesis import Factor, Hypothesis, odds
from hangdog_models.diagnosis.motion import Motion
from hangdog_models.diagnosis.relations import Candidate, Explanation, explain
from hangdog_models.diagnosis.waits import Hold, Waits
from hangdog_models.diagnosis.wording import ranks_of
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind

#: Odds that ranks which share a group and stand apart together are held up in it: by a device or link, and by code whose
#: calls in it differ. Both leave equal stacks, so what parts them is how often each comes: of 26 hangs above 2,000 GPUs,
#: hosts among them, 5 were code (ByteRobust, SOSP 2025), of small jobs nobody reports it, so hardware is put little above.
HARDWARE, CODE = 8.4, 7.0
#: Odds that a message does not arrive though both ends are in it, or that nothing moves in one pipeline that waits for
#: nobody else; and that code does that. They stay below what evicts: no recording of a real job has shown it yet.
LOST, LOST_BY_CODE = 7.0, 1.0
#: Odds of whom the relational score prefers, where nobody else is named: of 61 such incidents 6 held the fault.
FIRST = 0.35
#: The share against its strongest rival from which such a candidate is clear, and says which part of a group is meant.
CLEARLY = 0.9
#: What tells code and hardware apart.
TELLS = "code whose calls differ between these ranks shows the same stacks: flight recorder dumps tell which it is"


def blame_structure(
    clusters: Sequence[Cluster], apart: Apart, waits: Waits, motion: Motion, topology: Topology
) -> list[Hypothesis]:
    """The group that the pattern of places points at, once as hardware and once as code; asked when no counter tells more."""
    if any(hold.counted for hold in waits.holds) or len(topology.machines) < 2:
        return []
    if apart.lost:
        return _lost(apart.lost, len(apart.pairs) == 1)
    if not apart.group and (waits.roots or not motion.known):
        return []
    found = explain({rank: number for number, cluster in enumerate(clusters) for rank in cluster.ranks}, topology)
    if apart.group:
        return _held_up(apart, found)
    best = found.candidates[0] if found.candidates else None
    if best is None or (len(best.ranks) == 1 and not best.relations):
        return []  # odd alone, which no relation explains: it runs other code, as 18 of 19 such ones did
    return [_related(best, topology)]


def _lost(ranks: tuple[Rank, ...], pair: bool) -> list[Hypothesis]:
    text = (
        f"{ranks_of(ranks)} are the two ends of one message, apart from their like, and it does not arrive"
        if pair
        else f"{ranks_of(ranks)} are one pipeline that waits for messages of its own, and no other one does as a whole"
    )
    return _both(Hold("pp", ranks, (), "a message"), Factor(text, LOST), Factor(text, LOST_BY_CODE))


def _held_up(apart: Apart, found: Explanation) -> list[Hypothesis]:
    """The group that holds all who stand apart, or the part of it that their messages or the relational score tell."""
    named = f"{ranks_of(apart.ranks)} stand apart from their like, and the {apart.dim} group of {ranks_of(apart.group)}"
    text = f"{named} is the smallest that holds them all"
    ranks, held = apart.group, set(apart.group)
    best = found.candidates[0] if found.candidates else None
    if apart.pairs:
        ranks = tuple(sorted({rank for pair in apart.pairs for rank in pair}))
        text = f"{ranks_of(ranks)} stand apart from their like, in messages to each other that do not arrive"
    elif best is not None and len(best.ranks) > 1 and found.share >= CLEARLY and set(best.ranks) < held:
        ranks = best.ranks
        text = f"{named} holds them all; {best.because}"
    return _both(Hold(apart.dim, ranks, (), "a group apart"), Factor(text, HARDWARE), Factor(text, CODE))


def _both(hold: Hold, hardware: Factor, code: Factor) -> list[Hypothesis]:
    because = (hardware.why, TELLS)
    group = Hypothesis(Kind.GROUP, (hardware,), hold.inside, (), because, hold)
    return [group, Hypothesis(Kind.SOFTWARE, (code,), because=because)]


def _related(best: Candidate, topology: Topology) -> Hypothesis:
    factors = odds("its relations explain who stands where", FIRST)
    machines = topology.machines_of(best.ranks)
    if len(machines) == 1:
        return Hypothesis(Kind.MACHINE, factors, best.ranks, machines, (best.because,))
    hold = Hold(best.kind, best.ranks, (), best.name)
    return Hypothesis(Kind.GROUP, factors, best.ranks, (), (best.because,), hold)
