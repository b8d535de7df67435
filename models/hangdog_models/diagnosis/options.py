"""What a user may set about a diagnosis."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """`coverage_target`: how probable it must be that the evicted machines hold the fault (0..1).

    `budget_machines`: how many machines one verdict may evict; above it a diagnosis that narrows is proposed instead.
    Eight is what ByteRobust evicts for one faulty machine (a whole parallel group, SOSP 2025): never more than that.
    `clustering`: which model joins stacks to places, by its name in `clustering.catalogue`; the default was measured.
    """

    coverage_target: float = 0.95
    budget_machines: int = 8
    clustering: str = "linkage"


DEFAULTS = Options()
