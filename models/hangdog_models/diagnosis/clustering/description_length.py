"""The number of bits that describe which rank has which label, when only roles are known."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from math import lgamma, log

from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology

#: How often each symbol was seen.
LabelCounts = Counter[int]

#: The symbol of every label that a single rank has: such labels say only that they are odd.
ODD = 0


def length(counts: Mapping[int, int], kinds: int) -> float:
    """Bits for a sequence with these counts of `kinds` possible symbols, whose shares are not known beforehand.

    The estimator of Krichevsky and Trofimov (1981): the cost of its parameters is included.
    """
    total = sum(counts.values())
    bits = lgamma(total + kinds / 2) - lgamma(kinds / 2)
    return (bits - sum(lgamma(count + 0.5) - lgamma(0.5) for count in counts.values())) / log(2)


@dataclass(frozen=True, slots=True)
class Encoding:
    """Labels that are described already: how many of each cell, and of each role."""

    cells: LabelCounts
    roles: LabelCounts


#: Nothing is described yet.
NOTHING = Encoding(Counter(), Counter())


@dataclass(frozen=True)
class Plain:
    """The labels as roles explain them; `symbol` (-1: not seen), `stage` and `cell` are lists by rank.

    A role is a natural difference: the pipeline stage, or the index in a tensor group or on a machine. Only roles that
    make the description shorter are used. A cell is a role with a symbol, as the number `role * kinds + symbol`.
    """

    symbol: list[int]
    stage: list[int]
    cell: list[int]
    kinds: int
    everybody: Encoding

    @classmethod
    def of(cls, labels: Mapping[Rank, Hashable], topology: Topology) -> "Plain | None":
        """None when there is nothing to explain: all labels are equal, or each is its own."""
        counts = Counter(labels.values())
        if len(counts) < 2 or len(counts) == len(labels):
            return None
        numbers = {label: ODD for label, count in counts.items() if count == 1}
        # numbered by size: the names of labels must not matter
        common = sorted((label for label, count in counts.items() if count > 1), key=lambda label: -counts[label])
        numbers.update((label, number) for number, label in enumerate(common, ODD + 1))
        size = max(max(labels) + 1, topology.world_size)
        symbol = [-1] * size
        for rank, label in labels.items():
            symbol[rank] = numbers[label]
        kinds = len(common) + 1
        role = _roles(symbol, topology, kinds)
        cell = [at * kinds + seen if seen >= 0 else -1 for at, seen in zip(role, symbol, strict=True)]
        plain = cls(symbol, _places(topology.groups.get("pp", ()), size), cell, kinds, Encoding(Counter(), Counter()))
        plain.tell(labels, plain.everybody)
        return plain

    def seen(self, ranks: Iterable[Rank]) -> list[Rank]:
        """Those of the ranks that have a label."""
        return [rank for rank in ranks if rank < len(self.cell) and self.cell[rank] >= 0]

    def count(self, ranks: Iterable[Rank]) -> LabelCounts:
        return Counter(map(self.symbol.__getitem__, ranks))

    def majority(self, rank: Rank) -> bool:
        """Whether more than half of its role have its label."""
        cell = self.cell[rank]
        return 2 * self.everybody.cells[cell] > self.everybody.roles[cell // self.kinds]

    def tell(self, ranks: Iterable[Rank], reported: Encoding) -> None:
        """Adds the labels of these ranks to `reported`."""
        for cell, count in Counter(map(self.cell.__getitem__, ranks)).items():
            reported.cells[cell] += count
            reported.roles[cell // self.kinds] += count

    def without(self, ranks: Iterable[Rank], reported: Encoding) -> float:
        """Bits that the plain description saves without these ranks, after it lost those of `reported`."""
        saved = 0.0
        roles: LabelCounts = Counter()
        for cell, count in Counter(map(self.cell.__getitem__, ranks)).items():
            roles[cell // self.kinds] += count
            there = self.everybody.cells[cell] - reported.cells[cell]
            saved -= lgamma(there + 0.5) - lgamma(there - count + 0.5)
        for role, count in roles.items():
            left = self.everybody.roles[role] - reported.roles[role]
            saved += lgamma(left + self.kinds / 2) - lgamma(left - count + self.kinds / 2)
        return saved / log(2)


def _roles(symbol: list[int], topology: Topology, kinds: int) -> list[int]:
    """The role of each rank: the coordinates that shorten the description, the most effective first."""
    coordinates = {
        "stage": _places(topology.groups.get("pp", ()), len(symbol)),
        "tensor": _places(topology.groups.get("tp", ()), len(symbol)),
        "machine": _places(topology.machines.values(), len(symbol)),
    }
    role = [0] * len(symbol)
    names: tuple[str, ...] = ()
    shortest = _described(role, symbol, kinds)
    while True:
        tried = []
        for name, place in coordinates.items():
            if name not in names and any(place):
                finer = _numbered(zip(role, place, strict=True))
                tried.append((_described(finer, symbol, kinds), name, finer))
        best = min(tried, key=lambda entry: entry[:2], default=None)
        if best is None or best[0] >= shortest:
            return role
        shortest, role, names = best[0], best[2], (*names, best[1])


def _described(role: list[int], symbol: list[int], kinds: int) -> float:
    cells: dict[int, LabelCounts] = {}
    for (at, seen), count in Counter(zip(role, symbol, strict=True)).items():
        if seen >= 0:
            cells.setdefault(at, Counter())[seen] = count
    return sum(length(cell, kinds) for cell in cells.values())


def _places(groups: Iterable[tuple[Rank, ...]], size: int) -> list[int]:
    """The index of each rank in its group, 0 where it has none."""
    place = [0] * size
    for group in groups:
        for at, rank in enumerate(group):
            if rank < size:
                place[rank] = at
    return place


def _numbered(keys: Iterable[tuple[int, int]]) -> list[int]:
    numbers: dict[tuple[int, int], int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
