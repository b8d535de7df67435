"""What the profiler's ring of each rank shows of a played job at any moment."""

from bisect import bisect_right
from collections.abc import Sequence
from math import inf

from hangdog_agent.stalls.progress.ring_count import OperationSteps, TransferSteps, device_reading
from hangdog_models.progress.collective_progress import (
    CollectiveProgress,
    Moved,
    NcclCall,
    Operation,
    Phase,
    RankProgress,
    Transfer,
)
from hangdog_models.ranks import Rank
from injections.chunks import CHUNKS, MACHINES, PER_MACHINE, RANKS, Played, Reduction, Sent

#: NCCL's numbers of the communicators: one of each machine, one of each ring.
TENSOR, DATA = 0xA0, 0xD0
_BYTES = 1 << 19
#: Of a rank's operations only the latest so many may be under way: it waits for each iteration's end.
UNDER_WAY = 2


def shown(played: Played, now: float) -> tuple[RankProgress, ...]:
    """The rings of all ranks."""
    return tuple(ring(played, rank, now) for rank in range(RANKS))


def ring(played: Played, rank: int, now: float) -> RankProgress:
    machine, place = divmod(rank, PER_MACHINE)
    inside = _communicator(TENSOR + machine, played.tensor[rank], place, PER_MACHINE, 1, now)
    across = _communicator(DATA + place, played.data[rank], machine, MACHINES, MACHINES, now)
    return RankProgress(Rank(rank), (inside, across))


def moved(one: CollectiveProgress) -> int:
    """How far a communicator has come, as the agent counts it."""
    steps = sum(way.posted + way.ready + way.transmitted + way.done for way in (one.sent, one.received))
    return one.collectives + one.launched + one.started + one.finished + steps


def device(rings: RankProgress) -> tuple[str, int, int, int] | None:
    """What the agent reads off a rank's ring of its device: what it does, and the communicator, number and peer that show it."""
    flight, flows = [], []
    for place, one in enumerate(rings.communicators):
        for each in one.in_flight:
            begun = each.phase is Phase.RUNNING
            flight.append(OperationSteps(place, each.order, 0, each.phase is not Phase.ENQUEUED, begun, begun))
            flows += [
                TransferSteps(place, each.order, t.peer, t.sends, t.posted, t.ready, t.transmitted, t.done)
                for t in each.transfers
            ]
    found = device_reading(flight, flows)
    if found is None:
        return None
    if found.communicator < 0:
        return found.doing, 0, -1, -1
    of = rings.communicators[found.communicator]
    return found.doing, of.communicator, of.rank, found.peer


def _communicator(
    number: int, calls: Sequence[Reduction], place: int, ranks: int, nodes: int, now: float
) -> CollectiveProgress:
    begun = bisect_right(calls, now, key=lambda one: one.enqueued)
    whole = max(0, begun - UNDER_WAY)
    started = whole + sum(one.started <= now for one in calls[whole:begun])
    flight = [at for at in range(whole, begun) if calls[at].ended > now]
    last = _call(calls[begun - 1], begun - 1, nodes) if begun else None
    sent, received = (
        _moved(way, whole, now)
        for way in ([one.sends for one in calls[whole:begun]], [one.gets for one in calls[whole:begun]])
    )
    return CollectiveProgress(
        number, "", place, ranks, nodes, False, begun, 0, begun, started, begun - len(flight), 0,
        now - calls[begun - 1].enqueued if begun else None, last, sent, received,
        tuple(_operation(calls[at], at, place, ranks, nodes, now) for at in flight),
    )  # fmt: skip


def _call(one: Reduction, number: int, nodes: int) -> NcclCall:
    return NcclCall(one.function, "Bfloat16", _BYTES, number, "RING", "SIMPLE", 1 if nodes > 1 else 4, 0, True)


def _operation(one: Reduction, order: int, place: int, ranks: int, nodes: int, now: float) -> Operation:
    phase = Phase.RUNNING if one.started <= now else Phase.LAUNCHED
    transfers: tuple[Transfer, ...] = ()
    if one.sends.posted:
        transfers = (
            _transfer(one.gets, (place - 1) % ranks, False, now),
            _transfer(one.sends, (place + 1) % ranks, True, now),
        )
    events = [one.enqueued, one.started, *(time for way in (one.sends, one.gets) for time in _times(way))]
    latest = max(time for time in events if time <= now)
    return Operation(
        _call(one, order, nodes), order, phase, now - one.enqueued, now - latest, int(phase is Phase.RUNNING), transfers
    )


def _times(way: Sent) -> list[float]:
    return [*way.posted, *way.ready, *way.transmitted, *way.done]


def _counts(way: Sent, now: float) -> tuple[int, int, int, int]:
    done, transmitted, ready, posted = (
        sum(time <= now for time in level) for level in (way.done, way.transmitted, way.ready, way.posted)
    )
    return posted, ready, transmitted, done


def _transfer(way: Sent, peer: int, sends: bool, now: float) -> Transfer:
    counts = _counts(way, now)
    latest = max((time for time in _times(way) if time <= now), default=-inf)
    return Transfer(0, peer, sends, CHUNKS, *counts, counts[-1] * _BYTES, max(0.0, now - latest))


def _moved(ways: Sequence[Sent], whole: int, now: float) -> Moved:
    """Of `whole` operations that are over, and of the latest."""
    if not ways or not ways[0].posted:
        return Moved(0, 0, 0, 0, 0, 0)
    counts = [whole * CHUNKS] * 4
    for way in ways:
        counts = [a + b for a, b in zip(counts, _counts(way, now), strict=True)]
    posted, ready, transmitted, done = counts
    return Moved(whole + len(ways), posted, ready, transmitted, done, done * _BYTES)
