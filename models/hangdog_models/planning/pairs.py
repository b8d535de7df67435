"""Which pairs are slow, and what failing pairs have in common: an end that fails with most partners, or a link."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

Pair = tuple[str, str]

#: An end must fail with so many partners to be blamed rather than the links to them (field practice: two).
FEWEST = 2


def slow_pairs(rates: Mapping[Pair, float], drop: float, floor: float | None = None) -> dict[Pair, str]:
    """The pairs whose rate is too low, and why: more than `drop` below the faster half of the others, or below `floor`.

    The faster half counts because one broken end slows all of its pairs, which are most pairs of a small group. A
    single pair is only compared with the floor.
    """
    found = {}
    for pair, rate in rates.items():
        others = sorted(each for other, each in rates.items() if other != pair)
        usual = median(others[len(others) // 2 :]) if len(others) >= FEWEST else 0.0
        if floor is not None and not rate >= floor:
            found[pair] = f"{rate:.3g}, below the floor of {floor:g}"
        elif not rate >= (1 - drop) * usual:
            found[pair] = f"{rate:.3g}, where the faster of the others reach {usual:.3g}"
    return found


def blame(pairs: Sequence[Pair], bad: Iterable[Pair]) -> tuple[tuple[str, ...], tuple[Pair, ...]]:
    """The ends that explain the bad pairs, and the pairs left over: links, either end of which may be sound.

    `pairs` are all that were tested. An end is blamed if it failed with at least two partners and more than half of all
    it was tested with. The one that explains most comes first, until none does.
    """
    tested = Counter(end for pair in dict.fromkeys(map(_sorted, pairs)) for end in pair)
    left = dict.fromkeys(_sorted(pair) for pair in bad)
    blamed: list[str] = []
    while left:
        failed = Counter(end for pair in left for end in pair)
        likely = [end for end, count in failed.items() if count >= FEWEST and 2 * count > tested[end]]
        if not likely:
            break
        worst = max(likely, key=lambda end: (failed[end] / tested[end], failed[end]))
        blamed.append(worst)
        left = {pair: None for pair in left if worst not in pair}
    return tuple(blamed), tuple(left)


def _sorted(pair: Pair) -> Pair:
    low, high = sorted(pair)
    return low, high
