"""One connection that is passed on: the peer's socket, and the one to gRPC."""

import logging
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hangdog_server.auth import relayed_peer
from hangdog_server.ports.admission import Admission, ConnectionState, Ticket

#: Where gRPC's queue is full, the next connection waits for so long. Seconds.
_FULL_S = 0.2
#: The last bytes to a peer whose other end is gone may take so long. Seconds.
_LAST_S = 5.0
#: The answer to the settings of an HTTP/2 client: it said them whole.
_SETTINGS_ACK = b"\0\0\0\x04\x01\0\0\0\0"
#: The first byte of a TLS record that holds data: behind the second words of a client it ends the handshake.
_TLS_DATA = 0x17

log = logging.getLogger(__name__)
#: Where a connection comes from; raises OSError where it is gone.
Origin = Callable[[socket.socket], relayed_peer.From]


@dataclass(slots=True)
class Way:
    """One address: where it listens, who is admitted, where its connections lead, and whether they speak TLS."""

    sockets: list[socket.socket]
    admission: Admission
    inner: str
    tls: bool
    origin: Origin


class SelectorLoop(Protocol):
    """What watches the sockets; all of it is called in its thread."""

    @property
    def buffer(self) -> memoryview:
        """Room for what is being passed on; its content lasts for one call."""

    def unwatch(self, fd: int) -> None:
        """Has nothing called any more for a socket."""

    def mask(self, fd: int, before: int, after: int, handler: Callable[[int], None]) -> None:
        """Changes what a handler is called for."""

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Does something later; some tenths of a second more or less."""

    def forget(self, pair: "Pair") -> None:
        """A connection ended."""


class _End:
    """One of the two sockets of a connection: what has to be sent there yet, and what it is watched for."""

    __slots__ = ("handler", "mask", "socket", "unsent")

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self.unsent: memoryview | None = None
        self.mask = 0
        self.handler: Callable[[int], None] = lambda _: None


class Pair:
    """One connection: the peer's socket, and ours to gRPC once the peer has a slot."""

    __slots__ = ("_ended", "_flights", "_inner", "_outer", "_relay", "_spoke", "_way", "ticket")

    def __init__(self, relay: SelectorLoop, way: Way, made: socket.socket) -> None:
        self._relay = relay
        self._way = way
        self._outer = _End(made)
        self._inner: _End | None = None
        self._ended = False
        self._flights = 0  # how often the peer spoke after it was spoken to
        self._spoke = False
        self.ticket: Ticket | None = None

    def speak(self, events: int) -> None:
        """The peer said something, or is gone."""
        self._relay.unwatch(self._outer.socket.fileno())
        assert self.ticket is not None
        self._way.admission.speak(self.ticket, time.monotonic())

    def go(self) -> None:
        """It has a slot: now it is passed on to gRPC."""
        if self._outer.socket.fileno() < 0:
            return
        made = None
        try:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            made.bind(relayed_peer.written(self._way.origin(self._outer.socket)))
            made.connect(self._way.inner)
        except BlockingIOError:  # more wait for gRPC than its queue holds
            assert made is not None
            made.close()
            self._relay.later(_FULL_S, self.go)
            return
        except (OSError, ValueError) as error:  # its peer is gone, or no file may be opened any more
            if made is not None:
                made.close()
            log.debug("a connection is not passed on: %s", error)
            self._relay.later(0.0, self.close)  # not now: whoever gave the slot counts it yet
            return
        self._inner = _End(made)
        self._outer.handler, self._inner.handler = self._outer_ready, self._inner_ready
        self._watch(self._outer, select.EPOLLIN)
        self._watch(self._inner, select.EPOLLIN)

    def close(self) -> None:
        """Ends it, at once."""
        for end in (self._outer, self._inner):
            if end is not None and end.socket.fileno() >= 0:
                self._relay.unwatch(end.socket.fileno())
                end.socket.close()
        self._relay.forget(self)
        if self.ticket is not None:
            self._way.admission.leave(self.ticket, time.monotonic())

    def _outer_ready(self, events: int) -> None:
        assert self._inner is not None
        self._ready(self._outer, self._inner, events)

    def _inner_ready(self, events: int) -> None:
        assert self._inner is not None
        self._ready(self._inner, self._outer, events)

    def _ready(self, end: _End, other: _End, events: int) -> None:
        try:
            if end.unsent is not None and events & ~select.EPOLLIN:
                self._flush(end, other)
            if other.unsent is None and end.mask & select.EPOLLIN:
                self._pass_on(end, other)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close()

    def _pass_on(self, end: _End, other: _End) -> None:
        size = end.socket.recv_into(self._relay.buffer)
        if not size:
            self._end(end, other)
            return
        stated = self._relay.buffer[:size]
        if end is self._outer:
            if not self._spoke:
                self._flights, self._spoke = self._flights + 1, True
        else:
            self._spoke = False
            ticket = self.ticket
            assert ticket is not None
            new = ticket.state is ConnectionState.OPENING and self._proven(stated)
            if new and not self._way.admission.serve(ticket, time.monotonic()):
                return
        try:
            sent = other.socket.send(stated)
        except BlockingIOError:
            sent = 0
        if sent < size:
            other.unsent = memoryview(bytes(stated[sent:]))
            self._watch(end, end.mask & ~select.EPOLLIN)
            self._watch(other, other.mask | select.EPOLLOUT)

    def _proven(self, stated: memoryview) -> bool:
        """Whether gRPC's answer shows that the peer ended its handshake, or said its settings."""
        if self._way.tls:
            return self._flights > 1 and stated[0] == _TLS_DATA
        return _SETTINGS_ACK in bytes(stated[:1024])

    def _flush(self, end: _End, other: _End) -> None:
        assert end.unsent is not None
        sent = end.socket.send(end.unsent)
        if sent < len(end.unsent):
            end.unsent = end.unsent[sent:]
            return
        end.unsent = None
        if self._ended:
            self.close()
            return
        self._watch(end, end.mask & ~select.EPOLLOUT)
        self._watch(other, other.mask | select.EPOLLIN)

    def _end(self, end: _End, other: _End) -> None:
        """One end is closed: what it said last goes out, then the other one is closed, too."""
        if other.unsent is None:
            self.close()
            return
        self._ended = True
        self._watch(end, 0)
        self._relay.later(_LAST_S, self.close)

    def _watch(self, end: _End, mask: int) -> None:
        self._relay.mask(end.socket.fileno(), end.mask, mask, end.handler)
        end.mask = mask
