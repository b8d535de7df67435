"""Speaks HTTP on one admitted connection: uvicorn's protocol, within the time that a handshake and a request may take."""

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hangdog_server.ports.admission import Admission, Ticket


class Speaking:
    """Answers connections, one after another or many at once; `head_s` is what a handshake or the head of a request may take."""

    def __init__(self, config: uvicorn.Config, server: uvicorn.Server, admission: Admission, head_s: float) -> None:
        self._config = config
        self._server = server
        self._admission = admission
        self._head_s = head_s

    async def answer(self, made: socket.socket, ticket: Ticket) -> None:
        """Returns when the connection has ended; cancelled, it ends the connection at once."""
        loop = asyncio.get_running_loop()

        def protocol() -> "_Connection":
            return _Connection(
                self._config, self._server.server_state, self._server.lifespan.state, self._admission, ticket,
                self._head_s,
            )  # fmt: skip

        context = self._config.ssl
        patience_s = self._head_s if context is not None else None
        transport, connection = await loop.connect_accepted_socket(
            protocol, made, ssl=context, ssl_handshake_timeout=patience_s
        )
        try:
            await connection.ended.wait()
        finally:
            transport.abort()


class _Connection(H11Protocol):
    """uvicorn's connection, which tells the port's admission what it does."""

    def __init__(
        self, config: uvicorn.Config, state: Any, app_state: dict[str, Any], admission: Admission, ticket: Ticket,
        head_s: float,
    ) -> None:  # fmt: skip
        super().__init__(config, state, app_state)
        self.ended = asyncio.Event()
        self._admission = admission
        self._ticket = ticket
        self._head_s = head_s
        self._late: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Whatever comes; a request that is not whole in time ends the connection."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._asked()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(self._head_s, self.transport.abort)

    def on_response_complete(self) -> None:
        """One request has its answer; the next one may be here already."""
        self._admission.rest(self._ticket, self.loop.time())
        super().on_response_complete()
        if not self.cycle.response_complete:
            self._asked()

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended, whoever ended it."""
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)
        self.ended.set()

    def _asked(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._admission.serve(self._ticket, self.loop.time())
