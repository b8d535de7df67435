"""How long each rank worked between two operations that it shares with its like: read off the times a flight recorder keeps.

All members leave a collective together, and who joins last has waited least. Between two operations of one group every
member thus spends equal time, working or waiting in operations, and whose waits are shorter has worked longer: no clock
of one machine is held against another's (field.md section 7: Greyhound, CCL-D and Mycroft compare durations alike).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from hangdog_models.collectives import COALESCED, INSPECTOR, P2P, CollectiveRecord, RankCounters
from hangdog_models.ranks import Rank
from hangdog_models.topology import WORLD, Topology

#: Of more ranks than these the median is taken once and over all: one machine's ranks no longer move it.
COMPARED_ONE_BY_ONE = 32


@dataclass(frozen=True, slots=True)
class Spell:
    """From one operation of a group to its next on one rank: the nanoseconds waited in each kind of group, by `span_ns`."""

    waited: Mapping[str, int]
    span_ns: int


@dataclass(frozen=True, slots=True)
class Excess:
    """What one rank worked beyond its like in one spell: `own_ns` of `span_ns`, negative where it worked less.

    `abroad`: its like were on other machines; else all of them share its own.
    """

    rank: Rank
    group: str
    own_ns: int
    span_ns: int
    abroad: bool


def excesses(records: Iterable[RankCounters], topology: Topology) -> Iterator[Excess]:
    """One for each timed operation of each rank that has its like in it.

    Alike are ranks that hold the same share of the model and so have the same work: the members of one data-parallel
    group. In a job of which no groups are known, all are taken for that. NCCL Inspector records no receive, so what it
    timed of a pipeline, whose stages wait in receives, is left out.
    """
    for group, spells in meetings(records, topology):
        yield from _compared(group, spells, topology)


def meetings(records: Iterable[RankCounters], topology: Topology) -> Iterator[tuple[str, Mapping[Rank, Spell]]]:
    """Each timed operation of a group, by the group's name: the spells before it of the ranks that have the same work."""
    pipeline = topology.group("pp", Rank(0)) is not None
    found: dict[tuple[str, int, Rank], dict[Rank, Spell]] = {}
    for record in records:
        if pipeline and record.source == INSPECTOR:
            continue
        like = like_of(record.rank, topology)
        kinds: dict[str, str] = {}
        for before, entry in _successive(record.entries):
            if entry.apart_ns is None or entry.created_ns <= before.created_ns:
                continue
            waited = {kind_of(entry.group, record, topology, kinds): entry.took_ns}
            for name, took in entry.apart_ns:
                kind = kind_of(name, record, topology, kinds)
                waited[kind] = waited.get(kind, 0) + took
            key = (entry.group, entry.sequence, like)
            spell = Spell(waited, entry.created_ns - before.created_ns)
            found.setdefault(key, {})[record.rank] = spell
    for (group, _, _), spells in found.items():
        yield group, spells


def _successive(entries: Iterable[CollectiveRecord]) -> Iterator[tuple[CollectiveRecord, CollectiveRecord]]:
    """Each collective of a group with the one before it, where both are recorded."""
    last: dict[str, CollectiveRecord] = {}
    for entry in entries:
        if entry.p2p or entry.operation.endswith(COALESCED):
            continue
        before = last.get(entry.group)
        last[entry.group] = entry
        if before is not None and before.sequence == entry.sequence - 1 and entry.took_ns:
            yield before, entry


def like_of(rank: Rank, topology: Topology) -> Rank:
    """The first of the ranks that have the same work; itself where nobody has."""
    for dim in ("dp-cp", "dp"):
        group = topology.group(dim, rank)
        if group is not None:
            return group[0]
    return Rank(0) if topology.dims == (WORLD,) else rank


def kind_of(name: str, record: RankCounters, topology: Topology, known: dict[str, str]) -> str:
    """What a group is called alike by all replicas: its dimension, else its description."""
    kind = known.get(name)
    if kind is None:
        group = name.removesuffix(P2P)
        members = record.members.get(group, ())
        found = (dim for dim in topology.dims if members and topology.group(dim, record.rank) == members)
        kind = known[name] = next(found, record.descriptions.get(group) or group) + name[len(group) :]
    return kind


def _compared(group: str, spells: Mapping[Rank, Spell], topology: Topology) -> Iterator[Excess]:
    by_machine: dict[str | None, list[Spell]] = {}
    for rank, spell in spells.items():
        by_machine.setdefault(topology.machine(rank), []).append(spell)
    if len(spells) > COMPARED_ONE_BY_ONE:
        usual = medians(spells.values())
        for rank, spell in spells.items():
            yield Excess(rank, group, _own(spell, usual), spell.span_ns, len(by_machine) > 1)
        return
    others = {
        machine: medians([spell for other, theirs in by_machine.items() if other != machine for spell in theirs])
        for machine in by_machine
    }
    for rank, spell in spells.items():
        if len(by_machine) > 1:
            yield Excess(rank, group, _own(spell, others[topology.machine(rank)]), spell.span_ns, True)
        elif len(spells) > 1:
            usual = medians([theirs for other, theirs in spells.items() if other != rank])
            yield Excess(rank, group, _own(spell, usual), spell.span_ns, False)


def medians(spells: Collection[Spell]) -> dict[str, int]:
    """What is usually waited in each kind of group."""
    kinds = {kind for spell in spells for kind in spell.waited}
    return {kind: int(median(spell.waited.get(kind, 0) for spell in spells)) for kind in kinds}


def _own(spell: Spell, usual: Mapping[str, int]) -> int:
    """What the rank worked beyond its like, at the least: what they waited longer than it, less what it waited longer.

    Operations of several groups may run at once (gradients are reduced while backward computes), and one rank's lateness
    is then waited for in all of them: of the kinds in which the others waited longer the longest counts, once.
    """
    more = less = 0
    for kind in usual.keys() | spell.waited.keys():
        difference = usual.get(kind, 0) - spell.waited.get(kind, 0)
        more, less = max(more, difference), less + max(0, -difference)
    return more - less
