"""Accepts the connections of an HTTP port on the event loop, and hands on those that the port's admission lets through."""

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from hangdog_server.ports.admission import Admission, ConnectionState, Ticket

#: Connections accepted in one turn of the event loop: whatever comes, all else has its turn, too.
AT_ONCE = 32
#: Between two looks at who takes too long, while anybody is not served yet. Seconds.
TICK_S = 0.1
#: Where no file may be opened any more, nothing is accepted for so long. Seconds.
_FULL_S = 0.2

log = logging.getLogger(__name__)
#: Answers one connection until it ends; it is cancelled where the connection has to be given up.
Answer = Callable[[socket.socket, Ticket], Awaitable[None]]


@asynccontextmanager
async def accepting(sockets: list[socket.socket], admission: Admission, answer: Answer) -> AsyncIterator["Acceptor"]:
    """Accepts from these listening sockets while the block lasts, and closes them, and what was accepted, at its end."""
    acceptor = Acceptor(sockets, admission, answer)
    try:
        yield acceptor
    finally:
        await acceptor.close()


class Acceptor:
    """Accepts connections from its beginning on."""

    def __init__(self, sockets: list[socket.socket], admission: Admission, answer: Answer) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._admission = admission
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[_Arrival] = set()
        self._ticking: asyncio.TimerHandle | None = None
        self._resuming: asyncio.TimerHandle | None = None
        self._listen()

    def stop(self) -> None:
        """Accepts no more; who waits is let go, who is answered goes on."""
        for timer in (self._ticking, self._resuming):
            if timer is not None:
                timer.cancel()
        for one in self._sockets:
            if one.fileno() >= 0:
                self._loop.remove_reader(one)
                one.close()
        for arrival in list(self._waiting):
            arrival.drop()

    async def close(self) -> None:
        """Closes all that is open."""
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _listen(self) -> None:
        for one in self._sockets:
            self._loop.add_reader(one, self._accept, one)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                made, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file may be opened: those that are here have to go first
                log.warning("connections have to wait: %s", error.strerror)
                for one in self._sockets:
                    self._loop.remove_reader(one)
                self._resuming = self._loop.call_later(_FULL_S, self._listen)
                return
            made.setblocking(False)
            arrival = _Arrival(self, made)
            ticket = self._admission.enter(address[0], arrival.go, arrival.drop, self._loop.time())
            arrival.ticket = ticket
            self._waiting.add(arrival)
            self._loop.add_reader(made, arrival.speak)
        self._tick_soon()

    def speaks(self, ticket: Ticket) -> None:
        """The peer of a connection said something."""
        self._admission.speak(ticket, self._loop.time())
        self._tick_soon()

    def begin(self, arrival: "_Arrival", ticket: Ticket) -> asyncio.Task[None]:
        """Has a connection answered."""
        self._waiting.discard(arrival)
        task = self._loop.create_task(self._answered(arrival.socket, ticket), name="connection")
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, arrival, ticket))
        return task

    def _ended(self, arrival: "_Arrival", ticket: Ticket, task: asyncio.Task[None]) -> None:
        """Also of a task that was cancelled before it began."""
        self._tasks.discard(task)
        arrival.end()
        self._admission.leave(ticket, self._loop.time())

    def forget(self, arrival: "_Arrival") -> None:
        """A connection ended that nobody answered yet."""
        self._waiting.discard(arrival)

    async def _answered(self, made: socket.socket, ticket: Ticket) -> None:
        try:
            await self._answer(made, ticket)
        except OSError as error:  # of its handshake, or because its peer is gone: its own matter
            log.debug("a connection of %s ended: %s", ticket.address, error)

    def _tick_soon(self) -> None:
        if self._ticking is None and self._admission.count(
            ConnectionState.SILENT, ConnectionState.READY, ConnectionState.OPENING
        ):
            self._ticking = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        self._admission.tick(self._loop.time())
        self._tick_soon()


class _Arrival:
    """A connection from its acceptance until it is answered, and how it is closed."""

    __slots__ = ("_acceptor", "_task", "socket", "ticket")

    def __init__(self, acceptor: Acceptor, made: socket.socket) -> None:
        self._acceptor = acceptor
        self.socket = made
        self.ticket: Ticket | None = None
        self._task: asyncio.Task[None] | None = None

    def speak(self) -> None:
        """There is something to read, or its peer is gone; which of both, whoever reads finds out."""
        asyncio.get_running_loop().remove_reader(self.socket)
        assert self.ticket is not None
        self._acceptor.speaks(self.ticket)

    def go(self) -> None:
        """It has a slot."""
        assert self.ticket is not None
        self._task = self._acceptor.begin(self, self.ticket)

    def end(self) -> None:
        """Lets go of all: what refers to itself in a circle stays in memory until somebody looks for that, with its TLS."""
        self.socket.close()
        self._task = self.ticket = None

    def drop(self) -> None:
        """Closes it."""
        if self._task is not None:
            self._task.cancel()
            return
        self._acceptor.forget(self)
        with contextlib.suppress(OSError, ValueError):
            asyncio.get_running_loop().remove_reader(self.socket)
        self.socket.close()


def affordable(wanted: int) -> int:
    """So many connections that wait, or as many as leave files for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(wanted, soft // 8))
