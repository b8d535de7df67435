"""Where a collective that all devices have begun is stuck: at one machine's devices, or between two ranks.

The transfers of its proxy threads show it (Mycroft, SOSP 2025, table 4). A receiver waits for its sender's data. A
sender waits for its own device, which may in turn wait for data or for buffers. A rank that waits only for its own
device holds the others up. If data is ready and its receiver has a buffer, the network holds it up.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hangdog_models.collectives import PROFILER, CollectiveRecord, RankCounters
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.progress.collective_progress import Awaited, Transfer
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology

#: What other ranks provide.
_FROM_ELSEWHERE = {Awaited.DATA, Awaited.CREDIT, Awaited.NETWORK}
#: The transfers under way of each rank, with the rank at their other end.
_Flows = Mapping[Rank, Sequence[tuple[Rank, Transfer]]]


def narrowed(
    holds: Iterable[GroupWait], records: Sequence[RankCounters], topology: Topology
) -> tuple[list[GroupWait], dict[Rank, str]]:
    """The group waits, narrowed where transfers show more.

    Also the ranks whose own device holds a group up, with what the device has not reached.
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
    """The transfers of the collective, or of sends and receives if it is a pair; empty unless all members have a ring."""
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
    """The oldest collective of a group that the device has begun; without a group, all its sends and receives."""
    begun = [entry for entry in record.entries if entry.started and not entry.done]
    if not group:
        return [entry for entry in begun if entry.p2p]
    return [entry for entry in begun if entry.group == group and not entry.p2p][:1]


def _devices(hold: GroupWait, flows: _Flows, topology: Topology) -> tuple[Rank, ...]:
    """The ranks on the one machine whose devices neither write nor take data while nothing else holds them up; else
    empty.

    Each rank elsewhere must wait for data, for buffers or for the network. A rank that waits for buffers has a waiting
    device, too, once all its buffers are full. Transfers inside a machine are not recorded.
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
    """Sender and receiver of each transfer whose data has left the sender's device while the receiver has a buffer."""
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
    """Whether the network holds up a transfer: the sender has the data, and the receiver a buffer for it."""
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
