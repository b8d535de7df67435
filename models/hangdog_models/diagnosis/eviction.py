"""The smallest set of machines worth isolating: an eviction is a decision, taken only when it probably holds the fault."""

from collections.abc import Mapping

from hangdog_models.diagnosis.options import Options
from hangdog_models.verdict import Eviction


def smallest(explanations: Mapping[frozenset[str], float], options: Options) -> Eviction:
    """The fewest machines whose explanations together reach the coverage target; empty when none within the budget do.

    `explanations` maps the machines an explanation blames to its probability; several explanations may share machines.
    Grows the set by the explanation that adds most probability for each machine added (the greedy bound for covering);
    exact where one explanation suffices, which is nearly always.
    """
    chosen: frozenset[str] = frozenset()
    while True:
        covered = sum(p for machines, p in explanations.items() if machines and machines <= chosen)
        if chosen and covered >= options.coverage_target:
            return Eviction(tuple(sorted(chosen)), min(1.0, covered))
        gains = {}
        for machines in explanations:
            wider = chosen.union(machines)
            if wider != chosen and len(wider) <= options.budget_machines:
                gains[wider] = sum(p for other, p in explanations.items() if other and other <= wider) - covered
        if not gains:
            return Eviction()
        worth = {wider: (gain / len(wider - chosen), sorted(wider)) for wider, gain in gains.items()}
        chosen = max(worth, key=lambda wider: worth[wider])
