"""Answers GET /metrics and GET /healthz over HTTP on a port of its own, and nothing else to anybody.

It runs on the server's own event loop: what it reads stands still meanwhile, and it is silent when the loop is.
prometheus_client's own server answers from threads: it would answer for a loop that hangs, and bounds no connections.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from hangdog_models.errors import WrongUse
from hangdog_server.ports.acceptor import accepting
from hangdog_server.ports.admission import Admission, AdmissionLimits, Ticket
from hangdog_server.ports.listeners import listeners

#: Bytes of a request, headers included: Prometheus sends some 300, a browser 2,000.
_REQUEST = 16 << 10
#: A request is here and its answer gone within so long, or its connection is closed. Seconds.
_PATIENCE_S = 5.0
#: Requests that are read or answered at once: two Prometheus servers, a health probe and somebody's curl are four. Others
#: wait for their turn.
_SLOTS = 16
#: Connections that wait, in total and of one address.
_WAITING, _EACH = 256, 128

Text = Callable[[], bytes]


@asynccontextmanager
async def scraped(listen: str, metrics: Text, patience_s: float = _PATIENCE_S) -> AsyncIterator[str]:
    """Serves at `listen` (`HOST:PORT`, port 0: any free one) while the block lasts; gives the address it really has.

    A bare port is one of 127.0.0.1. Raises WrongUse when it cannot listen there.
    """
    host, port = _address(listen)
    door = _Door(metrics, patience_s)
    try:
        sockets = listeners(host.strip("[]"), port)
    except (OSError, OverflowError) as error:
        raise WrongUse(
            f"cannot serve metrics on {listen}", "is the port taken? choose another --metrics", code="cannot-listen"
        ) from error
    address = f"{host}:{sockets[0].getsockname()[1]}"
    async with accepting(sockets, door.admission, door.answer):
        yield address


def _address(listen: str) -> tuple[str, int]:
    """The host and the port; loopback unless a host is given. Raises WrongUse."""
    host, colon, port = listen.rpartition(":")
    if not port.isdecimal() or not port.isascii() or (colon and not host.strip("[]")):
        raise WrongUse(
            f"{listen!r} is no address for metrics",
            "write PORT or HOST:PORT, as in 127.0.0.1:7412; 0.0.0.0:PORT listens on every address of this machine",
            code="wrong-address",
        )
    return host or "127.0.0.1", int(port)


class _Door:
    def __init__(self, metrics: Text, patience_s: float) -> None:
        self._patience_s = patience_s
        self.admission = Admission(AdmissionLimits(_SLOTS, _SLOTS, _WAITING, _EACH, _SLOTS, patience_s))
        self._pages: dict[bytes, tuple[str, Text]] = {
            b"/metrics": ("text/plain; version=0.0.4; charset=utf-8", metrics),
            b"/healthz": ("text/plain; charset=utf-8", lambda: b"ok\n"),
        }

    async def answer(self, made: socket.socket, ticket: Ticket) -> None:
        """One connection: one request, one answer. It keeps its slot until it is closed."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._patience_s):  # TimeoutError is an OSError
            head = b""
            while b"\r\n\r\n" not in head:
                part = await loop.sock_recv(made, 4096)
                if not part or len(head) + len(part) > _REQUEST:
                    return
                head += part
            await loop.sock_sendall(made, self._page(head.partition(b"\r\n")[0]))
            made.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(made, 4096):  # closed with something unread, our answer could be lost with it
                pass

    def _page(self, line: bytes) -> bytes:
        """The answer to the first line of a request."""
        method, _, rest = line.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path not in self._pages:
            return _response("404 Not Found", "text/plain; charset=utf-8", b"here are /metrics and /healthz\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "text/plain; charset=utf-8", b"GET is all there is\n")
        kind, body = self._pages[path]
        return _response("200 OK", kind, body(), head=method == b"HEAD")


def _response(status: str, kind: str, body: bytes, head: bool = False) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close", "", "")
    return "\r\n".join(lines).encode() + (b"" if head else body)
