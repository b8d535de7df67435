"""What the posterior says apart from the verdict's one word: who holds the job up, whatever the cause, and why."""

from collections.abc import Mapping, Sequence

from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import Culprit, Kind, StallCause

#: Which cause each kind of explanation stands for.
CAUSE_OF: Mapping[Kind, StallCause] = {
    Kind.MACHINE: StallCause.MACHINE,
    Kind.GROUP: StallCause.GROUP,
    Kind.SOFTWARE: StallCause.SOFTWARE,
    Kind.DEPENDENCY: StallCause.DEPENDENCY,
    Kind.SLOW: StallCause.SLOW,
    Kind.NONE: StallCause.HEALTHY,
    Kind.UNDETERMINED: StallCause.UNKNOWN,
}
DECIDES = likelihood("decides")
#: Less likely culprits are none: naming somebody at random is worse than naming nobody.
WORTH_NAMING = likelihood("worth_naming")


def causes(weighed: Sequence[tuple[Hypothesis, float]]) -> dict[StallCause, float]:
    """The probability of each cause; they sum to 1."""
    shares = dict.fromkeys(StallCause, 0.0)
    for hypothesis, p in weighed:
        shares[CAUSE_OF[hypothesis.kind]] += p
    return shares


def culprit(weighed: Sequence[tuple[Hypothesis, float]], topology: Topology) -> Culprit | None:
    """Whom the explanations name together, whatever cause they give: one machine's ranks, a group, or several machines at once.

    An explanation that names more than half of a job's machines names nobody.
    """
    named: dict[tuple[str, ...] | tuple[Rank, ...], list[tuple[Hypothesis, float]]] = {}
    for hypothesis, p in weighed:
        units = hypothesis.units
        narrow = len(units) == 1 or 2 * len(units) <= len(topology.machines)
        keys = {units, *((unit,) for unit in units)} if units and narrow else set()
        for key in {hypothesis.ranks} if hypothesis.hold else keys:
            named.setdefault(key, []).append((hypothesis, p))
    sums = {key: sum(p for _, p in members) for key, members in named.items()}
    # a machine's name is only a name: of equals the one with the first rank
    best = min(sums, key=lambda key: (-round(sums[key], 9), _ranks(key, named[key][0][0], topology)), default=None)
    together = [one.units for one, _ in weighed if len(one.units) > 1 and sums.get(one.units, 0.0) > DECIDES]
    if together:  # of several faults at once no one alone is all
        best = max(together, key=sums.__getitem__)
    if best is None or sums[best] < WORTH_NAMING:
        return None
    lead = max(named[best], key=lambda member: (member[0].units == best, member[1]))[0]
    ranks = _ranks(best, lead, topology)
    return Culprit(ranks, topology.machines_of(ranks), min(1.0, sums[best]), lead.reasons[:1])


def _ranks(key: tuple[str, ...] | tuple[Rank, ...], hypothesis: Hypothesis, topology: Topology) -> tuple[Rank, ...]:
    """The ranks that an explanation blames of a group, of several units, or of one."""
    if hypothesis.hold or hypothesis.units == key:
        return hypothesis.ranks
    return tuple(rank for rank in hypothesis.ranks if (topology.machine(rank) or f"rank {rank}") in key)
