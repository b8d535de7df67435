"""Stands before gRPC: accepts connections, admits few that prove nothing, and passes bytes on, in a thread of its own.

gRPC itself accepts whatever comes and pays up to 55 KiB for each silent connection, which it never gives back. It listens
on a socket here that has no name anywhere, so that nobody reaches it but by this way.
"""

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from functools import partial

from hangdog_server.ports.admission import ConnectionState
from hangdog_server.ports.relayed_connection import Pair, Way

#: Connections accepted, and bytes passed on, in one turn: whatever comes, all else has its turn, too.
_AT_ONCE, _CHUNK = 64, 256 << 10
#: Between two looks at who takes too long, while anybody does. Seconds.
_TICK_S = 0.1
#: Where no file may be opened any more, nothing is accepted for so long. Seconds.
_FULL_S = 0.2

log = logging.getLogger(__name__)


class Relay:
    """Passes on what comes by its ways, from `start` to `close`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ways: list[Way] = []
        self._handlers: dict[int, Callable[[int], None]] = {self._wake: self._woken}
        self._pairs: set[Pair] = set()
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._buffer = memoryview(bytearray(_CHUNK))
        self._stopping = self._closing = False
        self._thread = threading.Thread(target=self._run, name="connections", daemon=True)
        self._epoll.register(self._wake, select.EPOLLIN)

    def add(self, way: Way) -> None:
        """Adds a way; before `start`."""
        self._ways.append(way)

    def start(self) -> None:
        """Begins to accept."""
        for way in self._ways:
            for one in way.sockets:
                self._handlers[one.fileno()] = partial(self._accept, way, one)
                self._epoll.register(one.fileno(), select.EPOLLIN)
        self._thread.start()

    def stop(self) -> None:
        """Accepts no more; what is there goes on."""
        if self._closing:
            return
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Ends every connection, and the thread; may be called again."""
        if self._closing:
            return
        self._closing = True
        os.eventfd_write(self._wake, 1)
        if self._thread.ident is not None:
            self._thread.join()
        for way in self._ways:
            for one in way.sockets:
                one.close()
        self._epoll.close()
        os.close(self._wake)

    # what follows runs in the thread alone

    def _run(self) -> None:
        while not self._closing:
            busy = any(
                way.admission.count(ConnectionState.SILENT, ConnectionState.READY, ConnectionState.OPENING)
                for way in self._ways
            )
            for fd, events in self._epoll.poll(_TICK_S if busy or self._later else None):
                handler = self._handlers.get(fd)  # of a connection that ended meanwhile there is none
                if handler is None:
                    continue
                try:
                    handler(events)
                except Exception:  # a bug met with one connection must end this one alone
                    log.exception("a connection could not be passed on")
                    if isinstance(pair := getattr(handler, "__self__", None), Pair):
                        pair.close()
            try:
                self._tick(time.monotonic())
            except Exception:  # nor may it end the thread, behind which nobody would be heard any more
                log.exception("cannot manage connections")
        for pair in list(self._pairs):
            pair.close()

    def _tick(self, now: float) -> None:
        due = [act for at, act in self._later if at <= now]
        self._later = [one for one in self._later if one[0] > now]
        for act in due:
            act()
        for way in self._ways:
            way.admission.tick(now)

    def _woken(self, events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        if self._stopping:
            for way in self._ways:
                for one in way.sockets:
                    if one.fileno() >= 0:
                        self.unwatch(one.fileno())
                        one.close()

    def _accept(self, way: Way, listening: socket.socket, events: int) -> None:
        for _ in range(_AT_ONCE):
            try:
                made, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("connections have to wait: %s", error.strerror)
                with contextlib.suppress(OSError):
                    self._epoll.unregister(listening.fileno())
                    self.later(_FULL_S, partial(self._again, listening.fileno()))
                return
            made.setblocking(False)
            whose = address[0] if isinstance(address, tuple) else f"uid {way.origin(made).uid}"
            pair = Pair(self, way, made)
            self._pairs.add(pair)
            pair.ticket = way.admission.enter(whose, pair.go, pair.close, time.monotonic())
            self.watch(made.fileno(), select.EPOLLIN, pair.speak)

    def _again(self, fd: int) -> None:
        if fd in self._handlers:
            self._epoll.register(fd, select.EPOLLIN)

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        """Has a handler called when something happens."""
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Undoes `watch`."""
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def mask(self, fd: int, before: int, after: int, handler: Callable[[int], None]) -> None:
        """Changes what a handler is called for; for nothing at all it is taken out, for hang-ups cannot be masked."""
        if before == after:
            return
        if not after:
            self.unwatch(fd)
        elif not before:
            self.watch(fd, after, handler)
        else:
            self._epoll.modify(fd, after)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Does something later; some tenths of a second more or less."""
        self._later.append((time.monotonic() + seconds, act))

    def forget(self, pair: Pair) -> None:
        """A connection ended."""
        self._pairs.discard(pair)

    @property
    def buffer(self) -> memoryview:
        """Room for what is being passed on; its content lasts for one call."""
        return self._buffer
