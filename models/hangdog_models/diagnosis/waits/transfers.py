"""Sends and receives under way, by flight recorders: which wait for other ends, and which joined and do not complete."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hangdog_models.collectives import COALESCED, EXCHANGE, CollectiveRecord, RankCounters
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank, format_ranks


class TransferEnd(NamedTuple):
    """One end of a transfer as its own rank records it: the peer, and the direction."""

    peer: Rank
    sends: bool


def transfers(records: Sequence[RankCounters], *, joined: bool = False) -> tuple[list[GroupWait], dict[Rank, str]]:
    """Sends and receives under way: each rank waits for the ends that have not posted the counterpart.

    Each operation is judged by itself. Outside of a batch, sends and receives have a communicator and a stream for each
    pair (ProcessGroupNCCL::pointToPoint, getKeySendRecv) and run concurrently. One may wait for its other end while
    another has joined and does not complete.

    A batch is one kernel, in which all ends progress at once (NCCL's manual, "Point-to-point communication"). Only its
    completion as a whole is known. If some end has not come, the ends that joined may be over.

    `joined`: some collective has joined and does not complete.

    Also the ranks whose device has not begun what the host posted, if another rank waits for just that.
    """
    posted: dict[Rank, dict[TransferEnd, bool]] = {}  # for each rank its open ends: whether the device has begun
    # the ends of each operation that a device has begun, and its name
    begun: list[tuple[Rank, tuple[TransferEnd, ...], str]] = []
    for record in sorted(records, key=lambda record: record.rank):
        for entry, open_ends in _batches(record):
            if not entry.done:
                mine = posted.setdefault(record.rank, {})
                for end in open_ends:
                    mine[end] = mine.get(end, False) or entry.started is not False
                if entry.started is not False:
                    called = EXCHANGE if EXCHANGE in entry.operation else "point-to-point"
                    begun.append((record.rank, tuple(sorted(open_ends)), called))
    timed = {
        record.rank
        for record in records
        if any(entry.started is not None for entry in record.entries if not entry.done)
    }
    holds: list[GroupWait] = []
    behind: dict[Rank, str] = {}
    whole: list[tuple[Rank, tuple[TransferEnd, ...]]] = []
    # ends of operations that wait for another end as well: whether that end's rank has a record
    torn: dict[tuple[Rank, TransferEnd], bool] = {}
    recorded = {record.rank for record in records}
    for rank, ends, called in begun:
        states = {end.peer: posted.get(end.peer, {}).get(TransferEnd(rank, not end.sends)) for end in ends}
        awaited = tuple(sorted(peer for peer, started in states.items() if not started))
        behind.update((peer, f"{called} with rank {rank}") for peer in awaited if states[peer] is False)
        if awaited:
            holds.append(_hold((rank,), awaited, states))
            torn.update(((rank, end), not recorded.isdisjoint(awaited)) for end in ends)
        else:
            whole.append((rank, ends))
    pairs = (replace(hold, begun=not timed.isdisjoint(hold.inside)) for hold in _joined(whole, torn, joined))
    return [*holds, *pairs], behind


def _joined(
    whole: Sequence[tuple[Rank, tuple[TransferEnd, ...]]],
    torn: Mapping[tuple[Rank, TransferEnd], bool],
    elsewhere: bool,
) -> list[GroupWait]:
    """Pairs that have joined and do not complete.

    The other end may be in a batch that waits for a third rank as well. Then the two are in different turns of a ring
    and one waits for the other: transfers within one turn need no third rank. If nothing is known of the third, they
    count as joined unless another operation has joined.
    """
    pairs: dict[tuple[Rank, Rank], Iterable[Rank]] = {}
    apart: dict[tuple[Rank, Rank], Iterable[Rank]] = {}  # which rank waits for which
    doubtful: dict[tuple[Rank, Rank], Iterable[Rank]] = {}
    for rank, ends in whole:
        peers = sorted({end.peer for end in ends})
        for end in ends:
            reported = torn.get((end.peer, TransferEnd(rank, not end.sends)))
            if reported is not None:
                (apart if reported else doubtful)[rank, end.peer] = peers
            else:
                pairs.setdefault((min(rank, end.peer), max(rank, end.peer)), peers)
    if not pairs and not elsewhere:
        pairs, doubtful = {(min(pair), max(pair)): peers for pair, peers in doubtful.items()}, {}
    waits = [_hold((rank,), (peer,), peers) for (rank, peer), peers in (apart | doubtful).items()]
    return [*waits, *(_hold(pair, (), peers) for pair, peers in pairs.items())]


def _hold(inside: tuple[Rank, ...], awaited: tuple[Rank, ...], peers: Iterable[Rank]) -> GroupWait:
    return GroupWait("p2p", inside, awaited, f"point-to-point with {format_ranks(peers)}", counted=True)


def _batches(record: RankCounters) -> Iterator[tuple[CollectiveRecord, list[TransferEnd]]]:
    """Each point-to-point operation with its ends.

    In a batch only the last entry, `coalesced`, records progress: ProcessGroupNCCL passes no events to the recorder for
    the sends and receives inside.
    """
    inside: dict[str, list[TransferEnd]] = {}
    batched = _batched(record)
    under_way: set[tuple[str, Rank]] = set()
    for entry in record.entries:
        members = record.members.get(entry.group, ())
        if entry.operation.endswith(COALESCED):
            yield entry, inside.pop(entry.group, [])
        elif entry.p2p:
            end = _end(entry.operation, members)
            if end is None or end.peer == record.rank:
                continue
            if entry.started is None and not entry.done and entry.group in batched:
                inside.setdefault(entry.group, []).append(end)
            elif entry.started is not None or entry.done or (entry.group, end.peer) not in under_way:
                if not entry.done:  # a pair of ranks has one stream for its transfers: the oldest comes first
                    under_way.add((entry.group, end.peer))
                yield entry, [end]


def _batched(record: RankCounters) -> set[str]:
    """The groups whose sends and receives are in batches: a batch's end is recorded, or several share one number."""
    under_way = [(e.group, e.sequence) for e in record.entries if e.p2p and not e.done]
    shared = {group for (group, _), times in Counter(under_way).items() if times > 1}
    return shared | {entry.group for entry in record.entries if entry.operation.endswith(COALESCED)}


def _end(operation: str, members: Sequence[Rank]) -> TransferEnd | None:
    """The other end in `nccl:send 3->4` and `nccl:recv 4<-3`, with numbers inside the group; None where there is none."""
    head, arrow, tail = operation.replace("<-", "<").replace("->", ">").partition("<" if "<-" in operation else ">")
    number = tail.strip().partition(" ")[0]
    if not arrow or not head or not number.isdigit() or int(number) >= len(members):
        return None
    return TransferEnd(members[int(number)], arrow == ">")
