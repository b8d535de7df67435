"""The ways to the gRPC server: its TCP addresses and its unix socket, each before a hidden socket that gRPC listens on."""

import ipaddress
import socket
from pathlib import Path

import grpc

from hangdog_server.auth import local_user, relayed_peer
from hangdog_server.auth.local_user import LocalUsers
from hangdog_server.ports import unix_socket
from hangdog_server.ports.acceptor import affordable
from hangdog_server.ports.admission import Admission, AdmissionLimits
from hangdog_server.ports.hidden_socket import Inner
from hangdog_server.ports.relay import Relay
from hangdog_server.ports.relayed_connection import Origin, Way
from hangdog_server.settings import ServerSettings


class Endpoints:
    """All ways to one server. `asks`: whether it matters which user of this machine connects over TCP."""

    def __init__(self, settings: ServerSettings, known: LocalUsers, asks: bool) -> None:
        self._settings = settings
        self._known = known
        self._asks = asks
        self._relay = Relay()
        self._inners: list[Inner] = []
        self._made: dict[Path, tuple[int, int] | None] = {}

    def tcp(
        self, server: grpc.aio.Server, sockets: list[socket.socket], credentials: grpc.ServerCredentials | None, most: int,
        proven: bool,
    ) -> None:  # fmt: skip
        """Has the server hear what comes by these listening sockets, `most` connections at once.

        `proven`: only those with a certificate of the cluster end their handshake.
        """
        settings = self._settings
        each = most if proven else most // 4  # who showed a certificate of the cluster is no stranger
        self._add(server, sockets, credentials, AdmissionLimits(
            most, each, affordable(settings.max_unproven), affordable(settings.max_unproven_each),
            settings.max_handshakes, settings.hello_s,
        ), self._from_tcp)  # fmt: skip

    def unix(self, server: grpc.aio.Server, path: Path, everybody: bool) -> None:
        """Has the server hear users of this machine at that path; raises OSError."""
        settings = self._settings
        made = unix_socket.listening(path, everybody)
        self._made[path] = unix_socket.identity(path)
        most, waiting = settings.max_people, affordable(settings.max_people)
        bounds = AdmissionLimits(most, most // 4, waiting, waiting // 2, settings.max_handshakes // 4, settings.hello_s)
        self._add(server, [made], None, bounds, self._from_unix)

    def start(self) -> None:
        """Begins to accept."""
        self._relay.start()

    def stop(self) -> None:
        """Accepts no more, and takes the unix socket away."""
        self._relay.stop()
        for path, identity in self._made.items():
            if identity is not None and unix_socket.identity(path) == identity:
                path.unlink(missing_ok=True)
        self._made.clear()

    def close(self) -> None:
        """Ends every connection."""
        self.stop()
        self._relay.close()
        for inner in self._inners:
            inner.close()

    def _add(
        self, server: grpc.aio.Server, sockets: list[socket.socket], credentials: grpc.ServerCredentials | None,
        bounds: AdmissionLimits, origin: Origin,
    ) -> None:  # fmt: skip
        inner = Inner()
        self._inners.append(inner)
        if credentials is None:
            server.add_insecure_port(f"unix:{inner.path}")
        else:
            server.add_secure_port(f"unix:{inner.path}", credentials)
        self._relay.add(Way(sockets, Admission(bounds), inner.hide(), credentials is not None, origin))

    def _from_tcp(self, connection: socket.socket) -> relayed_peer.From:
        peer, own = connection.getpeername()[:2], connection.getsockname()[:2]
        caller = local_user.of_loopback(peer, own) if self._asks and _loopback(peer[0]) else None
        return self._peer_of(relayed_peer.word(peer), caller)

    def _from_unix(self, connection: socket.socket) -> relayed_peer.From:
        return self._peer_of("unix:", local_user.of_unix(connection))

    def _peer_of(self, address: str, caller: local_user.Caller | None) -> relayed_peer.From:
        return relayed_peer.From(address, None if caller is None else caller.uid, self._known.role(caller))


def _loopback(host: str) -> bool:
    found = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
