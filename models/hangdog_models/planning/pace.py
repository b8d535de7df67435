"""Whether one of several that do the same work is too slow: beside its like first, and by a floor where one is known."""

from collections.abc import Sequence
from statistics import median

#: Deviations from the median that are still like the others: beyond 5 MAD lies one in a thousand of a normal distribution.
DEVIATIONS = 5.0
#: A loss that is worth a machine: SuperBench takes -5 % of the baseline for every metric.
DROP = 0.05
#: Fewer others are no cohort: of two that differ nobody knows which is slow.
FEWEST = 2


def too_slow(rate: float, others: Sequence[float], floor: float | None = None, drop: float = DROP) -> str:
    """Why a rate (per second, of whatever) is too low, in words without a subject; empty when it is not.

    `others` are the rates of its like, itself not among them. It is too slow when it lies more than `drop` below their
    median and outside of their own spread (median absolute deviation); below `floor`, where one is given, in any case.
    """
    if floor is not None and not rate >= floor:
        return f"below the floor of {floor:g}"
    if len(others) < FEWEST:
        return ""
    middle = median(others)
    spread = median(abs(one - middle) for one in others)
    if not rate >= middle * (1 - drop) and not rate >= middle - DEVIATIONS * spread:
        return f"{1 - rate / middle:.0%} below the {len(others)} like it (median {middle:.4g})"
    return ""
