"""Where inside a collective that all devices have begun it is stuck: at one machine's devices, or between two ranks.

The transfers of its proxy threads tell (Mycroft, SOSP 2025, its table 4). A receiver waits for its sender's data. A sender waits for
its own device, which may wait for data or for room in turn. Who waits for its own device alone holds the others up. Data
that is ready, and for which the receiver has room, is held up on the way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hangdog_models.collectives import PROFILER, CollectiveRecord, RankCounters
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.progress.collective_progress import Awaited, Transfer
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology

#: What others give.
_FROM_ELSEWHERE = {Awaited.DATA, Awaited.CREDIT, Awaited.NETWORK}
#: The transfers under way of each rank, with the rank at their other end.
_Flows = Mapping[Rank, Sequence[tuple[Rank, Transfer]]]


def narrowed(
    holds: Iterable[GroupWait], records: Sequence[RankCounters], topology: Topology
) -> tuple[list[GroupWait], dict[Rank, str]]:
    """The holds, those of which transfers tell more narrowed to that; and the ranks whose own device holds one up, with
    what it has not reached.
    """
    by_rank = {record.rank: record for record in records if record.source == PROFILER}
    found: list[GroupWait] = []
    hung: dict[Rank, str] = {}
    for hold in holds:
        flows = _flows(hold, by_rank) if hold.joined and hold.begun and hold.counted else {}
        devices = _devices(hold, flows, topology)
        links = sorted(_links(flows))
        if devices and not links:
            others = tuple(rank for rank in hold.inside if rank not in devices)
            found.append(replace(hold, inside=others, awaited=devices, group=""))
            hung.update(dict.fromkeys(devices, f"the end of {hold.what}"))
        elif links and not devices:
            found += _between(hold, links)
        else:
            found.append(hold)
    return found, hung


def _flows(hold: GroupWait, by_rank: Mapping[Rank, RankCounters]) -> _Flows:
    """What moves for the collective, or for sends and receives where it is a pair; empty where not all members' rings tell."""
    found: dict[Rank, Sequence[tuple[Rank, Transfer]]] = {}
    for rank in hold.inside:
        record = by_rank.get(rank)
        running = _running(record, hold.group) if record else []
        moving = [(record.members.get(e.group, ()), each) for e in running for each in e.transfers] if record else []
        if not running or any(not 0 <= each.peer < len(members) for members, each in moving):
            return {}
        found[rank] = [(members[each.peer], each) for members, each in moving if each.awaits is not Awaited.NOTHING]
    return found


def _running(record: RankCounters, group: str) -> list[CollectiveRecord]:
    """The oldest collective of a group that the device has begun; without a group all its sends and receives."""
    begun = [entry for entry in record.entries if entry.started and not entry.done]
    if not group:
        return [entry for entry in begun if entry.p2p]
    return [entry for entry in begun if entry.group == group and not entry.p2p][:1]


def _devices(hold: GroupWait, flows: _Flows, topology: Topology) -> tuple[Rank, ...]:
    """The members on the one machine whose devices neither write nor take data while nothing else holds it up.

    Only if each of the others waits for data, for room or for the network. Who waits for room has a device that waits, too,
    once all of its buffers are full. What passes inside of a machine does not show.
    """
    machines: dict[str, list[Rank]] = {}
    for rank in flows:
        machines.setdefault(topology.machine(rank) or f"rank {rank}", []).append(rank)
    if len(machines) < 2:
        return ()
    stuck: list[tuple[Rank, ...]] = []
    for ranks in machines.values():
        awaited = {each.awaits for rank in ranks for _, each in flows[rank]}
        if awaited & _FROM_ELSEWHERE:
            continue
        if Awaited.GPU not in awaited:
            return ()
        stuck.append(tuple(ranks))
    return stuck[0] if len(stuck) == 1 else ()


def _links(flows: _Flows) -> Iterator[tuple[Rank, Rank]]:
    """From whom to whom data is under way that has left its sender's device, and for which its receiver has room."""
    for sender, sent in flows.items():
        for receiver, out in sent:
            mate = next(
                (
                    each
                    for peer, each in flows.get(receiver, ())
                    if peer == sender and each.channel == out.channel and not each.sends
                ),
                None,
            )
            if out.sends and mate is not None and _is_held_up(out, mate):
                yield sender, receiver


def _is_held_up(out: Transfer, into: Transfer) -> bool:
    """By the two ends of one transfer: the receiver waits, with room for the next step, and the sender has the step ready."""
    return into.awaits is Awaited.DATA and out.ready > into.ready and into.posted > into.ready


def _between(hold: GroupWait, links: Sequence[tuple[Rank, Rank]]) -> list[GroupWait]:
    """Each pair of ranks as joined and stuck, and the rest of the group as waiting for them."""
    ends = {rank for link in links for rank in link}
    pairs = {(min(link), max(link)): link for link in links}
    found = [
        GroupWait(
            "p2p", pair, (), f"{hold.what}: rank {sender} has data that does not reach rank {receiver}", counted=True
        )
        for pair, (sender, receiver) in pairs.items()
    ]
    rest = tuple(rank for rank in hold.inside if rank not in ends)
    return [*found, replace(hold, inside=rest, awaited=tuple(sorted(ends)), group="")] if rest else found
