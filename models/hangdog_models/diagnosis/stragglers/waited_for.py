"""Whether others wait for a rank that works longer: an operation that it holds up keeps another member waiting.

A rank can seem busy for another reason. Between two operations it may have waited in something that no recorder shows.
Then no rank waits for it: in its next operation the others have come no sooner.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hangdog_models.collectives import P2P, RankCounters
from hangdog_models.diagnosis.stragglers.recorded_intervals import (
    COMPARED_ONE_BY_ONE,
    Spell,
    kind_of,
    medians,
    meetings,
)
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology


def shares(records: Iterable[RankCounters], topology: Topology) -> dict[Rank, float]:
    """For each rank the share of the time that it kept another waiting, as far as their common operations show.

    Its peers waited in a group with it longer than it did. Another member of its groups waited there longer than its
    own peers did in theirs. The rank that waited most counts. Linear in the records.
    """
    records = list(records)
    beyond = _beyond_usual(records, topology)
    most = _most_waited(records, beyond, topology)
    found: dict[Rank, float] = {}
    for record in records:
        rank, kinds = record.rank, dict[str, str]()
        kept = [0.0]
        for group in _groups(record):
            for name in (group, group + P2P):
                kept += [share for whose, share in most.get(name, ()) if whose != rank][:1]
            # what it waited less in a group than members with the same work is what these waited for it
            kept.append(-beyond.get((rank, group), {}).get(kind_of(group, record, topology, kinds), 0.0))
        found[rank] = max(kept)
    return found


#: By kind of group, the share of its time that a rank waited longer than its peers.
_Shares = dict[str, float]


def _beyond_usual(records: Iterable[RankCounters], topology: Topology) -> Mapping[tuple[Rank, str], _Shares]:
    """For each rank and each group that it shares with its peers."""
    sums: dict[tuple[Rank, str], _WaitTotals] = {}
    for group, spells in meetings(records, topology):
        for rank, spell, usual in _with_usual(spells):
            sums.setdefault((rank, group), _WaitTotals({})).add(spell, usual)
    return {key: one.shares() for key, one in sums.items()}


@dataclass(slots=True)
class _WaitTotals:
    waited: dict[str, int]
    span_ns: int = 0

    def add(self, spell: Spell, usual: Mapping[str, int]) -> None:
        self.span_ns += spell.span_ns
        for kind in usual.keys() | spell.waited.keys():
            self.waited[kind] = self.waited.get(kind, 0) + spell.waited.get(kind, 0) - usual.get(kind, 0)

    def shares(self) -> _Shares:
        return {kind: waited / self.span_ns for kind, waited in self.waited.items()}


def _with_usual(spells: Mapping[Rank, Spell]) -> Iterator[tuple[Rank, Spell, Mapping[str, int]]]:
    """Each spell with the median wait of the others. For many ranks one median over all is used."""
    if len(spells) > COMPARED_ONE_BY_ONE:
        usual = medians(spells.values())
        yield from ((rank, spell, usual) for rank, spell in spells.items())
    elif len(spells) > 1:
        for rank, spell in spells.items():
            yield rank, spell, medians([theirs for other, theirs in spells.items() if other != rank])


def _most_waited(
    records: Iterable[RankCounters], beyond: Mapping[tuple[Rank, str], _Shares], topology: Topology
) -> Mapping[str, list[tuple[Rank, float]]]:
    """For each group the two members that waited in it most beyond their peers, the first one first."""
    of_rank: dict[Rank, _Shares] = {}
    for (rank, _), theirs in beyond.items():
        mine = of_rank.setdefault(rank, {})
        for kind, share in theirs.items():
            mine[kind] = max(mine.get(kind, 0.0), share)
    most: dict[str, list[tuple[Rank, float]]] = {}
    for record in records:
        kinds: dict[str, str] = {}
        mine = of_rank.get(record.rank, {})
        for group in _groups(record):
            for name in (group, group + P2P):
                share = mine.get(kind_of(name, record, topology, kinds), 0.0)
                if share > 0:
                    ranked = sorted([*most.get(name, ()), (record.rank, share)], key=lambda one: (-one[1], one[0]))
                    most[name] = ranked[:2]
    return most


def _groups(record: RankCounters) -> set[str]:
    return {*record.members, *record.enqueued, *(entry.group for entry in record.entries)}
