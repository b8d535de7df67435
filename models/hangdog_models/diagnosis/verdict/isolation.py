"""What to isolate: the machines of the likeliest hypotheses; and when none is isolated, however likely they are."""

from collections.abc import Mapping, Sequence

from hangdog_models.diagnosis.findings.failing_paths import PATH
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis
from hangdog_models.diagnosis.hypotheses.stuck_groups import SEVERAL
from hangdog_models.diagnosis.verdict import eviction
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.verdict import Eviction, Kind, Suspect

#: After one round without a watchdog time-out, at most so many machines of a group are evicted. A link involves a pair
#: at least. For more it is cheaper to capture again, a few seconds later.
ONE_LOOK_MOST = 2


def decide(
    case: Case, weighed: Sequence[tuple[Hypothesis, float]], kind: Kind, suspects: Sequence[Suspect]
) -> Eviction:
    """The machines to isolate now, by the verdict's kind; none if another step is the right one."""
    if kind is Kind.MACHINE:
        return eviction.smallest(blamed(case, weighed), case.options)
    lead = lead_group(weighed, kind)
    if lead is not None and lead.dim == SEVERAL:
        return Eviction()
    if lead is not None and (one_end(lead, suspects) or many_ends(lead, suspects)):
        return Eviction()
    if lead is not None and _too_soon(case, lead, suspects):
        return Eviction()
    if kind is Kind.GROUP and suspects and 2 * len(suspects[0].machines) <= len(case.topology.machines):
        return eviction.smallest(_inside(case, suspects), case.options)
    return Eviction()


def _inside(case: Case, suspects: Sequence[Suspect]) -> Mapping[frozenset[str], float]:
    """The machines of groups that are all in the job: a path may end elsewhere."""
    sets = {frozenset(suspect.machines): suspect.probability for suspect in suspects}
    return {machines: p for machines, p in sets.items() if machines and machines <= set(case.topology.machines)}


def lead_group(weighed: Sequence[tuple[Hypothesis, float]], kind: Kind) -> GroupWait | None:
    """The likeliest group, of those that hypotheses of a kind name."""
    holds = [(p, hypothesis.hold) for hypothesis, p in weighed if hypothesis.kind is kind and hypothesis.hold]
    return max(holds, key=lambda one: one[0])[1] if holds else None


def one_end(hold: GroupWait, suspects: Sequence[Suspect]) -> bool:
    """Whether only one end of a path is known: it reported the path, so it is the one that suffers."""
    return hold.dim == PATH and bool(suspects) and len(suspects[0].machines) < 2


def many_ends(hold: GroupWait, suspects: Sequence[Suspect]) -> bool:
    """Whether failing paths have no end in common: most of these machines are sound."""
    return hold.dim == PATH and bool(suspects) and len(suspects[0].machines) > ONE_LOOK_MOST


def _too_soon(case: Case, hold: GroupWait, suspects: Sequence[Suspect]) -> bool:
    """Whether a group is too wide for a single round."""
    wide = bool(suspects) and len(suspects[0].machines) > ONE_LOOK_MOST
    return wide and not case.motion.known and not hold.lasting


def blamed(case: Case, weighed: Sequence[tuple[Hypothesis, float]]) -> Mapping[frozenset[str], float]:
    """The probability of each set of machines that it holds all faults."""
    explanations: dict[frozenset[str], float] = {}
    for hypothesis, p in weighed:
        units = frozenset(hypothesis.units)
        if hypothesis.kind is Kind.MACHINE and not hypothesis.hearsay and units <= set(case.topology.machines):
            explanations[units] = explanations.get(units, 0.0) + p
    return explanations
