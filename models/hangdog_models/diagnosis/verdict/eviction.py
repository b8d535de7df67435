"""The smallest set of machines worth isolating: an eviction is a decision, taken only when it probably holds the fault."""

from collections.abc import Mapping
from itertools import combinations

from hangdog_models.diagnosis.options import Options
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.verdict import Eviction

WORTH_EVICTING = likelihood("worth_evicting")
#: So many explanations, the most probable ones, are combined; 2^12 sets are tried at most, in a few milliseconds.
COMBINED = 12


def smallest(explanations: Mapping[frozenset[str], float], options: Options) -> Eviction:
    """The fewest machines whose explanations together reach the coverage target; empty when none within the budget do.

    `explanations` maps the machines an explanation blames to its probability; several explanations may share machines.
    Among equally small sets the most probable one is taken, then the first by name. Where some are guilty so surely by
    themselves, these are evicted and nobody beside them: who else is in doubt is looked at once they are gone.
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
    """The explanations all of whose machines are suspected by themselves, over all explanations that blame them."""
    suspected = {machine for machine, p in blamed(explanations).items() if p >= WORTH_EVICTING}
    return {machines: p for machines, p in explanations.items() if machines <= suspected}


def blamed(explanations: Mapping[frozenset[str], float]) -> dict[str, float]:
    """How probable it is that each machine is guilty, alone or with others."""
    blame: dict[str, float] = {}
    for machines, p in explanations.items():
        for machine in machines:
            blame[machine] = blame.get(machine, 0.0) + p
    return blame
