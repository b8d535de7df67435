"""Which candidate the labels of all ranks point at: the one whose relations to the others best explain which rank is where.

Where frames name no group, the pattern still does. The tensor peers of a culprit are at one call site, the stages after
it at another, all other replicas at a third. A candidate is a rank, a machine, a process group or a switch. Its score
is the bits that it saves in a description of all labels, less the cost of naming it and its relations (minimum
description length). Labels are only compared for equality.

The work is linear in the ranks: labels are counted once for each coordinate, and ranks are never compared with ranks.
At most `FINALISTS` candidates of each kind are scored in full, each with at most `LOOKED_AT` ranks of a dimension.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import log2

from hangdog_models.diagnosis.clustering.description_length import NOTHING, ODD, Encoding, LabelCounts, Plain, length
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.topology import Topology

#: So many ranks, and so many groups of each kind, are scored in full: those that stand out most by themselves.
FINALISTS, GROUP_FINALISTS = 96, 24
#: Ranks of one relation that are scored for one candidate. Wider groups (data parallel) say least about a single rank.
LOOKED_AT = 2_048
#: Fewer bits than this are no explanation: it is less than four times as likely as none.
LEAST = 2.0
#: Bits that say whether a relation of the candidate explains anything.
FLAG = 1.0
#: Bits that say that a whole group is the cause. Most faults are of one rank, and in doubt the smaller candidate is
#: named.
WHOLE = 2.0
#: Candidates returned at most.
KEPT = 16

RANK, MACHINE, SWITCH = "rank", "machine", "switch"
BEFORE, BESIDE, AFTER = "before", "beside", "after"


@dataclass(frozen=True, slots=True)
class Relation:
    """`count` ranks that share the candidate's group along `dim`, at stages before, beside or after its own."""

    dim: str
    side: str
    count: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One explanation: `kind` is rank, machine, switch or a parallel dimension; `bits` is what it saves."""

    kind: str
    name: str
    ranks: tuple[Rank, ...]
    bits: float
    relations: tuple[Relation, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Candidates, best first; empty if the labels point at none.

    `share`: the probability of the best one against its strongest rival, 0.5 to 1. A candidate that contains it, or
    that it contains (its machine, its group), is no rival. Bits are of labels that depend on each other: it is an upper
    bound.
    """

    candidates: tuple[Candidate, ...] = ()
    share: float = 0.0


def explain(labels: Mapping[Rank, Hashable], topology: Topology) -> Explanation:
    """The candidates that explain the labels; ranks without a label are ignored.

    Empty if all labels are equal, if each is its own, or if stages or other roles explain them.
    """
    plain = Plain.of(labels, topology)
    if plain is None:
        return Explanation()
    domains = Domains.of(topology, len(labels))
    odd = [rank for rank in labels if plain.symbol[rank] == ODD or not plain.majority(rank)]
    touched = {dim: _touched(dim, odd, domains, plain) for dim in domains.dims}
    found = [*_ranks(odd, touched, domains, plain), *_groups(touched, domains, plain)]
    best: dict[tuple[Rank, ...], Candidate] = {}
    for one in found:
        if one.bits >= LEAST and (one.ranks not in best or best[one.ranks].bits < one.bits):
            best[one.ranks] = one
    order = sorted(best.values(), key=lambda one: (-round(one.bits, 6), len(one.ranks), one.ranks))[:KEPT]
    return Explanation(tuple(order), _share(order))


def _share(order: Sequence[Candidate]) -> float:
    if not order:
        return 0.0
    own = set(order[0].ranks)
    for rival in order[1:]:
        if not (own <= set(rival.ranks) or own >= set(rival.ranks)):
            return 1 / (1 + 2 ** (rival.bits - order[0].bits))
    return 1.0


@dataclass(frozen=True)
class Domains:
    """What ranks may share, narrowest first: machine, process groups, switch."""

    topology: Topology
    dims: tuple[str, ...]
    switch_of: Mapping[str, tuple[Rank, ...]]
    widest: int

    @classmethod
    def of(cls, topology: Topology, seen: int) -> "Domains":
        """The domains that can single out a rank: no group of theirs holds more than half of the `seen` ranks."""
        on: dict[str, tuple[Rank, ...]] = {}
        for machines in topology.switches.values():
            ranks = tuple(sorted(rank for machine in machines for rank in topology.machines.get(machine, ())))
            on.update(dict.fromkeys(machines, ranks))
        groups = {MACHINE: topology.machines.values(), **topology.groups, SWITCH: on.values()}
        widest = {dim: max(map(len, members), default=0) for dim, members in groups.items()}
        dims = tuple(sorted((dim for dim, size in widest.items() if 1 < size <= seen / 2), key=lambda dim: widest[dim]))
        return cls(topology, dims, on, min(LOOKED_AT, seen // 2))

    def group(self, dim: str, rank: Rank) -> tuple[Rank, ...]:
        """The ranks that share `dim` with `rank`; empty where it has no such group."""
        if dim not in (MACHINE, SWITCH):
            return self.topology.group(dim, rank) or ()
        machine = self.topology.machine(rank)
        if machine is None:
            return ()
        return self.topology.machines[machine] if dim == MACHINE else self.switch_of.get(machine, ())

    def around(self, dim: str, ranks: Iterable[Rank]) -> list[Rank]:
        """All ranks that share `dim` with one of `ranks`; empty if they are too many to score."""
        found: dict[Rank, tuple[Rank, ...]] = {}
        size = 0
        for rank in ranks:
            group = self.group(dim, rank)
            if group and group[0] not in found:
                found[group[0]] = group
                size += len(group)
                if size > self.widest:
                    return []
        return [rank for group in found.values() for rank in group]


def _touched(
    dim: str, odd: Iterable[Rank], domains: Domains, plain: Plain
) -> dict[Rank, tuple[float, tuple[Rank, ...]]]:
    """The groups along `dim` with an odd member, by their first rank, with the bits saved by describing each apart."""
    found: dict[Rank, tuple[float, tuple[Rank, ...]]] = {}
    for rank in odd:
        group = domains.group(dim, rank)
        if group and group[0] not in found:
            seen = plain.seen(group)
            found[group[0]] = (plain.without(seen, NOTHING) - length(plain.count(seen), plain.kinds), group)
    return found


def _ranks(
    odd: Sequence[Rank],
    touched: Mapping[str, dict[Rank, tuple[float, tuple[Rank, ...]]]],
    domains: Domains,
    plain: Plain,
) -> Iterator[Candidate]:
    """Single ranks: the odd ones whose own label and groups stand out most."""
    alike = Counter(plain.symbol)
    own: dict[Rank, float] = {}
    promise: dict[Rank, float] = {}
    for rank in odd:
        # its label is named first, then which of the ranks with this label it is
        naming = log2(plain.kinds) + log2(alike[plain.symbol[rank]])
        own[rank] = plain.without([rank], NOTHING) - naming
        promise[rank] = own[rank]
        for dim, groups in touched.items():
            group = domains.group(dim, rank)
            promise[rank] += max(0.0, groups[group[0]][0]) if group else 0.0
    for rank in sorted(odd, key=lambda rank: (-promise[rank], rank))[:FINALISTS]:
        saved, relations = _relations((rank,), domains, plain)
        bits = own[rank] + saved
        yield Candidate(RANK, f"rank {rank}", (rank,), bits, relations, _because(f"rank {rank}", bits, relations))


def _groups(
    touched: Mapping[str, dict[Rank, tuple[float, tuple[Rank, ...]]]], domains: Domains, plain: Plain
) -> Iterator[Candidate]:
    """Machines, process groups and switches as a whole."""
    for dim, groups in touched.items():
        naming = WHOLE + log2(len(touched)) + log2(max(1, len(groups)))
        for gain, group in sorted(groups.values(), key=lambda entry: (-entry[0], entry[1][0]))[:GROUP_FINALISTS]:
            if gain <= 0:
                break
            saved, relations = _relations(group, domains, plain)
            name = _named(dim, group, domains)
            yield Candidate(
                dim, name, group, gain - naming + saved, relations, _because(name, gain - naming + saved, relations)
            )


def _relations(members: tuple[Rank, ...], domains: Domains, plain: Plain) -> tuple[float, tuple[Relation, ...]]:
    """The relations to `members` that show where others are, and the bits they save; the most bits for each rank come
    first.

    A relation is a shared group, or a group shared with a rank that shares another one: waits pass through others.
    Ranks of several relations may be at one call site, which is then described once.
    """
    near = {dim: sorted(set(domains.around(dim, members)).difference(members)) for dim in domains.dims}
    cells = [cell for dim, ranks in near.items() for cell in _cells(dim, ranks, members, plain)]
    for one, other in combinations([dim for dim in domains.dims if dim not in (MACHINE, SWITCH) and near[dim]], 2):
        both = sorted(set(domains.around(other, near[one])).difference(members))
        cells += _cells(f"{one} and {other}", both, members, plain)
    own = plain.symbol[members[0]] if len(members) == 1 and plain.symbol[members[0]] != ODD else None
    reported = Encoding(Counter(), Counter())
    plain.tell(plain.seen(members), reported)
    claimed: set[Rank] = set()
    places: list[LabelCounts] = []
    saved = 0.0
    found: list[Relation] = []
    worth = {relation: _gain(ranks, reported, [], plain)[0] / len(ranks) for relation, ranks in cells}
    for relation, related in sorted(cells, key=lambda cell: (-round(worth[cell[0]], 6), cell[0].dim, cell[0].side)):
        ranks = [rank for rank in related if rank not in claimed]
        if own is not None and plain.count(ranks)[own] * 2 > len(ranks):
            continue  # ranks that wait for a rank are elsewhere; if they are with it, their group is the cause
        gain, at = _gain(ranks, reported, places, plain)
        if gain > 0:
            saved += gain
            claimed.update(ranks)
            plain.tell(ranks, reported)
            places[at : at + 1] = [plain.count(ranks) + (places[at] if at < len(places) else Counter())]
            found.append(replace(relation, count=len(ranks)))
    return saved, tuple(found)


def _gain(ranks: Sequence[Rank], reported: Encoding, places: Sequence[LabelCounts], plain: Plain) -> tuple[float, int]:
    """Bits saved if these ranks are described by themselves or with the best-fitting call site; and that site's index."""
    if not ranks:
        return 0.0, 0
    counts = plain.count(ranks)
    costs = [length(place + counts, plain.kinds) - length(place, plain.kinds) for place in places]
    costs.append(length(counts, plain.kinds))
    at = min(range(len(costs)), key=costs.__getitem__)
    return plain.without(ranks, reported) - costs[at] - FLAG, at


def _cells(
    dim: str, ranks: Iterable[Rank], members: tuple[Rank, ...], plain: Plain
) -> Iterator[tuple[Relation, list[Rank]]]:
    """The related ranks, split into stages before, beside and after the members'."""
    stages = [plain.stage[rank] for rank in members]
    first, last = min(stages), max(stages)
    cells: dict[str, list[Rank]] = {}
    sides = [BEFORE] * first + [BESIDE] * (last + 1 - first)
    stage = plain.stage
    for rank in plain.seen(ranks):
        at = stage[rank]
        cells.setdefault(sides[at] if at < len(sides) else AFTER, []).append(rank)
    for side, there in cells.items():
        yield Relation(dim, side, len(there)), there


def _named(dim: str, group: tuple[Rank, ...], domains: Domains) -> str:
    if dim == MACHINE:
        return str(domains.topology.machine(group[0]))
    return f"{dim} {'group ' if dim != SWITCH else ''}of ranks {format_ranks(group)}"


def _because(name: str, bits: float, relations: Sequence[Relation]) -> str:
    """One sentence on where others are in relation to the candidate, with the bits saved."""
    if not relations:
        return f"{name} is the odd one by itself: no relation to it tells where others stand ({bits:.0f} bits)"
    reported = [
        f"{one.count} of its {one.dim}"
        + ("" if one.side == BESIDE else f" at {'earlier' if one.side == BEFORE else 'later'} stages")
        for one in relations
    ]
    return f"where others stand follows from their relation to {name}: {', '.join(reported)} ({bits:.0f} bits saved)"
