"""Rapid isolation: a whole process group of the suspect, where no smaller set of machines is sure enough."""

from collections.abc import Iterator, Mapping, Sequence

from hangdog_models.diagnosis.findings.failing_paths import PATH
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis
from hangdog_models.diagnosis.hypotheses.stuck_groups import SEVERAL
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.verdict import Eviction, Kind, Suspect

#: Group waits that name machines with nothing in common, most of them sound.
_SCATTERED = (PATH, SEVERAL)


def around(case: Case, weighed: Sequence[tuple[Hypothesis, float]], suspects: Sequence[Suspect]) -> Eviction:
    """The fewest machines of one of the first suspect's groups that hold the fault with the wanted probability; else
    none.

    Never more than the budget, nor than half of the job: too few would be left to run on.
    """
    machines, options = len(case.topology.machines), case.options
    explained = _inside(case, weighed)
    best: tuple[int, float, tuple[str, ...]] | None = None
    for group in _groups(case, suspects):
        covered = sum(p for blamed, p in explained.items() if blamed <= group)
        if len(group) <= options.budget_machines and 2 * len(group) <= machines and covered >= options.coverage_target:
            found = (len(group), -covered, tuple(sorted(group)))
            best = min(best, found) if best else found
    return Eviction(best[2], min(1.0, -best[1])) if best else Eviction()


def _groups(case: Case, suspects: Sequence[Suspect]) -> Iterator[frozenset[str]]:
    """The machines of each process group of the first suspect, and its own."""
    if not suspects:
        return
    first = set(suspects[0].ranks)
    members = (group for groups in case.topology.groups.values() for group in groups if not first.isdisjoint(group))
    for ranks in (suspects[0].ranks, *members):
        if found := frozenset(case.topology.machines_of(ranks)):
            yield found


def _inside(case: Case, weighed: Sequence[tuple[Hypothesis, float]]) -> Mapping[frozenset[str], float]:
    """The probability of each set of the job's machines that it holds the fault, by evidence of their own."""
    known, found = set(case.topology.machines), dict[frozenset[str], float]()
    for hypothesis, p in weighed:
        if hypothesis.kind not in (Kind.MACHINE, Kind.GROUP) or hypothesis.hearsay:
            continue
        if hypothesis.hold is not None and hypothesis.hold.dim in _SCATTERED:
            continue
        blamed = frozenset(hypothesis.units) or frozenset(case.topology.machines_of(hypothesis.ranks))
        if blamed and blamed <= known:
            found[blamed] = found.get(blamed, 0.0) + p
    return found
