"""A cluster with certificates, and a server in it that strangers and broken agents are let loose on."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hangdog_proto.client.server_address import ServerAddress
from hangdog_server.auth import certificates, tokens
from hangdog_server.auth.tokens import Role
from hangdog_server.listener import ListenerConfig
from hangdog_server.settings import ServerSettings
from support.servers.cast import PATIENT, Agent, Stage, stage, trainer

#: Whoever says nothing is cut off soon; nobody who speaks is, however slow this machine is.
STRICT = replace(PATIENT, hello_s=1.0)
#: What a client's certificate may be used for.
CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
#: What a well-behaved agent is waited for while others misbehave: half of what those could delay it by (`PATIENT`).
#: It takes some 50 ms alone, and has taken more than 5 s where four test processes share two cores and a disk. Seconds.
SERVED_S = 30.0


def now() -> float:
    return time.time()  # noqa: TID251  # TLS itself goes by the true clock


@dataclass(frozen=True)
class Cluster:
    """The authority's folder, and what it has signed."""

    home: Path

    def machine(self, name: str, at: float | None = None) -> Path:
        """The folder of a machine's certificate, made at that time."""
        into = self.home / f"machines-{len(list(self.home.iterdir()))}"
        return certificates.machine(self.home, name, now() if at is None else at, into)

    def client(self, name: str) -> Path:
        return certificates.client(self.home, name, now(), self.home / f"clients-{len(list(self.home.iterdir()))}")

    def odd(
        self, name: str, *names: x509.GeneralName, uses: Sequence[x509.ObjectIdentifier] | None = None, common: str = ""
    ) -> Path:
        """A folder with a certificate of the authority that says just this, made by hand; None: no extended key usage."""
        folder = self.home / f"odd-{len(list(self.home.iterdir()))}" / name
        folder.mkdir(parents=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])
        above = x509.load_pem_x509_certificate((self.home / "ca.pem").read_bytes())
        making = certificates.builder(subject, above.subject, key, now(), 5)
        if names:
            making = making.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if uses is not None:
            making = making.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        found = making.sign(certificates.signer(self.home / "ca.key"), hashes.SHA256())
        (folder / "cert.pem").write_bytes(found.public_bytes(Encoding.PEM))
        (folder / "key.pem").write_bytes(certificates._key(key))
        (folder / "ca.pem").write_bytes((self.home / "ca.pem").read_bytes())
        return folder

    @property
    def denied(self) -> Path:
        """The server's deny list."""
        return self.home / "denied.json"

    def door(self, **more: object) -> ListenerConfig:
        return replace(
            ListenerConfig(
                self.home / "server",
                tokens=self.home / "tokens.json",
                audit=self.home / "audit.jsonl",
                denied=self.denied,
            ),
            **more,  # type: ignore[arg-type]  # the test names what it changes
        )


def made(home: Path) -> Cluster:
    """A new cluster, whose server is called localhost."""
    certificates.init(home, ["localhost"], now())
    return Cluster(home)


@asynccontextmanager
async def guarded(cluster: Cluster, settings: ServerSettings = STRICT, **more: object) -> AsyncIterator[Stage]:
    """A server with TLS, and somebody who may do everything."""
    token = tokens.new(cluster.home / "tokens.json", "root", Role.ACT, now())
    root = cluster.client("root")
    path = cluster.home / "store" / "s.db"
    async with stage(path, settings=settings, door=cluster.door(**more), clock=now) as on:
        on.reach = ServerAddress(on.address, root, token)
        yield on


@asynccontextmanager
async def beside(
    on: Stage, name: str = "good", tls: Path | None = None
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A well-behaved agent; call what is given to see that it is served, and at once."""
    async with on.agent(name, tls) as agent:
        await agent.hello(good=[0])
        await on.knows(name)

        async def served() -> None:
            async with asyncio.timeout(SERVED_S):
                asking = asyncio.create_task(on.snapshot("good"))
                await agent.answer(await agent.order(), trainer(0))
                assert (await asking)[-1].verdict is not None

        yield served


async def refusal(agent: Agent, **said: Any) -> tuple[grpc.StatusCode, str]:
    """Says something as an agent that is going to be refused; how its stream ends."""
    with suppress(grpc.aio.AioRpcError):
        await agent.say(**said)
    return await agent.end()
