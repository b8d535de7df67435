"""How long each rank worked between two operations that it shares with its peers, by the times of a flight recorder.

All members leave a collective together, and the last to join has waited least. So between two operations of one group
all members spend equal time, working or waiting in operations. A member with shorter waits has worked longer. No clock
is compared with another machine's (field.md section 7: Greyhound, CCL-D and Mycroft compare durations likewise).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from hangdog_models.collectives import COALESCED, INSPECTOR, P2P, CollectiveRecord, RankCounters
from hangdog_models.ranks import Rank
from hangdog_models.topology import WORLD, Topology

#: Above so many ranks one median over all is used: one machine's ranks no longer move it.
COMPARED_ONE_BY_ONE = 32


@dataclass(frozen=True, slots=True)
class Spell:
    """The time from one operation of a group to its next on one rank, `span_ns`.

    `waited`: the nanoseconds waited in each kind of group.
    """

    waited: Mapping[str, int]
    span_ns: int


@dataclass(frozen=True, slots=True)
class Excess:
    """How much longer than its peers one rank worked in one spell: `own_ns` of `span_ns`, negative where less.

    `abroad`: its peers were on other machines; else all share its own.
    """

    rank: Rank
    group: str
    own_ns: int
    span_ns: int
    abroad: bool


def excesses(records: Iterable[RankCounters], topology: Topology) -> Iterator[Excess]:
    """One for each timed operation of each rank that has peers in it.

    Peers are ranks that hold the same share of the model and so have the same work: the members of one data-parallel
    group. In a job without known groups all ranks are peers. NCCL Inspector records no receive, in which pipeline
    stages wait. So its times of a pipeline are left out.
    """
    for group, spells in meetings(records, topology):
        yield from _compared(group, spells, topology)


def meetings(records: Iterable[RankCounters], topology: Topology) -> Iterator[tuple[str, Mapping[Rank, Spell]]]:
    """Each timed operation of a group, by the group's name, with the spells before it of ranks that have the same work."""
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
    """The first of the ranks with the same work; the rank itself if there are no others."""
    for dim in ("dp-cp", "dp"):
        group = topology.group(dim, rank)
        if group is not None:
            return group[0]
    return Rank(0) if topology.dims == (WORLD,) else rank


def kind_of(name: str, record: RankCounters, topology: Topology, known: dict[str, str]) -> str:
    """The name of a group that is equal in all replicas: its dimension, else its description."""
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
    """The median wait in each kind of group, in nanoseconds."""
    kinds = {kind for spell in spells for kind in spell.waited}
    return {kind: int(median(spell.waited.get(kind, 0) for spell in spells)) for kind in kinds}


def _own(spell: Spell, usual: Mapping[str, int]) -> int:
    """How much longer than its peers the rank worked, at the least: their extra waits, less its own extra waits.

    Operations of several groups may run at once (gradients are reduced while backward computes). Then one rank's
    lateness is waited for in all of them. So of the kinds in which the others waited longer, only the longest counts.
    """
    more = less = 0
    for kind in usual.keys() | spell.waited.keys():
        difference = usual.get(kind, 0) - spell.waited.get(kind, 0)
        more, less = max(more, difference), less + max(0, -difference)
    return more - less
