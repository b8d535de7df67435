"""Has the looks of an order travel together, to a server that knows it: a message costs a server more than what is in it.

The first look goes at once, for the machine may not live to the second one; those between it and the last go with the last.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence

from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.together import MOST_BEFORE, same

#: No look is kept back for longer, by the pause between looks that was ordered. Seconds.
KEPT_S = 5.0


async def together(
    messages: AsyncGenerator[pb.Captured, None], rounds: int, interval_s: float, most: int
) -> AsyncGenerator[pb.Captured, None]:
    """The messages of an order of `rounds` looks, in as few as fit into `most` bytes each (0: no bound)."""
    kept: list[pb.Captured] = []
    async for captured in messages:
        between = 0 < captured.round < rounds - 1 and not captured.last
        if between and (len(kept) + 1) * interval_s <= KEPT_S and len(kept) < MOST_BEFORE:
            kept.append(captured)
            continue
        for message in _joined(kept, captured, most):
            yield message
        kept = []
    for captured in kept:
        yield captured


def _joined(kept: Sequence[pb.Captured], captured: pb.Captured, most: int) -> Iterator[pb.Captured]:
    befores = [_before(before, captured) for before in kept]
    if most and captured.capture.ByteSize() + sum(before.ByteSize() + 8 for before in befores) > most:
        yield from kept
    else:
        captured.before.extend(befores)
    yield captured


def _before(before: pb.Captured, captured: pb.Captured) -> pb.Before:
    cpu_s = same(before.capture, captured.capture)
    if cpu_s is None:
        return pb.Before(round=before.round, capture=before.capture)
    return pb.Before(round=before.round, cpu_s=cpu_s)
