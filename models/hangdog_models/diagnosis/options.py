"""What a user may set about a diagnosis."""

from dataclasses import dataclass

from hangdog_models.diagnosis.prices import DEFAULTS as USUAL
from hangdog_models.diagnosis.prices import IsolationPolicy, Prices


@dataclass(frozen=True, slots=True)
class Options:
    """`coverage_target`: how probable it must be that the evicted machines hold the fault (0..1).

    `budget_machines`: how many machines one verdict may evict; above it a diagnosis that narrows is proposed instead.
    Eight is what ByteRobust evicts for one faulty machine (a whole parallel group, SOSP 2025): never more than that.
    `clustering`: which model joins stacks to places, by its name in `clustering.catalogue`; the default was measured.
    `policy`: whether a whole suspected group may be isolated where no smaller set is sure enough.
    `prices`: what each step costs. `spares`: machines that stand by for this job; None: not known.
    """

    coverage_target: float = 0.95
    budget_machines: int = 8
    clustering: str = "linkage"
    policy: IsolationPolicy = IsolationPolicy.CAREFUL
    prices: Prices = USUAL
    spares: int | None = None


DEFAULTS = Options()
