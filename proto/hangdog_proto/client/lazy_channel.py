"""The way of a command to its server: a channel that is opened when it is needed, and failures as our errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import grpc

from hangdog_models.errors import ServerUnreachable
from hangdog_proto.client import errors
from hangdog_proto.client.channel_options import CHANNEL_OPTIONS, open_channel
from hangdog_proto.client.server_address import DEFAULT_ADDRESS, ServerAddress, require_privacy

#: How soon a connection that was lost is made anew, in milliseconds: gRPC's own pauses grow to two minutes.
RECONNECT_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 500), ("grpc.max_reconnect_backoff_ms", 5_000))


class LazyChannel:
    """A channel to a server, and no requests yet. Making it raises WrongUse where the way would not be safe."""

    def __init__(self, reach: ServerAddress | str = DEFAULT_ADDRESS) -> None:
        self._reach = ServerAddress(reach) if isinstance(reach, str) else reach
        self._opened_channel: grpc.Channel | None = None
        require_privacy(self._reach)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def _channel(self) -> grpc.Channel:
        """The way to the server: opened for the first request, and anew after one that nobody answered.

        A server that was started again may have another certificate, which is to be checked as the first one was.
        """
        if self._opened_channel is None:
            self._opened_channel = open_channel(self._reach, (*CHANNEL_OPTIONS, *RECONNECT_OPTIONS))
        return self._opened_channel

    def _close(self) -> None:
        if self._opened_channel is not None:
            self._opened_channel.close()
        self._opened_channel = None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            known = errors.from_grpc(error, self._reach.address, tls=self._reach.tls is not None)
            if isinstance(known, ServerUnreachable) and self._reach.tls is not None:
                self._close()
            raise known from error
