"""What levels 2 and 3 share: how fast each pair was and what arrived wrong, out of what the members reported."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hangdog_agent.diagnose.reading import number, numbers, tables, whole
from hangdog_models.planning.pace import too_slow
from hangdog_models.planning.pairs import Pair

#: Gigabytes, as bandwidths are told.
GB = 1e9


@dataclass(frozen=True, slots=True)
class Arrived:
    """What one member received from another: `rate` in bytes per second, the median of the repetitions."""

    sender: str
    receiver: str
    rate: float
    wrong: int
    places: tuple[float, ...]

    @property
    def pair(self) -> Pair:
        low, high = sorted((self.sender, self.receiver))
        return low, high


def arrived(pairs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[Arrived]:
    """What a member tells of its pairs; a rank that nobody has is left out."""
    for one in pairs:
        sender, receiver = whole(one, "from"), whole(one, "to")
        seconds = sorted(each for each in numbers(one, "seconds") if each > 0)
        if 0 <= sender < len(names) and 0 <= receiver < len(names) and sender != receiver and seconds:
            rate = number(one, "bytes") / seconds[len(seconds) // 2]
            yield Arrived(names[sender], names[receiver], rate, whole(one, "wrong"), numbers(one, "places"))


def rates(everything: Sequence[Arrived]) -> dict[Pair, float]:
    """The rate of each pair: the better of its two ends' clocks, for one of them may have waited to be run."""
    found: dict[Pair, float] = {}
    for one in everything:
        found[one.pair] = max(one.rate, found.get(one.pair, 0.0))
    return found


def slow(measured: Mapping[Pair, float], drop: float, floor: float) -> dict[Pair, str]:
    """The pairs that are slower than the others, and why."""
    found = {}
    for pair, rate in measured.items():
        others = [each for other, each in measured.items() if other != pair]
        if why := too_slow(rate / GB, [each / GB for each in others], floor / GB or None, drop):
            found[pair] = f"{rate / GB:.3g} GB/s, {why}"
    return found


def gathered(reports: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Iterator[Arrived]:
    """What arrived wrong when all gathered from all."""
    for receiver, found in reports.items():
        gather = found.get("gather")
        for one in tables(gather, "wrong") if isinstance(gather, dict) else ():
            sender = whole(one, "from")
            if 0 <= sender < len(names):
                yield Arrived(names[sender], receiver, 0.0, whole(one, "wrong"), ())
