"""The posterior beyond the verdict's kind: the ranks that hold the job up, and the probability of each cause."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import Culprit, Kind, StallCause

#: The cause that each kind of hypothesis stands for.
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
#: A less likely culprit is not named: a random name is worse than none.
WORTH_NAMING = likelihood("worth_naming")


_Members: TypeAlias = list[tuple[Hypothesis, float]]
#: Machines that are named together, or the ranks of a group.
_Key: TypeAlias = frozenset[str] | tuple[Rank, ...]


def causes(weighed: Sequence[tuple[Hypothesis, float]]) -> dict[StallCause, float]:
    """The probability of each cause; they sum to 1."""
    shares = dict.fromkeys(StallCause, 0.0)
    for hypothesis, p in weighed:
        shares[CAUSE_OF[hypothesis.kind]] += p
    return shares


def culprit(weighed: Sequence[tuple[Hypothesis, float]], topology: Topology) -> Culprit | None:
    """What the hypotheses name together, whatever the cause: one machine's ranks, a group, or several machines at once.

    None if a cause behind most of the job is likelier.
    """
    least = max(WORTH_NAMING, sum(p for hypothesis, p in weighed if names_most(hypothesis, topology)))
    likely = {key: members for key, members in _candidates(weighed, topology).items() if _probability(members) >= least}
    # of equals those that are more together, for none of them is all; a name is only a name, so then the first rank
    return min(
        (_named(key, members, topology) for key, members in likely.items()),
        key=lambda one: (-round(one.probability, 9), -_units(one.ranks, topology), one.ranks, one.machines),
        default=None,
    )


def _probability(members: _Members) -> float:
    return min(1.0, sum(p for _, p in members))


def names_most(hypothesis: Hypothesis, topology: Topology) -> bool:
    """Whether it finds one cause behind more than half of a job's machines, which blames none of them."""
    common = hypothesis.kind is not Kind.MACHINE and hypothesis.hold is None
    few = 4 if hypothesis.kind is Kind.GROUP else 2  # a path has two ends, whatever the job's other machines are called
    return common and 2 * len(hypothesis.units) > max(few, _machines(topology))


def _candidates(weighed: Sequence[tuple[Hypothesis, float]], topology: Topology) -> dict[_Key, _Members]:
    """All possible culprits, each with the hypotheses that name it.

    Of several machines at once no single one is the culprit, and no equal one stands for the others. So they are named
    together if that is likelier than one of them alone. Then all hypotheses inside of them count.
    """
    found: dict[_Key, _Members] = {}
    exactly: dict[frozenset[str], float] = {}
    narrow: _Members = []
    for hypothesis, p in weighed:
        units = frozenset(_blamed(hypothesis, topology))
        if hypothesis.hold and not units:
            found.setdefault(hypothesis.ranks, []).append((hypothesis, p))
        elif units and not names_most(hypothesis, topology):
            narrow.append((hypothesis, p))
            exactly[units] = exactly.get(units, 0.0) + p
            for unit in units:
                found.setdefault(frozenset({unit}), []).append((hypothesis, p))
    for units, p in exactly.items():
        if len(units) > 1 and p > max(exactly.get(frozenset({unit}), 0.0) for unit in units):
            found[units] = [(one, q) for one, q in narrow if units.issuperset(_blamed(one, topology))]
    return found


def _blamed(hypothesis: Hypothesis, topology: Topology) -> tuple[str, ...]:
    """The machines it blames: of a group with an awaited rank, that rank's; of a joined group, none."""
    if hypothesis.hold is None:
        return hypothesis.units
    return tuple(topology.machine(rank) or f"rank {rank}" for rank in hypothesis.hold.awaited)


def _units(ranks: tuple[Rank, ...], topology: Topology) -> int:
    return len({topology.machine(rank) or rank for rank in ranks})


def _machines(topology: Topology) -> int:
    """The number of machines the job may have: a rank whose machine is unknown counts as one of its own."""
    placed = sum(map(len, topology.machines.values()))
    return len(topology.machines) + max(0, topology.world_size - placed)


def _named(key: _Key, members: _Members, topology: Topology) -> Culprit:
    exact = [member for member in members if frozenset(_blamed(member[0], topology)) == key] or members
    lead = max(exact, key=lambda member: member[1])[0]
    # an open cause is no reason to name it
    named_for = max(exact, key=lambda member: (member[0].kind is not Kind.UNDETERMINED, member[1]))[0]
    ranks = lead.hold.awaited if lead.hold and lead.hold.awaited else lead.ranks
    if isinstance(key, frozenset) and frozenset(_blamed(lead, topology)) != key:
        ranks = tuple(rank for rank in ranks if (topology.machine(rank) or f"rank {rank}") in key)
    parts: dict[StallCause, float] = {}
    for hypothesis, p in members:
        parts[CAUSE_OF[hypothesis.kind]] = parts.get(CAUSE_OF[hypothesis.kind], 0.0) + p
    machines = topology.machines_of(ranks) if ranks else lead.units  # a host known only from a log has no known rank
    return Culprit(ranks, machines, min(1.0, sum(parts.values())), named_for.reasons[:1], parts)
