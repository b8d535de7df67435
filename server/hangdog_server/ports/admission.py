"""Decides which connections of a port are kept: pure bookkeeping, so that a flood costs next to nothing and keeps nobody out.

A connection first waits until its peer says something; that costs a file descriptor and a small object. Then it takes one
of a few slots for as long as its TLS handshake and the head of its first request last. Only then it is served. Where room
is short, the address that holds most gives way first, and of that one the connections that never said anything.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

#: A connection in a slot may be dropped for one that waits after so long: a handshake over any network is through by then
#: unless its peer or this server is very slow. Seconds.
SLOW_S = 0.25
#: Whoever has one IPv6 address has all of its /64.
_PREFIX = 64


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How many connections a port keeps: served ones, in total and for one address; others likewise; those with a slot.

    A connection that is not served after `patience_s` seconds is dropped.
    """

    served: int
    served_each: int
    unserved: int
    unserved_each: int
    slots: int
    patience_s: float


class ConnectionState(IntEnum):
    """How far a connection has come."""

    SILENT = 0  # nothing was heard of it
    READY = 1  # it said something, and waits for a slot
    OPENING = 2  # it has a slot: its handshake or the head of its request is read
    SERVED = 3
    IDLE = 4  # it was served, and asks nothing now
    GONE = 5


@dataclass(slots=True, eq=False)
class Ticket:
    """One connection. `go` is called once it may be read from; `drop` when it has to be closed, and not after `leave`."""

    address: str
    since: float
    go: Callable[[], None]
    drop: Callable[[], None]
    state: ConnectionState = ConnectionState.SILENT


class _Crowd:
    """The connections of one address, by their state, oldest first."""

    __slots__ = ("of",)

    def __init__(self) -> None:
        self.of: tuple[dict[Ticket, float], ...] = ({}, {}, {}, {}, {})

    def unserved(self) -> int:
        return (
            len(self.of[ConnectionState.SILENT])
            + len(self.of[ConnectionState.READY])
            + len(self.of[ConnectionState.OPENING])
        )

    def served(self) -> int:
        return len(self.of[ConnectionState.SERVED]) + len(self.of[ConnectionState.IDLE])

    def first(self, *states: ConnectionState) -> Ticket | None:
        return next((ticket for state in states for ticket in self.of[state]), None)


class Admission:
    """The connections of one port. Not for several threads at once. `now` is of one steady clock, in seconds."""

    def __init__(self, bounds: AdmissionLimits) -> None:
        self.bounds = bounds
        self._crowds: dict[str, _Crowd] = {}
        #: The same without those that have served connections only: in a large cluster nearly all.
        self._pressing: dict[str, _Crowd] = {}
        self._counts = [0] * len(ConnectionState)
        self._fresh: dict[Ticket, None] = {}
        self._opening: dict[Ticket, float] = {}
        self._spoke: dict[Ticket, None] = {}  # those that wait for a slot, as they spoke
        self._queue: dict[str, None] = {}  # their addresses, in turn
        self._newest = True

    def count(self, *states: ConnectionState) -> int:
        """How many connections are in these states."""
        return sum(self._counts[state] for state in states)

    def enter(self, address: str, go: Callable[[], None], drop: Callable[[], None], now: float) -> Ticket:
        """A connection was accepted; where too many are here, another one is dropped for it."""
        whose = key(address)
        crowd = self._crowds.get(whose)
        if crowd is not None and crowd.unserved() >= self.bounds.unserved_each:
            self._evict(crowd)
        elif len(self._fresh) >= self.bounds.unserved:
            self._evict(max(self._pressing.values(), key=_Crowd.unserved))
        ticket = Ticket(whose, now, go, drop)
        self._fresh[ticket] = None
        self._put(ticket, ConnectionState.SILENT, now)
        return ticket

    def speak(self, ticket: Ticket, now: float) -> None:
        """Its peer said something: it is given a slot, now or once there is one."""
        if ticket.state is not ConnectionState.SILENT:
            return
        self._move(ticket, ConnectionState.READY, now)
        self._queue.setdefault(ticket.address)
        self.tick(now)

    def serve(self, ticket: Ticket, now: float) -> bool:
        """It asked something whole; False where no more can be served, and it was dropped."""
        if ticket.state in (ConnectionState.SERVED, ConnectionState.GONE):
            return ticket.state is ConnectionState.SERVED
        crowd, bounds = self._crowds[ticket.address], self.bounds
        if ticket.state is not ConnectionState.IDLE:
            if crowd.served() >= bounds.served_each and not self._make_room(crowd):
                self._drop(ticket, now)
                return False
            if self.count(ConnectionState.SERVED, ConnectionState.IDLE) >= bounds.served:
                most = max(
                    (one for one in self._crowds.values() if one.of[ConnectionState.IDLE]),
                    key=_Crowd.served,
                    default=None,
                )
                if most is None or not self._make_room(most):
                    self._drop(ticket, now)
                    return False
        self._move(ticket, ConnectionState.SERVED, now)
        self._fresh.pop(ticket, None)
        self.tick(now)
        return True

    def rest(self, ticket: Ticket, now: float) -> None:
        """It has its answer, and asks nothing now."""
        if ticket.state is ConnectionState.SERVED:
            self._move(ticket, ConnectionState.IDLE, now)

    def leave(self, ticket: Ticket, now: float) -> None:
        """It was closed; may be told several times."""
        if ticket.state is not ConnectionState.GONE:
            self._take(ticket)
            self.tick(now)

    def tick(self, now: float) -> None:
        """Drops who took too long, and gives free slots to those who wait, the addresses in turn."""
        while (oldest := next(iter(self._fresh), None)) and now - oldest.since >= self.bounds.patience_s:
            self._drop(oldest, now, again=False)
        while self._spoke:
            ticket = self._next()
            if len(self._opening) >= self.bounds.slots and not self._free(ticket.address, now):
                return
            self._newest = not self._newest
            self._queue.pop(ticket.address, None)
            if len(self._crowds[ticket.address].of[ConnectionState.READY]) > 1:
                self._queue[ticket.address] = None
            self._move(ticket, ConnectionState.OPENING, now)
            ticket.go()

    def _next(self) -> Ticket:
        """Whose turn it is: by turns the connection that spoke last, and one of the address that has waited longest.

        Behind the first there is likeliest somebody who came after a flood; the other is not forgotten while a flood lasts.
        """
        newest = next(reversed(self._spoke))
        while not self._newest:
            whose = next(iter(self._queue), None)
            if whose is None:
                break
            if whose in self._crowds and (waiting := self._crowds[whose].of[ConnectionState.READY]):
                return next(reversed(waiting))
            del self._queue[whose]
        return newest

    def _free(self, whose: str, now: float) -> bool:
        """Frees a slot for an address that has fewer than another, or because the oldest has been slow."""
        oldest = next(iter(self._opening))
        if now - self._opening[oldest] >= SLOW_S:
            self._drop(oldest, now, again=False)
            return True
        most = max(self._pressing.values(), key=lambda crowd: len(crowd.of[ConnectionState.OPENING]))
        if len(most.of[ConnectionState.OPENING]) > len(self._crowds[whose].of[ConnectionState.OPENING]) + 1:
            victim = most.first(ConnectionState.OPENING)
            assert victim is not None
            self._drop(victim, now, again=False)
            return True
        return False

    def _evict(self, crowd: _Crowd) -> None:
        victim = crowd.first(ConnectionState.SILENT, ConnectionState.READY, ConnectionState.OPENING)
        assert victim is not None
        self._drop(victim, 0.0, again=False)

    def _make_room(self, crowd: _Crowd) -> bool:
        victim = crowd.first(ConnectionState.IDLE)
        if victim is not None:
            self._drop(victim, 0.0, again=False)
        return victim is not None

    def _drop(self, ticket: Ticket, now: float, again: bool = True) -> None:
        self._take(ticket)
        ticket.drop()
        if again:
            self.tick(now)

    def _move(self, ticket: Ticket, state: ConnectionState, now: float) -> None:
        self._take(ticket, ends=False)
        self._put(ticket, state, now)

    def _put(self, ticket: Ticket, state: ConnectionState, now: float) -> None:
        crowd = self._crowds.setdefault(ticket.address, _Crowd())
        crowd.of[state][ticket] = now
        ticket.state = state
        self._counts[state] += 1
        if state is ConnectionState.OPENING:
            self._opening[ticket] = now
        if state is ConnectionState.READY:
            self._spoke[ticket] = None
        if state < ConnectionState.SERVED:
            self._pressing[ticket.address] = crowd

    def _take(self, ticket: Ticket, ends: bool = True) -> None:
        crowd = self._crowds[ticket.address]
        del crowd.of[ticket.state][ticket]
        self._counts[ticket.state] -= 1
        self._opening.pop(ticket, None)
        self._spoke.pop(ticket, None)
        if not crowd.unserved():
            self._pressing.pop(ticket.address, None)
            if not crowd.served():
                self._crowds.pop(ticket.address, None)
        if ends:
            self._fresh.pop(ticket, None)
            ticket.state = ConnectionState.GONE


def key(address: str) -> str:
    """Whose connections are counted together: an IPv4 address, the /64 of an IPv6 address, or the word itself."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _PREFIX), strict=False))
