"""Spares of a job: which are free, which of them an eviction brings in, and whether those pass their test."""

from collections.abc import Collection, Sequence

from hangdog.supervising.run_order import RunOrder
from hangdog.supervising.watcher import Watcher
from hangdog_models.errors import HangdogError
from hangdog_models.recovery.recovery_history import RecoveryRung, RecoveryStep
from hangdog_models.recovery.spare_tests import SpareTest, of_campaign


def free_spares(order: RunOrder, machines: Collection[str], out: Collection[str]) -> tuple[str, ...]:
    """The spares that are neither out nor in use, in their order; `machines` are those the job runs on."""
    return tuple(name for name in order.spares if name not in out and name not in machines)


def spares_coming_in(step: RecoveryStep, machines: Collection[str], spares: Sequence[str]) -> tuple[str, ...]:
    """Those of the free spares that take a place by a step."""
    places = sum(name in machines for name in step.machines) if step.act is RecoveryRung.EVICT else 0
    return tuple(name for name in spares if name not in step.machines)[:places]


def run_spare_tests(watcher: Watcher, order: RunOrder, spares: Sequence[str], why: str) -> SpareTest:
    """Has spares tested by the order's levels; all are doubtful where nobody can test them."""
    try:
        report = watcher.test(spares, order.levels, order.test_s, why)
    except HangdogError as error:
        return SpareTest(doubtful=dict.fromkeys(spares, f"it could not be tested: {error}"))
    return of_campaign(spares, order.levels, report)
