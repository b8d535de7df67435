"""The settings of a diagnosis that a user may change."""

from dataclasses import dataclass

from hangdog_models.diagnosis.prices import DEFAULTS as USUAL
from hangdog_models.diagnosis.prices import IsolationPolicy, Prices


@dataclass(frozen=True, slots=True)
class Options:
    """How a diagnosis weighs and what it may evict.

    - `coverage_target`: how probable it must be that the evicted machines hold the fault (0..1).
    - `budget_machines`: how many machines one verdict may evict. Above it, a diagnosis that narrows is proposed
      instead. ByteRobust evicts eight for one faulty machine, a whole parallel group (SOSP 2025): never more than that.
    - `clustering`: the model that joins stacks to call sites, by its name in `clustering.catalogue`. The default was
      measured.
    - `policy`: whether a whole suspected group may be isolated where no smaller set is sure enough.
    - `prices`: what each step costs.
    - `spares`: machines on standby for this job; None: not known.
    """

    coverage_target: float = 0.95
    budget_machines: int = 8
    clustering: str = "linkage"
    policy: IsolationPolicy = IsolationPolicy.CAREFUL
    prices: Prices = USUAL
    spares: int | None = None


DEFAULTS = Options()
