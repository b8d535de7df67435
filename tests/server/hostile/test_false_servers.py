"""Whoever plays the server with a certificate of the authority that is no server's, or is denied, hears no agent and no token."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from hangdog_agent.connection import identity
from hangdog_agent.connection.identity import Identity
from hangdog_models.errors import HangdogError, NotAllowed, ServerUnreachable
from hangdog_proto import deny_list
from hangdog_proto import x509 as leaf
from hangdog_proto.client import certificate_folder
from hangdog_proto.client.channel_options import open_aio_channel, verified
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress
from hangdog_proto.deny_list import DeniedCertificate
from hangdog_server.auth import certificates
from support.refused import refused
from support.servers.guarded import CLIENT, Cluster, guarded, now

LOCALHOST = x509.DNSName("localhost")
SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)


def of(uri: str) -> x509.UniformResourceIdentifier:
    return x509.UniformResourceIdentifier(f"hangdog://{uri}")


@asynccontextmanager
async def playing(shown: Path) -> AsyncIterator[tuple[str, list[str]]]:
    """Somebody who plays the server with that certificate; the address, and the requests that were said to it."""
    heard: list[str] = []

    class Listening(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
        def service(self, details: Any) -> None:
            heard.append(details.method)

    found = certificate_folder.read(shown)
    server = grpc.aio.server(handlers=[Listening()])
    own = grpc.ssl_server_credentials([(found.key, found.certificate)], found.authority, True)
    port = server.add_secure_port("127.0.0.1:0", own)
    await server.start()
    try:
        yield f"localhost:{port}", heard
    finally:
        await server.stop(0)


FALSE: dict[str, tuple[str, type[HangdogError], Callable[[Cluster], Path]]] = {
    "no extended key usage": (
        "server authentication",
        NotAllowed,
        lambda cluster: cluster.odd("x", LOCALHOST),
    ),
    "a client's use alone": ("over TLS", ServerUnreachable, lambda cluster: cluster.odd("x", LOCALHOST, uses=CLIENT)),
    "any use": (
        "over TLS",
        ServerUnreachable,
        lambda cluster: cluster.odd("x", LOCALHOST, uses=(ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,)),
    ),
    "a machine's, that allows both": (
        "machine gpu-a",
        NotAllowed,
        lambda cluster: cluster.odd("x", of("machine/gpu-a"), LOCALHOST, uses=(*SERVER, *CLIENT)),
    ),
    "another name": ("over TLS", ServerUnreachable, lambda cluster: cluster.odd("x", x509.DNSName("y"), uses=SERVER)),
    "a machine's, as we make them": ("over TLS", ServerUnreachable, lambda cluster: cluster.machine("localhost")),
}


@pytest.mark.parametrize("which", FALSE)
async def test_a_certificate_that_is_no_servers_is_not_spoken_to(cluster: Cluster, which: str) -> None:
    named, kind, make = FALSE[which]
    code = "wrong-certificate" if kind is NotAllowed else "server-unreachable"
    shown = cluster.client("alice")
    async with playing(make(cluster)) as (address, heard):
        with Client(ServerAddress(address, shown, "hangdog_secret")) as client, refused(code, kind, named):
            await asyncio.to_thread(client.machines)
    assert heard == []


async def test_a_servers_certificate_of_another_authority_needs_no_uri(cluster: Cluster) -> None:
    async with playing(cluster.odd("x", LOCALHOST, uses=SERVER)) as (address, heard):
        with Client(ServerAddress(address, cluster.client("alice"))) as client, pytest.raises(ServerUnreachable):
            await asyncio.to_thread(client.machines)
    assert heard == ["/hangdog.v1.Incidents/Machines"], "it was asked, and knows no answer"


async def test_an_agent_tells_nobody_who_is_no_server(cluster: Cluster) -> None:
    shown = cluster.machine("gpu-a")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOG_")}
    async with playing(cluster.odd("x", LOCALHOST)) as (address, heard):
        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hangdog_agent.main", "--machine", "gpu-a", "--server", address),
            *("--tls", str(shown), "--match-env", "HANGDOG_JOB=of-nobody"),
            env=clean,
            stderr=asyncio.subprocess.PIPE,
        )
        assert agent.stderr is not None
        try:
            async with asyncio.timeout(40):
                while b"no connection to" not in (said := await agent.stderr.readline()):
                    pass
        finally:
            agent.kill()
            await agent.communicate()
    assert b"does not allow server authentication" in said and heard == []


async def test_who_relays_the_check_to_the_true_server_is_not_spoken_to_next(cluster: Cluster) -> None:
    """What was checked is all that is believed: another certificate of the authority is of no use."""
    other = certificates.server(cluster.home, ["localhost"], now(), cluster.home / "second")
    shown = cluster.machine("gpu-a")
    async with guarded(cluster) as on, playing(other) as (address, heard):
        port = on.address.rpartition(":")[2]
        checked = await asyncio.to_thread(verified, ServerAddress(f"localhost:{port}", shown))
        async with open_aio_channel(ServerAddress(address, shown), (), checked) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
                await channel.unary_unary("/x/y")(b"")  # type: ignore[call-arg]
    assert heard == []


async def test_a_denied_server_is_left_and_not_gone_back_to(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "DENIED_S", 0.02)
    shown = cluster.machine("gpu-a")
    async with guarded(cluster) as on:
        mine = Identity(f"localhost:{on.address.rpartition(':')[2]}", "gpu-a", "1", shown)
        server = await asyncio.to_thread(verified, mine.reach(mine.server))
        counting = asyncio.create_task(mine.counts(server))
        await asyncio.sleep(0.1)
        assert not counting.done()
        serial = leaf.read_pem((cluster.home / "server" / "cert.pem").read_bytes()).serial
        deny_list.add(shown / deny_list.NAME, DeniedCertificate(serial, "", now(), "its disk was sold"))
        async with asyncio.timeout(10):
            with refused("denied-certificate", NotAllowed, serial, "its disk was sold"):
                await counting
        with refused("denied-certificate", NotAllowed, serial, "its disk was sold"):
            await asyncio.to_thread(verified, mine.reach(mine.server))
        (shown / deny_list.NAME).write_text("[")
        with refused("damaged-deny-list", NotAllowed, "cannot be read"):
            await asyncio.to_thread(verified, mine.reach(mine.server))


async def test_a_client_goes_back_to_a_server_that_was_renewed_meanwhile(cluster: Cluster) -> None:
    """`hangdog watch` asks again and again over one client."""
    first = await asyncio.to_thread(certificates.server, cluster.home, ["localhost"], now(), cluster.home / "first")
    asked = Client(ServerAddress("localhost:1", cluster.client("alice")))
    with asked as client:
        for shown in (first, cluster.home / "server"):
            async with playing(shown) as (address, heard):
                client._reach = ServerAddress(
                    address, client._reach.tls
                )  # a port of its own each time: this one is in use
                with pytest.raises(ServerUnreachable):
                    await asyncio.to_thread(client.machines)
                assert heard
