"""Has the looks of an order travel together, to a server that knows it: a message costs a server more than what is in it.

The first look goes at once, for the machine may not live to the second one, unless the server has so many machines that it
asks for the first one later, too; those between it and the last go with the last.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence

from hangdog_proto.codec.rounds import MOST_EARLIER, same_but_for_counts
from hangdog_proto.generated import hangdog_pb2 as pb

#: No look is kept back for longer, nor at all if the pauses between looks that were ordered would have it so. Seconds.
KEPT_S = 5.0


async def together(
    messages: AsyncGenerator[pb.Captured, None], rounds: int, interval_s: float, most: int, all_: bool = False
) -> AsyncGenerator[pb.Captured, None]:
    """The messages of an order of `rounds` looks, in as few as fit into `most` bytes each (0: no bound).

    `all_`: the first one need not go at once.
    """
    loop = asyncio.get_running_loop()
    first = 0 if all_ else 1
    kept: list[pb.Captured] = []
    until = loop.time()
    coming = asyncio.ensure_future(anext(messages, None))
    try:
        while True:
            if kept:
                await asyncio.wait((coming,), timeout=until - loop.time())
                if not coming.done():  # a look that hangs holds up none before it
                    for captured in kept:
                        yield captured
                    kept = []
            following = await coming
            if following is None:
                break
            coming = asyncio.ensure_future(anext(messages, None))
            between = first <= following.round < rounds - 1 and not following.last
            if between and (len(kept) + 1) * interval_s <= KEPT_S and len(kept) < MOST_EARLIER:
                until = until if kept else loop.time() + KEPT_S
                kept.append(following)
                continue
            for message in _joined(kept, following, most):
                yield message
            kept = []
        for captured in kept:
            yield captured
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)  # so that a look under way has let its process go


def _joined(kept: Sequence[pb.Captured], captured: pb.Captured, most: int) -> Iterator[pb.Captured]:
    befores = [_before(before, captured) for before in kept]
    if most and captured.capture.ByteSize() + sum(before.ByteSize() + 8 for before in befores) > most:
        yield from kept
    else:
        captured.before.extend(befores)
    yield captured


def _before(before: pb.Captured, captured: pb.Captured) -> pb.Before:
    counted = same_but_for_counts(before.capture, captured.capture)
    if counted is None:
        return pb.Before(round=before.round, capture=before.capture)
    counted.round = before.round
    return counted
