"""How the server is reached: its addresses, with TLS or without, and who is believed to be whom."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from hangdog_models.errors import WrongUse
from hangdog_proto.reach import is_loopback
from hangdog_server.roles import Gate
from hangdog_server.settings import Settings
from hangdog_server.tls import Certificate, day
from hangdog_server.tokens import Tokens

#: A certificate that ends within so many seconds is warned of when the server starts.
SOON_S = 14 * 86400.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Door:
    """What an operator says of how the server is reached.

    `tls` is the folder with its certificate; `people` a second address, for people without certificates of their own;
    `insecure` lets everybody in, in plain text, on any address. `tokens` and `audit` are files, `proxies` as in Gate.
    `advertised` is how agents know it, where there are several servers. `web` is where pages are served; empty: nowhere.
    """

    tls: Path | None = None
    people: str = ""
    insecure: bool = False
    tokens: Path | None = None
    proxies: tuple[str, ...] = ()
    audit: Path | None = None
    advertised: str = ""
    web: str = ""


#: Whoever reaches this machine's own loopback may do everything.
LOCAL = Door()


class Opened:
    """A door that may be opened; raises WrongUse, saying what to type, where it would let strangers in."""

    def __init__(self, listen: str, door: Door, settings: Settings, clock: Callable[[], float]) -> None:
        for given in filter(None, (listen, door.people, door.web)):
            host, colon, port = given.rpartition(":")
            if not colon or not host or not port.isdecimal():
                raise WrongUse(f"{given!r} is no address to listen on", "write HOST:PORT, as in 127.0.0.1:7411")
        loopback = is_loopback(listen)
        if door.tls is None and not door.insecure and not loopback:
            raise WrongUse(
                f"without TLS, whoever reaches {listen} could read verdicts, ask for captures and speak for any machine",
                "hangdog certs init, and --tls hangdog-ca/server (docs/security.md); or --listen 127.0.0.1:7411 for this "
                "machine alone; or --insecure where the network itself keeps strangers out",
            )
        if door.people and door.tls is None:
            raise WrongUse("--people is an address with TLS, and there is no --tls", "hangdog certs init makes one")
        if door.web and door.tls is None and not door.insecure and not is_loopback(door.web):
            raise WrongUse(
                f"without TLS, tokens and stacks would cross the network to {door.web} in plain text",
                "give --tls (docs/security.md); or --web 127.0.0.1:7413 behind a proxy that speaks TLS; or --insecure",
            )
        self._listen = listen
        self.door = door
        self._settings = settings
        self._certificate = Certificate(door.tls, clock) if door.tls else None
        tokens = Tokens(door.tokens, clock)
        open_ = door.insecure or (loopback and not door.people)
        self.gate = Gate(open_, door.tls is not None, tokens, door.proxies, settings.hello_s)
        if door.tls is None and not loopback:
            log.warning("--insecure: whoever reaches %s may ask for captures and speak for any machine", listen)
        if not open_ and not tokens.look():
            log.warning("nobody can ask this server anything: there is no token; hangdog token new makes one")
        if self._certificate is not None:
            soon = self._certificate.ends - clock() < SOON_S
            log.log(
                logging.WARNING if soon else logging.INFO, "own certificate ends on %s", day(self._certificate.ends)
            )

    def bind(self, server: grpc.aio.Server) -> str:
        """Binds the server to its addresses; gives the first, with the port it really has. Raises WrongUse."""
        address = self._bound(server, self._listen, "--listen", mutual=True)
        if self.door.people:
            log.info("people are heard at %s", self._bound(server, self.door.people, "--people", mutual=False))
        return address

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

    def _bound(self, server: grpc.aio.Server, listen: str, option: str, mutual: bool) -> str:
        try:
            if self._certificate is None:
                bound = server.add_insecure_port(listen)
            else:
                bound = server.add_secure_port(listen, self._certificate.credentials(mutual))
        except RuntimeError as error:  # grpc's way to say that the address is taken, or none of this machine's
            raise WrongUse(
                f"cannot listen on {listen}", f"is another server running there? choose another {option}"
            ) from error
        return f"{listen.rpartition(':')[0]}:{bound}"
