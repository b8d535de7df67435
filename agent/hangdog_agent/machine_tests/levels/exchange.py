"""What levels 2 and 3 share: how fast each pair was and what arrived wrong, out of what the members reported."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hangdog_agent.machine_tests.untrusted_values import number, numbers, tables, whole
from hangdog_models.planning.pairs import Pair, slow_pairs

#: Gigabytes, as bandwidths are told.
GB = 1e9


@dataclass(frozen=True, slots=True)
class Arrived:
    """What one member received from another: `rate` in bytes per second.

    It is that of the repetitions' first quartile: a busy host delays some of them, a bad link delays them all.
    """

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
            rate = number(one, "bytes") / seconds[len(seconds) // 4]
            yield Arrived(names[sender], names[receiver], rate, whole(one, "wrong"), numbers(one, "places"))


def rates(everything: Sequence[Arrived]) -> dict[Pair, float]:
    """The rate of each pair: the best of its passes and of both ends' clocks, so that slow is what was slow each time."""
    found: dict[Pair, float] = {}
    for one in everything:
        found[one.pair] = max(one.rate, found.get(one.pair, 0.0))
    return found


def slow(measured: Mapping[Pair, float], drop: float, floor_gb_per_s: float) -> dict[Pair, str]:
    """The pairs that are slower than the others, and why."""
    reported = slow_pairs({pair: rate / GB for pair, rate in measured.items()}, drop, floor_gb_per_s or None)
    return {pair: f"GB/s {why}" for pair, why in reported.items()}


def damaged(everything: Iterable[Arrived]) -> dict[Pair, str]:
    """The pairs between which data arrived wrong, in which direction, and how much of it."""
    found: dict[Pair, dict[str, int]] = {}
    for one in everything:
        if one.wrong:
            at = f", the first at {one.places[0]:.0f}" if one.places else ""
            way = f"from {one.sender} to {one.receiver}{at}"
            ways = found.setdefault(one.pair, {})
            ways[way] = ways.get(way, 0) + one.wrong
    return {
        pair: "; ".join(f"{wrong} wrong bytes {way}" for way, wrong in ways.items()) for pair, ways in found.items()
    }


def gathered(reports: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Iterator[Arrived]:
    """What arrived wrong when all gathered from all."""
    for receiver, found in reports.items():
        gather = found.get("gather")
        for one in tables(gather, "wrong") if isinstance(gather, dict) else ():
            sender = whole(one, "from")
            if 0 <= sender < len(names):
                yield Arrived(names[sender], receiver, 0.0, whole(one, "wrong"), ())
