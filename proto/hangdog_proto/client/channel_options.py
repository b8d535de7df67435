"""Opens channels to a server: their options, the certificates on the way to it, and the token that says who asks."""

from typing import Any, NamedTuple

import grpc

from hangdog_proto.client import certificate_folder, server_auth
from hangdog_proto.client.server_address import Metadata, ServerAddress, require_privacy
from hangdog_proto.client.server_auth import Verified

Options = tuple[tuple[str, int], ...]

#: Largest message taken: the verdict of a job of 100,000 ranks is some MiB of JSON.
MAX_MESSAGE = 64 << 20
#: How every channel of ours is opened, the agent's too.
CHANNEL_OPTIONS: Options = (
    ("grpc.enable_http_proxy", 0),  # the server is inside the cluster; http_proxy points outside
    ("grpc.keepalive_time_ms", 10_000),  # a peer that lost its power says nothing: ask
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # of the library's own pings, behind which no other is sent: else a minute
    ("grpc.http2.max_pings_without_data", 0),  # also while nothing else is said
    ("grpc.min_reconnect_backoff_ms", 5_000),  # also the patience of one attempt to connect; gRPC's is 20 s
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
)


def verified(reach: ServerAddress) -> Verified | None:
    """Checks the server's certificate; None where there is no TLS. Raises ServerUnreachable, NotAllowed, WrongUse.

    It waits for the network, some seconds at most: on an event loop, call it in a thread.
    """
    require_privacy(reach)
    return None if reach.tls is None else server_auth.verified(reach.address, reach.tls, reach.own)


def open_channel(reach: ServerAddress, options: Options) -> grpc.Channel:
    """A channel for a program without an event loop, on which every request carries the token.

    The server's certificate is checked first, and the channel speaks to whoever has that one alone. Raises WrongUse,
    ServerUnreachable, NotAllowed.
    """
    server = verified(reach)
    if reach.tls is None or server is None:
        channel = grpc.insecure_channel(reach.address, options=options)
    else:
        channel = grpc.secure_channel(
            reach.address, certificate_folder.channel_credentials(reach.tls, server.pem, reach.own), options=options
        )
    return grpc.intercept_channel(channel, _WithMetadata(reach.metadata())) if reach.token else channel


def open_aio_channel(reach: ServerAddress, options: Options, server: Verified | None = None) -> grpc.aio.Channel:
    """A channel on the running event loop; raises WrongUse. `server`: what `verified` gave, and nobody else is believed."""
    require_privacy(reach)
    if reach.tls is None:
        return grpc.aio.insecure_channel(reach.address, options=options)
    credentials = certificate_folder.channel_credentials(
        reach.tls, server.pem if server is not None else b"", reach.own
    )
    return grpc.aio.secure_channel(reach.address, credentials, options=options)


class _Details(NamedTuple):
    """What an interceptor hands on of a request: gRPC has no such type that one could make."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: Any
    compression: Any


class _WithMetadata(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    """Adds the same metadata to every request: no method of a client can forget it. (Generic in the stubs alone.)"""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def _extended(self, details: Any) -> Any:
        return _Details(
            details.method,
            details.timeout,
            (*(details.metadata or ()), *self._metadata),
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._extended(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._extended(client_call_details), request)
