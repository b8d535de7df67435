"""From pairs that failed to what broke: an end that fails with most of its partners is broken, other pairs are links."""

from collections import Counter
from collections.abc import Iterable, Sequence

Pair = tuple[str, str]

#: An end must fail with so many partners before it is blamed rather than the links to them (field practice: two).
FEWEST = 2


def blame(pairs: Sequence[Pair], bad: Iterable[Pair]) -> tuple[tuple[str, ...], tuple[Pair, ...]]:
    """The ends that explain the bad pairs, and the pairs left over: links, either end of which may be sound.

    `pairs` are all that were tested. An end is blamed when it failed with two partners at least and with more than half of
    all it was tested with; the one that explains most first, until none does.
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
