"""Who an agent is, to the server that it calls."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hangdog_agent.connection import own_certificate
from hangdog_agent.connection.certificate_renewal import Renewal
from hangdog_agent.connection.session import ServerSession
from hangdog_models.errors import NotAllowed, WrongUse
from hangdog_proto import deny_list
from hangdog_proto.client import certificate_folder
from hangdog_proto.client.server_address import ServerAddress
from hangdog_proto.client.server_auth import Verified
from hangdog_proto.deny_list import DenyList
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.x509 import CertificateInfo

#: Between two looks at whether the server's certificate was denied. Seconds.
DENIED_S = 5.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls whom: `server` is HOST:PORT, or several with commas, `machine` the name the agent speaks for.

    `tls` is the folder with this machine's certificate, `insecure` lets plain text cross a network. `renewed` is the
    file that a certificate renewed over the connection is kept in, `renewal` has it renewed.
    `boot` is the kernel's name for the machine's present start, `serial` its hardware's; empty: not known.
    """

    server: str
    machine: str
    version: str
    tls: Path | None = None
    insecure: bool = False
    boot: str = ""
    serial: str = ""
    renewed: Path | None = None
    renewal: Renewal | None = None

    def hello(self, diagnoses: bool, replays: Iterable[str] = ()) -> pb.Hello:
        """The first words on every stream; `diagnoses`: tests of this machine may be ordered, `replays` by these names."""
        return pb.Hello(
            machine=self.machine, version=self.version, paced=True, diagnoses=diagnoses,
            boot=self.boot, serial=self.serial, replays=replays,
        )  # fmt: skip

    def reach(self, server: str, other: bool = False) -> ServerAddress:
        """The way to one of the servers; `other`: with the older of two certificates, after the newer one failed."""
        own = certificate_folder.newest(self.tls, self.renewed, other) if self.tls is not None else None
        return ServerAddress(server, self.tls, insecure=self.insecure, own=own)

    def welcomed(self, welcome: pb.Welcome, session: ServerSession, server: str) -> None:
        """A connection begins: the certificate is renewed over it in time, where the server does that."""
        if self.renewal is not None and welcome.renews:
            session.begin(self.renewal.keep(session.outbox.put, server, welcome.renew_in_s))

    def answered(self, answer: pb.Renewed) -> None:
        """The server has answered a request for a certificate."""
        if self.renewal is not None:
            self.renewal.answered(answer)

    def certificate(self) -> CertificateInfo | None:
        """What this machine's own certificate says; None without TLS, and where it cannot be read."""
        try:
            return own_certificate.shown(self.tls, self.renewed) if self.tls is not None else None
        except WrongUse:
            return None

    def certificate_ends(self) -> float | None:
        """Unix time when that certificate ends; None without one."""
        own = self.certificate()
        return own.ends if own is not None else None

    async def counts(self, server: Verified | None) -> None:
        """Lasts until the server's certificate is denied; raises NotAllowed then."""
        denied = DenyList(self.tls / deny_list.NAME if self.tls is not None else None)
        while server is None or not (because := denied.denies(server.leaf)):
            await asyncio.sleep(DENIED_S)
        raise NotAllowed(f"the server: {because}", code="denied-certificate")
