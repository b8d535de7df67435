"""Answers GET /metrics and GET /healthz over HTTP on a port of its own, and nothing else to anybody.

It runs on the server's own event loop: what it reads stands still meanwhile, and it is silent when the loop is.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from hangdog_models.errors import WrongUse

#: Bytes of a request, headers included: Prometheus sends some 300, a browser 2,000.
_REQUEST = 16 << 10
#: A request is here and its answer gone within so long, or its connection is closed. Seconds.
_PATIENCE_S = 5.0
#: Connections at once: two Prometheus servers, a health probe and somebody's curl are four.
_CONNECTIONS = 16

Text = Callable[[], bytes]


@asynccontextmanager
async def scraped(listen: str, metrics: Text, patience_s: float = _PATIENCE_S) -> AsyncIterator[str]:
    """Serves at `listen` (`HOST:PORT`, port 0: any free one) while the block lasts; gives the address it really has.

    Raises WrongUse when it cannot listen there.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise WrongUse(f"{listen!r} is no address for metrics", "write HOST:PORT, as in 127.0.0.1:7412")
    door = _Door(metrics, patience_s)
    try:
        server = await asyncio.start_server(door.answer, host.strip("[]"), int(port), limit=_REQUEST)
    except (OSError, OverflowError) as error:
        raise WrongUse(f"cannot serve metrics on {listen}", "is the port taken? choose another --metrics") from error
    try:
        yield f"{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await door.close()
        await server.wait_closed()


class _Door:
    def __init__(self, metrics: Text, patience_s: float) -> None:
        self._patience_s = patience_s
        self._pages: dict[bytes, tuple[str, Text]] = {
            b"/metrics": ("text/plain; version=0.0.4; charset=utf-8", metrics),
            b"/healthz": ("text/plain; charset=utf-8", lambda: b"ok\n"),
        }
        self._open: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one request, one answer."""
        task = asyncio.current_task()
        assert task is not None  # asyncio runs this in a task for each connection
        try:
            if len(self._open) >= _CONNECTIONS:
                return
            self._open.add(task)
            with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
                async with asyncio.timeout(self._patience_s):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._page(head.partition(b"\r\n")[0]))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            self._open.discard(task)
            writer.transport.abort()

    async def close(self) -> None:
        """Ends every connection."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _page(self, line: bytes) -> bytes:
        """The answer to the first line of a request."""
        method, _, rest = line.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path not in self._pages:
            return _said("404 Not Found", "text/plain; charset=utf-8", b"here are /metrics and /healthz\n")
        if method not in (b"GET", b"HEAD"):
            return _said("405 Method Not Allowed", "text/plain; charset=utf-8", b"GET is all there is\n")
        kind, body = self._pages[path]
        return _said("200 OK", kind, body(), head=method == b"HEAD")


def _said(status: str, kind: str, body: bytes, head: bool = False) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close", "", "")
    return "\r\n".join(lines).encode() + (b"" if head else body)
