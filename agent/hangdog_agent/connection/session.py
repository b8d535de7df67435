"""One connection of the agent to its server: what waits to be written, the orders being answered, and how it is parted."""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import grpc

from hangdog_agent.connection.settings import LinkSettings
from hangdog_models.backoff import pause
from hangdog_models.errors import HangdogError, ServerUnreachable
from hangdog_proto.client.channel_options import Options, open_aio_channel, verified
from hangdog_proto.client.server_address import ServerAddress
from hangdog_proto.client.server_auth import Verified, date_hint
from hangdog_proto.generated import hangdog_pb2 as pb

log = logging.getLogger(__name__)

#: Messages waiting to be written; a stream that does not take them has broken.
_OUTBOX = 64
#: The server has so long to hear that we leave; the agent is to end at once. Seconds.
_GOODBYE_S = 2.0

T = TypeVar("T")
Call = grpc.aio.StreamStreamCall[pb.FromAgent, pb.ToAgent]


class ServerSession:
    """One connection's call, what waits to be written, and the orders being answered."""

    def __init__(self, call: Call) -> None:
        self.call = call
        #: Whether anything got through to the other end, and when it last did: whatever is said is a sign of life.
        self.spoke = False
        self.spoke_at = -math.inf
        self.outbox: asyncio.Queue[pb.FromAgent] = asyncio.Queue(_OUTBOX)
        self.orders: set[asyncio.Task[None]] = set()
        self.beside: set[asyncio.Task[None]] = set()

    def busy(self) -> bool:
        """Whether orders are being answered."""
        return bool(self.orders)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something beside the orders for as long as the connection lasts."""
        task = asyncio.ensure_future(work)
        self.beside.add(task)
        task.add_done_callback(self._ended)

    def start(self, answer: Coroutine[Any, Any, None], most: int) -> bool:
        """Answers an order, unless `most` are being answered; whether it does."""
        if len(self.orders) >= most:
            log.warning("a command was dropped: %d are being answered", most)
            answer.close()
            return False
        task = asyncio.ensure_future(answer)
        self.orders.add(task)
        task.add_done_callback(self._ended)
        return True

    async def write(self) -> None:
        """Writes what waits, for as long as the connection lasts, or until the last words are written."""
        while True:
            message = await self.outbox.get()
            await self.call.write(message)
            self.spoke, self.spoke_at = True, asyncio.get_running_loop().time()
            if message.presence.leaving:
                await self.call.done_writing()
                return

    async def part(self, jobs: Iterable[pb.LocalJob], reading: asyncio.Task[Any]) -> None:
        """Says goodbye and waits a moment for the server to have heard it, which ends `reading`; what waits is dropped."""
        while not self.outbox.empty():
            self.outbox.get_nowait()
        self.outbox.put_nowait(pb.FromAgent(presence=pb.Presence(jobs=jobs, leaving=True)))
        await asyncio.wait((reading,), timeout=_GOODBYE_S)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.orders.discard(task)
        self.beside.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("cannot answer a command, or send a spooled look", exc_info=error)


def backoff(failures: int, settings: LinkSettings, draw: Callable[[float, float], float]) -> float:
    """Seconds until the next try: evenly drawn below a bound that doubles with each failure in a row (full jitter)."""
    return draw(0.0, pause(failures, settings.backoff_first_s, settings.backoff_most_s))


def within(value: float, least: float, most: float) -> float:
    """A number from the wire, brought between two bounds; one that is no number becomes the lower one."""
    return least if math.isnan(value) else min(max(value, least), most)


async def cancelled(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancels tasks and waits until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def connected(
    reach: ServerAddress, options: Options, stop: asyncio.Event
) -> tuple[grpc.aio.Channel, Verified | None]:
    """A channel to a server whose certificate was checked, and what it says; raises HangdogError."""
    server = await unless(stop, asyncio.to_thread(verified, reach)) if reach.tls is not None else None
    return open_aio_channel(reach, options, server), server


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """What comes of some work, unless we are told to stop before; raises ServerUnreachable then, and leaves it behind."""
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()
        raise ServerUnreachable("the agent is stopping", code="agent-stopping")
    finally:
        for task in tasks:
            task.cancel()


def why(error: BaseException) -> str:
    """What an error says of why a connection ended."""
    if isinstance(error, HangdogError):
        hint = date_hint(str(error))
        return f"{error}{'; ' * bool(hint)}{hint}"
    if isinstance(error, grpc.aio.AioRpcError):
        hint = date_hint(error.details() or "")
        return f"{error.code().name}: {error.details()}{'; ' * bool(hint)}{hint}"
    return f"{type(error).__name__}: {error}"
