"""The smallest set of machines worth isolating: an eviction is made only if it probably holds the fault."""

from collections.abc import Mapping
from itertools import combinations

from hangdog_models.diagnosis.options import Options
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.verdict import Eviction

WORTH_EVICTING = likelihood("worth_evicting")
#: So many hypotheses, the most probable ones, are combined: at most 2^12 sets, in a few milliseconds.
COMBINED = 12


def smallest(explanations: Mapping[frozenset[str], float], options: Options) -> Eviction:
    """The fewest machines whose hypotheses together reach the coverage target; empty if none within the budget do.

    `explanations` maps the machines that a hypothesis blames to its probability; several hypotheses may share machines.

    Among equally small sets the most probable one is taken, then the first by name. Machines that reach the target by
    themselves are evicted alone. Others in doubt are examined once these are gone.
    """
    blame = blamed(explanations)
    sure = tuple(sorted(machine for machine, p in blame.items() if p >= options.coverage_target))
    if 0 < len(sure) <= options.budget_machines:
        return Eviction(sure, min(1.0, *(blame[machine] for machine in sure)))
    worth = eligible(explanations)
    likely = sorted(worth, key=lambda machines: (-worth[machines], sorted(machines)))[:COMBINED]
    best: tuple[int, float, tuple[str, ...]] | None = None
    for count in range(1, len(likely) + 1):
        for chosen in combinations(likely, count):
            machines = frozenset().union(*chosen)
            if len(machines) > (best[0] if best else options.budget_machines):
                continue
            covered = sum(p for blamed, p in explanations.items() if blamed <= machines)
            if machines and covered >= options.coverage_target:
                found = (len(machines), -covered, tuple(sorted(machines)))
                best = min(best, found) if best else found
    return Eviction(best[2], min(1.0, -best[1])) if best else Eviction()


def eligible(explanations: Mapping[frozenset[str], float]) -> dict[frozenset[str], float]:
    """The hypotheses whose machines are all suspected by themselves, over all hypotheses that blame them."""
    suspected = {machine for machine, p in blamed(explanations).items() if p >= WORTH_EVICTING}
    return {machines: p for machines, p in explanations.items() if machines <= suspected}


def blamed(explanations: Mapping[frozenset[str], float]) -> dict[str, float]:
    """The probability that each machine is faulty, alone or with others."""
    blame: dict[str, float] = {}
    for machines, p in explanations.items():
        for machine in machines:
            blame[machine] = blame.get(machine, 0.0) + p
    return blame
