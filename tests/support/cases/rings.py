"""What a ring of the profiler plug-in shows of a rank, told in a few words."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

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

NOTHING_MOVED = Moved(0, 0, 0, 0, 0, 0)
#: The communicator of all ranks, as NCCL numbers it.
WORLD = 0xABC


def transfer(way: str, peer: int, posted: int, ready: int, transmitted: int, done: int) -> Transfer:
    """`to` or `from` a peer, its steps from the first level to the last."""
    return Transfer(0, peer, way == "to", 16, posted, ready, transmitted, done, 4096, 20.0)


def operation(
    order: int, phase: Phase = Phase.RUNNING, *transfers: Transfer, idle_s: float = 20.0, function: str = "AllReduce",
    peer: int = 0, age_s: float | None = None,
) -> Operation:  # fmt: skip
    call = NcclCall(function, "Float32", 1024, order, "RING", "SIMPLE", 2, peer, function not in ("Send", "Recv"))
    running = int(phase is Phase.RUNNING)
    return Operation(call, order, phase, age_s if age_s is not None else idle_s + 0.1, idle_s, running, transfers)


def communicator(
    rank: int, ranks: int, collectives: int, *in_flight: Operation, number: int = WORLD, p2ps: int = 0
) -> CollectiveProgress:
    """One rank's part of a communicator in which so many collectives were enqueued, all but those in flight finished."""
    last = in_flight[-1].call if in_flight else None
    begun = sum(each.phase is Phase.RUNNING for each in in_flight)
    finished = collectives + p2ps - len(in_flight)
    return CollectiveProgress(
        number, "", rank, ranks, ranks, False, collectives, p2ps, collectives + p2ps, finished + begun, finished, 0, 20.0,
        last, NOTHING_MOVED, NOTHING_MOVED, in_flight,
    )  # fmt: skip


def ring(rank: int, *communicators: CollectiveProgress) -> RankProgress:
    return RankProgress(Rank(rank), communicators)


def world(*in_flight: Sequence[Operation], collectives: Sequence[int]) -> tuple[RankProgress, ...]:
    """Rings of the communicator of all ranks: by rank what is in flight, and how many collectives were enqueued."""
    ranks = len(collectives)
    return tuple(
        ring(rank, communicator(rank, ranks, count, *flight))
        for rank, (flight, count) in enumerate(zip(in_flight, collectives, strict=True))
    )


def hung(victim: int, phase: Phase = Phase.LAUNCHED) -> tuple[RankProgress, ...]:
    """All hosts have launched number 7, and the device of one has not begun it."""
    flights = [[operation(7, phase if rank == victim else Phase.RUNNING)] for rank in range(4)]
    return world(*flights, collectives=[8] * 4)


def stuck(transfers: dict[int, list[Transfer]]) -> tuple[RankProgress, ...]:
    """All devices are inside of number 7."""
    return world(*([operation(7, Phase.RUNNING, *transfers[rank])] for rank in range(4)), collectives=[8] * 4)


def around(device: int) -> dict[int, list[Transfer]]:
    """A ring of four in which one device does no more: it has taken no data since, and written none.

    Whoever sends to it has no room there, and takes no more itself; the others wait for data.
    """
    found = {}
    for rank in range(4):
        before, after = (rank - 1) % 4, (rank + 1) % 4
        full = device in (rank, after)
        takes = transfer("from", before, 6, 6, 6, 4) if full else transfer("from", before, 5, 4, 4, 4)
        gives = transfer("to", after, 8, 6, 4, 4) if after == device else transfer("to", after, 5, 4, 4, 4)
        found[rank] = [takes, gives]
    return found


def held_up(sender: int) -> dict[int, list[Transfer]]:
    """A ring of four in which what one has ready does not leave it, though the next one has room.

    So it takes no more itself, and whoever sends to it has no room there; the others wait for data.
    """
    found = {}
    for rank in range(4):
        before, after = (rank - 1) % 4, (rank + 1) % 4
        takes = transfer("from", before, 6, 6, 6, 4) if rank == sender else transfer("from", before, 6, 4, 4, 4)
        gives = transfer("to", after, 6, 5, 4, 4) if sender in (rank, after) else transfer("to", after, 5, 4, 4, 4)
        found[rank] = [takes, gives]
    return found


def without_kernels(one: CollectiveProgress) -> CollectiveProgress:
    """The same where NCCL tells nothing of its kernels: nothing counts as started or finished."""
    return replace(one, started=0, finished=0)


#: Whatever a ring may hold.
COUNTS = st.integers(0, 2**63)
SECONDS = st.floats(0, 1e9)
WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
CALLS = st.builds(
    NcclCall, WORDS, WORDS, COUNTS, COUNTS, WORDS, WORDS, st.integers(0, 255), st.integers(-1, 99), st.booleans()
)
STEPS = st.lists(st.integers(0, 1000), min_size=4, max_size=4).map(lambda steps: sorted(steps, reverse=True))
TRANSFERS = st.builds(
    lambda steps, channel, peer, sends, idle_s: Transfer(
        channel, peer, sends, 1000, steps[0], steps[1], steps[2], steps[3], 8, idle_s
    ),
    STEPS, st.integers(0, 63), st.integers(0, 99), st.booleans(), SECONDS,
)  # fmt: skip
OPERATIONS = st.builds(
    Operation, CALLS, COUNTS, st.sampled_from(Phase), SECONDS, SECONDS, st.integers(0, 64),
    st.lists(TRANSFERS, max_size=3).map(tuple),
)  # fmt: skip
MOVED = st.builds(Moved, *[COUNTS] * 6)
PROGRESS = st.builds(
    lambda rank, further, **rest: CollectiveProgress(rank=rank, ranks=rank + 1 + further, **rest),
    rank=st.integers(0, 1000), further=st.integers(0, 1000), communicator=st.integers(0, 2**64 - 1), name=WORDS,
    nodes=COUNTS, ended=st.booleans(), collectives=COUNTS, point_to_points=COUNTS, launched=COUNTS, started=COUNTS,
    finished=COUNTS, left_out=COUNTS, idle_s=st.none() | SECONDS, last=st.none() | CALLS, sent=MOVED, received=MOVED,
    in_flight=st.lists(OPERATIONS, max_size=3).map(tuple),
)  # fmt: skip
