"""How the server is reached: its addresses, with TLS or without, and who is believed to be whom."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from hangdog_models.errors import WrongUse
from hangdog_proto.client.server_address import is_loopback
from hangdog_proto.deny_list import DenyList
from hangdog_proto.x509 import ends_soon
from hangdog_server.auth.authorizer import Authorizer
from hangdog_server.auth.issuer import LIFE_DAYS, Issuer
from hangdog_server.auth.local_user import LocalUsers
from hangdog_server.auth.tls import Certificate, day
from hangdog_server.auth.tokens import Tokens
from hangdog_server.ports.endpoints import Endpoints
from hangdog_server.ports.listeners import listeners
from hangdog_server.settings import ServerSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """What an operator says of how the server is reached.

    `tls` is the folder with its certificate; `people` a second address, for people without certificates of their own;
    `insecure` lets everybody in, in plain text, on any address. `tokens` and `audit` are files, `proxies` as in Gate.
    `advertised` is how agents know it, where there are several servers. `web` is where pages are served; empty: nowhere.
    `denied` is the file with the deny list; `trust_dns_names` lets certificates without a hangdog URI speak for the
    machines that their DNS names say. `issuer` is the folder of the authority that signs certificates of machines for
    agents that have one, for `life_days` each.
    `socket` is the unix socket for people of this machine, None for none; one that is `wanted` must be had. `groups` says
    what the members of a group may there, a role's word by the group's number.
    """

    tls: Path | None = None
    people: str = ""
    insecure: bool = False
    tokens: Path | None = None
    proxies: tuple[str, ...] = ()
    audit: Path | None = None
    advertised: str = ""
    web: str = ""
    denied: Path | None = None
    trust_dns_names: bool = False
    issuer: Path | None = None
    life_days: float = LIFE_DAYS
    socket: Path | None = None
    wanted: bool = False
    groups: Mapping[int, str] = field(default_factory=dict)


#: Whoever reaches this machine's own loopback may do everything.
LOCAL = ListenerConfig()


class OpenListeners:
    """A door that may be opened; raises WrongUse, saying what to type, where it would let strangers in."""

    def __init__(self, listen: str, door: ListenerConfig, settings: ServerSettings, clock: Callable[[], float]) -> None:
        for given in filter(None, (listen, door.people, door.web)):
            host, colon, port = given.rpartition(":")
            if not colon or not host or not port.isdecimal():
                raise WrongUse(
                    f"{given!r} is no address to listen on",
                    "write HOST:PORT, as in 127.0.0.1:7411",
                    code="wrong-address",
                )
        self._clock = clock
        loopback = is_loopback(listen)
        if door.tls is None and not door.insecure and not loopback:
            raise WrongUse(
                f"without TLS, anyone who reaches {listen} could read verdicts, take captures and pose as any machine",
                "run hangdog certs init (docs/security.md), then give the server --tls hangdog-ca/server; or --listen "
                "127.0.0.1:7411 for this machine only; or --insecure if the network itself keeps strangers out",
                code="unencrypted-connection",
            )
        if door.people and door.tls is None:
            raise WrongUse("--people needs --tls", "hangdog certs init makes the certificate", code="missing-option")
        if door.web and door.tls is None and not door.insecure and not is_loopback(door.web):
            raise WrongUse(
                f"without TLS, tokens and stacks would cross the network to {door.web} in plain text",
                "give --tls (docs/security.md); or --web 127.0.0.1:7413 behind a proxy that speaks TLS; or --insecure",
                code="unencrypted-connection",
            )
        self._listen = listen
        self.door = door
        self._settings = settings
        if door.issuer is not None and door.tls is None:
            raise WrongUse(
                "--issuer needs --tls: it signs only for agents that show a certificate",
                "give --tls",
                code="missing-option",
            )
        self.issuer = Issuer(door.issuer, clock, door.life_days) if door.issuer else None
        believed = self.issuer.certificate if self.issuer else b""
        self._certificate = Certificate(door.tls, clock, believed) if door.tls else None
        tokens = Tokens(door.tokens, clock)
        open_ = door.insecure or (loopback and not door.people)
        denied = DenyList(door.denied)
        denied.require_readable()
        self._tokens = tokens
        self._known = LocalUsers(door.groups)
        self._ways = Endpoints(settings, self._known, asks=not door.insecure)
        self.gate = Authorizer(
            open_, door.tls is not None, tokens, door.proxies, settings.hello_s, denied, door.trust_dns_names,
            believing=door.insecure, users=self._known,
        )  # fmt: skip
        if door.trust_dns_names:
            log.warning(
                "--trust-dns-names: any certificate of the authority for client authentication, if it has no hangdog "
                "URI, is accepted for the machines in its DNS names"
            )
        if door.tls is None and not loopback:
            log.warning("--insecure: anyone who reaches %s can take captures and pose as any machine", listen)
        if not open_ and not tokens.look():
            log.warning("nobody can use this server yet: there is no token; hangdog token new makes one")
        if self._certificate is not None:
            soon = ends_soon(self._certificate.begins, self._certificate.ends, clock())
            log.log(
                logging.WARNING if soon else logging.INFO, "own certificate ends on %s", day(self._certificate.ends)
            )

    def lasts(self) -> dict[str, tuple[float, float]]:
        """When the server's own certificates begin and end (Unix seconds), by what they are."""
        own, issuer = self._certificate, self.issuer
        found = {"server's certificate": (own.begins, own.ends)} if own is not None else {}
        return found | ({"issuer's certificate": (issuer.begins, issuer.ends)} if issuer is not None else {})

    def certificate_left_s(self) -> float | None:
        """Seconds until the server's certificate ends; None without one."""
        return self._certificate.ends - self._clock() if self._certificate is not None else None

    def close(self) -> None:
        """Shuts the door to whoever is not known, for a server that acts; raises WrongUse where nobody would be known then."""
        if self.door.insecure:
            raise WrongUse(
                "with --insecure anyone who reaches the server could isolate machines in modes approve and auto",
                'give --tls (hangdog certs init; docs/security.md); or set mode = "dry-run" in the --acting file',
                code="acting-open-to-anyone",
            )
        if self._certificate is None and not self._tokens.look():
            raise WrongUse(
                f"any user of this machine can reach {self._listen} and isolate machines in modes approve and auto",
                "give --tls (hangdog certs init), or make a token for the person who approves: hangdog token new "
                '--name NAME --role act; or set mode = "dry-run" in the --acting file',
                code="acting-open-to-anyone",
            )
        self.gate.close()

    def bind(self, server: grpc.aio.Server) -> str:
        """Binds the server to its addresses; gives the first, with the port it really has. Raises WrongUse."""
        settings = self._settings
        try:
            address = self._bound(server, self._listen, "--listen", True, settings.max_machines + settings.max_people)
            if self.door.people:
                received = self._bound(server, self.door.people, "--people", False, settings.max_people)
                log.info("listening for people at %s", received)
            self._bind_socket(server)
        except BaseException:
            self._ways.close()
            raise
        return address

    def start(self) -> None:
        """Begins to accept connections, once the server was started."""
        self._ways.start()

    def stop(self) -> None:
        """Accepts no more; those that are there go on."""
        self._ways.stop()

    def end(self) -> None:
        """Ends every connection, once the server has ended."""
        self._ways.close()

    def options(self) -> list[tuple[str, int]]:
        """How gRPC is to treat those who connect."""
        settings, tls = self._settings, self._certificate is not None
        return [
            ("grpc.max_concurrent_streams", settings.max_streams if tls else settings.max_machines),
            ("grpc.server_handshake_timeout_ms", int(settings.hello_s * 1000)),  # gRPC's own patience is two minutes
            ("grpc.max_connection_idle_ms", int(settings.idle_s * 1000)),
            ("grpc.max_metadata_size", settings.max_metadata_bytes),
            ("grpc.absolute_max_metadata_size", settings.max_metadata_bytes),
        ]

    def _bound(self, server: grpc.aio.Server, listen: str, option: str, mutual: bool, most: int) -> str:
        host, _, port = listen.rpartition(":")
        try:
            sockets = listeners(host.strip("[]"), int(port))
        except (OSError, OverflowError) as error:  # the address is taken, or none of this machine's
            raise WrongUse(
                f"cannot listen on {listen}",
                f"is another server running there? choose another {option}",
                code="cannot-listen",
            ) from error
        bound = sockets[0].getsockname()[1]
        credentials = self._certificate.credentials(mutual) if self._certificate is not None else None
        self._ways.tcp(server, sockets, credentials, most, proven=mutual and credentials is not None)
        return f"{host}:{bound}"

    def _bind_socket(self, server: grpc.aio.Server) -> None:
        path = self.door.socket
        if path is None:
            return
        try:
            self._ways.unix(server, path, everybody=bool(self.door.groups))
            log.info("listening for users of this machine at %s", path)
        except OSError as error:
            why = error.strerror or str(error)
            if self.door.wanted:
                raise WrongUse(
                    f"cannot listen on {path}: {why}", "choose another --socket; '' turns it off", code="cannot-listen"
                ) from error
            log.warning("cannot listen for users of this machine at %s: %s", path, why)
