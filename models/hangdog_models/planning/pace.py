"""Whether one of several with the same work is too slow: compared with its peers, and with a floor where one is known."""

from collections.abc import Sequence
from statistics import median

#: Deviations from the median that are still normal: beyond 5 MAD is one in a thousand of a normal distribution.
DEVIATIONS = 5.0
#: A loss that is worth a machine: SuperBench uses -5 % of the baseline for every metric.
DROP = 0.05
#: Fewer others are no cohort: if two differ, either may be the slow one.
FEWEST = 2


def too_slow(rate: float, others: Sequence[float], floor: float | None = None, drop: float = DROP) -> str:
    """Why a rate (per second, of any unit) is too low, as text without a subject; empty if it is not.

    `others`: the rates of its peers, without itself. It is too slow if it is more than `drop` below their median and
    outside of their spread (median absolute deviation). Below `floor`, if given, it is too slow in any case.
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
