"""A faulty network between agents and their server: TCP proxies that delay, thin, hold, swallow or cut what goes through them."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum

#: Taken at once from a socket: small, so that a thin line is thin all the time.
_PIECE = 512
#: Pieces under way in one direction; beyond, TCP pushes back on who sends.
_UNDER_WAY = 256


class Line(Enum):
    """What a line does with what is sent over it."""

    OPEN = "passes it on"
    HELD = "keeps it until it is open again, as TCP does over a network that is parted for a while"
    SWALLOWED = "loses it, and tells nobody: a firewall that forgot the connection, a machine without power"
    REFUSED = "takes no connection"


@dataclass(eq=False)
class Proxy:
    """One machine's line to the server at `port`, heard at `address`. Change what it is at any moment."""

    port: int
    state: Line = Line.OPEN
    delay_s: float = 0.0
    bytes_per_s: float = float("inf")
    address: str = ""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _pairs: set["_Pair"] = field(default_factory=set)

    def turn(self, state: Line) -> None:
        """From now on the line is so. What was swallowed is never made good: such a connection breaks when it is used."""
        if state is Line.SWALLOWED:
            for pair in self._pairs:
                pair.spoilt = True
        self.state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def cut(self) -> None:
        """Breaks every connection, with a reset to both ends."""
        for pair in tuple(self._pairs):
            pair.abort()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection from the agent's side."""
        if self.state is Line.REFUSED:
            _reset(writer)
            return
        pair = _Pair([writer], spoilt=self.state is Line.SWALLOWED)
        self._pairs.add(pair)
        try:
            there, onward = await asyncio.open_connection("127.0.0.1", self.port, limit=_PIECE)
            pair.writers.append(onward)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._direction(reader, onward, pair))
                both.create_task(self._direction(there, writer, pair))
        except* (OSError, EOFError):
            pass
        finally:
            self._pairs.discard(pair)
            pair.abort()

    async def _direction(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: "_Pair") -> None:
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_UNDER_WAY)

        async def deliver() -> None:
            while True:
                due, piece = await under_way.get()
                await asyncio.sleep(due - loop.time())
                await self._thin(len(piece))
                while self.state is Line.HELD:
                    await self._changed.wait()
                if self.state is Line.SWALLOWED:
                    continue
                if pair.spoilt:
                    raise ConnectionResetError
                writer.write(piece)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        try:
            while (piece := await reader.read(_PIECE)) and not delivering.done():
                await under_way.put((loop.time() + self.delay_s, piece))
            while self.state in (Line.HELD, Line.SWALLOWED):  # that one end has closed, the other does not hear
                await self._changed.wait()
            raise EOFError
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)

    async def _thin(self, size: int) -> None:
        """Takes as long as so many bytes take, at whatever rate the line has meanwhile."""
        left = float(size)
        while left > 0 and self.bytes_per_s != float("inf"):
            rate = self.bytes_per_s
            pause = min(left / rate, 0.05)
            await asyncio.sleep(pause)
            left -= rate * pause


@dataclass(eq=False)
class _Pair:
    """The two sides of one connection."""

    writers: list[asyncio.StreamWriter]
    spoilt: bool = False

    def abort(self) -> None:
        for writer in self.writers:
            _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def line(to: str) -> AsyncIterator[Proxy]:
    """A line to the server at `to`, while the block lasts."""
    proxy = Proxy(int(to.rpartition(":")[2]))
    taken: set[asyncio.Task[None]] = set()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.take(reader, writer))
        taken.add(task)
        task.add_done_callback(taken.discard)

    server = await asyncio.start_server(take, "127.0.0.1", 0, limit=_PIECE)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in tuple(taken):
            task.cancel()
        await asyncio.gather(*taken, return_exceptions=True)
        await server.wait_closed()
