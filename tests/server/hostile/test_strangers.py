"""Peers without a certificate that counts get nothing, over the true wire, and delay nobody."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from cryptography import x509

from hangdog_models.errors import WrongUse
from hangdog_proto.client import certificate_folder
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth import certificates
from hangdog_server.protocol.rate_limits import RateLimits
from support.servers.cast import PATIENT, Agent, stage
from support.servers.guarded import CLIENT, STRICT, Cluster, beside, guarded, made, now, refusal
from support.worded import names

DAY = 86400.0
#: A stranger is cut off `hello_s` after it came; this is how long a busy machine may take for it. Seconds.
CUT_OFF_S = STRICT.hello_s + 10


def self_signed(cluster: Cluster, folder: Path) -> Path:
    """A certificate that nobody has signed but its owner, who believes the cluster's authority."""
    other = made(folder / "other")
    own = other.machine("gpu-a")
    (own / "ca.pem").write_bytes((cluster.home / "ca.pem").read_bytes())
    return own


def nobody(cluster: Cluster, folder: Path) -> Path:
    """The authority's certificate alone."""
    folder.mkdir(parents=True)
    (folder / "ca.pem").write_bytes((cluster.home / "ca.pem").read_bytes())
    return folder


STRANGERS: dict[str, Callable[[Cluster, Path], Path | None]] = {
    "plain text": lambda cluster, folder: None,
    "no certificate": lambda cluster, folder: nobody(cluster, folder / "none"),
    "another authority": self_signed,
    "another authority that the server's certificate is not of": lambda cluster, folder: made(folder).machine("gpu-a"),
    "ended": lambda cluster, folder: cluster.machine("gpu-a", now() - (certificates.DAYS + 1) * DAY),
    "not yet": lambda cluster, folder: cluster.machine("gpu-a", now() + 3 * DAY),
}


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_gets_no_further_than_the_handshake(cluster: Cluster, tmp_path: Path, who: str) -> None:
    shown = STRANGERS[who](cluster, tmp_path / "stranger")
    async with guarded(cluster) as on, beside(on, tls=cluster.machine("good")) as served:
        async with Agent(on.address, "gpu-a", shown) as stranger:
            code, _ = await refusal(stranger, hello=pb.Hello(machine="gpu-a"))
        assert code is grpc.StatusCode.UNAVAILABLE
        await served()
        assert [line.name for line in await on.machines()] == ["good"]


@pytest.mark.parametrize(
    ("kind", "machine", "error", "named"),
    [
        ("machine", "gpu-b", "certificate-of-another-machine", ("machine gpu-a", "machine gpu-b")),
        ("machine", "gpu-a\n", "bad-name", ("machine",)),
        ("client", "gpu-a", "no-machine-certificate", ("client gpu-a",)),
        ("server", "localhost", "no-machine-certificate", ("server localhost",)),
    ],
)
async def test_a_certificate_speaks_for_its_own_machine_and_says_so_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, kind: str, machine: str, error: str, named: tuple[str, ...]
) -> None:
    shown = {
        "machine": lambda: cluster.machine("gpu-a"),
        "client": lambda: cluster.client("gpu-a"),
        "server": lambda: cluster.home / "server",
    }[kind]()
    caplog.set_level(logging.WARNING)
    async with guarded(cluster) as on, beside(on, tls=cluster.machine("good")) as served:
        for _ in range(3):
            async with on.agent(machine, shown) as agent:
                code, said = await refusal(agent, hello=pb.Hello(machine=machine))
                assert code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT)
                assert await agent.error() == error and names(said, *named)
        await served()
        assert [line.name for line in await on.machines()] == ["good"]
    told = [record.getMessage() for record in caplog.records if said in record.getMessage()]
    assert len(told) == 1 and "127.0.0.1" in told[0]


async def test_the_right_machine_is_let_in_whatever_its_name_looks_like(cluster: Cluster) -> None:
    async with guarded(cluster) as on:
        for name in ("gpu-a17.cluster.local", "Knoten 7/ä", "../../etc", "100%"):
            async with on.agent(name, cluster.machine(name)) as agent:
                await agent.hello(llama=[0])
                await on.knows(name)


async def test_names_of_another_authority_are_dns_names_where_that_is_asked_for(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """As cert-manager makes them: no URI of ours, and Kubernetes' names of the files."""
    folder = cluster.odd("site", x509.DNSName("gpu-c"), uses=CLIENT)
    for ours, theirs in zip(*certificate_folder.NAMES, strict=True):
        (folder / ours).rename(folder / theirs)
    async with guarded(cluster, trust_dns_names=True) as on:
        assert "--trust-dns-names: any certificate" in caplog.text
        async with on.agent("gpu-c", folder) as agent:
            await agent.hello(llama=[0])
        async with on.agent("gpu-d", folder) as agent:
            assert (await refusal(agent, hello=pb.Hello(machine="gpu-d")))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_a_machines_certificate_does_not_make_a_server(cluster: Cluster, tmp_path: Path) -> None:
    """Whoever took a machine over cannot play the server to the others."""
    own = cluster.machine("localhost")
    found = certificate_folder.read(own)
    server = grpc.aio.server()
    port = server.add_secure_port(
        "127.0.0.1:0", grpc.ssl_server_credentials([(found.key, found.certificate)], found.authority, True)
    )
    await server.start()
    async with Agent(f"localhost:{port}", "gpu-a", cluster.machine("gpu-a")) as agent:
        assert (await refusal(agent, hello=pb.Hello(machine="gpu-a")))[0] is grpc.StatusCode.UNAVAILABLE
    await server.stop(0)


async def test_a_stream_ends_with_the_certificate_that_opened_it(cluster: Cluster) -> None:
    soon = cluster.machine("gpu-a", now() - certificates.DAYS * DAY + 2)
    async with guarded(cluster) as on, on.agent("gpu-a", soon) as agent:
        await agent.hello(llama=[0])
        code, words = await agent.end()
        assert (code, await agent.error()) == (grpc.StatusCode.PERMISSION_DENIED, "expired-certificate")
        assert names(words, "gpu-a")


def peer_certificate(address: str, shown: Path) -> bytes:
    """The certificate that a server shows."""
    context = ssl.create_default_context(cafile=shown / "ca.pem")
    context.load_cert_chain(shown / "cert.pem", shown / "key.pem")
    context.set_alpn_protocols(["h2"])
    port = int(address.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        found = tls.getpeercert(binary_form=True)
    assert found is not None
    return found


async def test_a_renewed_certificate_is_taken_up_and_a_broken_one_is_not(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    shown, own = cluster.machine("gpu-a"), cluster.home / "server"
    caplog.set_level(logging.INFO)
    async with guarded(cluster) as on:
        first = await asyncio.to_thread(peer_certificate, on.address, shown)
        (own / "key.pem").write_bytes(b"-----BEGIN nonsense")
        assert await asyncio.to_thread(peer_certificate, on.address, shown) == first
        assert names(caplog.text, "renewed certificate", "not used")
        new = certificates.server(cluster.home, ["localhost"], now(), cluster.home / "new")
        for name in ("key.pem", "cert.pem"):
            (new / name).replace(own / name)
        assert await asyncio.to_thread(peer_certificate, on.address, shown) != first
        assert "was renewed" in caplog.text
        async with on.agent("gpu-a", shown) as agent:
            await agent.hello(llama=[0])


def until_cut_off(address: str, said: bytes) -> bytes:
    """Says something on a TCP connection, then nothing; what comes back until the other end is gone."""
    port = int(address.rpartition(":")[2])
    heard = b""
    with socket.create_connection(("127.0.0.1", port), CUT_OFF_S) as plain:
        plain.settimeout(CUT_OFF_S)
        try:
            plain.sendall(said)
            while part := plain.recv(65536):
                heard += part
        except ConnectionError:
            pass
    return heard


def client_hello() -> bytes:
    """The first words of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    speaking = context.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        speaking.do_handshake()
    return outgoing.read()


NOISE: dict[str, Callable[[], bytes]] = {
    "nothing at all": lambda: b"",
    "one byte": lambda: b"\x16",
    "half a handshake": lambda: client_hello()[:100],
    "a handshake that it never ends": client_hello,
    "HTTP/1.1": lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/2 in plain text": lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "zeros": lambda: bytes(100_000),
    "a record that is too long": lambda: b"\x16\x03\x01\xff\xff" + bytes(70_000),
}


async def test_who_says_nothing_or_nonsense_is_cut_off_and_told_nothing(cluster: Cluster) -> None:
    """All at once, ten of each: beside them an agent is served as ever."""
    async with guarded(cluster) as on, beside(on, tls=cluster.machine("good")) as served:
        noises = [noise() for noise in NOISE.values() for _ in range(10)]
        with ThreadPoolExecutor(len(noises)) as pool:
            loop = asyncio.get_running_loop()
            strangers = [loop.run_in_executor(pool, until_cut_off, on.address, noise) for noise in noises]
            await served()
            heard = await asyncio.gather(*strangers)
        await served()
    handshakes = [answer for answer in heard if len(answer) > 7]
    assert len(handshakes) <= 10, "only who begins a handshake hears more than that there is none"
    assert not any(b"hangdog.v1" in answer or b"good" in answer for answer in heard)


async def test_on_loopback_too_who_says_nothing_is_cut_off(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", settings=STRICT) as on, beside(on) as served:
        for noise in (b"", b"\x00" * 1000, b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            asking = asyncio.to_thread(until_cut_off, on.address, noise)
            assert b"hangdog.v1" not in await asking
        await served()


def handshake(address: str, shown: Path, alpn: str) -> str | None:
    """Shakes hands for another protocol; what was agreed on, "" when nothing was and the server hung up."""
    context = ssl.create_default_context(cafile=shown / "ca.pem")
    context.load_cert_chain(shown / "cert.pem", shown / "key.pem")
    context.set_alpn_protocols([alpn])
    port = int(address.rpartition(":")[2])
    try:
        with (
            socket.create_connection(("127.0.0.1", port), CUT_OFF_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            tls.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while tls.recv(65536):
                pass
            return tls.selected_alpn_protocol()
    except (ssl.SSLError, ConnectionError):
        return ""


async def test_another_protocol_over_tls_is_not_spoken(cluster: Cluster) -> None:
    shown = cluster.machine("gpu-a")
    async with guarded(cluster) as on, beside(on, tls=cluster.machine("good")) as served:
        assert await asyncio.to_thread(handshake, on.address, shown, "http/1.1") != "http/1.1"
        assert await asyncio.to_thread(handshake, on.address, shown, "h2") in ("h2", "")
        await served()


async def test_only_so_many_agents_are_being_let_in_at_once() -> None:
    limits = RateLimits(replace(PATIENT, max_greeting=1))
    limits.greet()
    with pytest.raises(WrongUse, match="1 agents") as caught:
        limits.greet()
    assert caught.value.code == "too-many-agents"
    limits.greeted()
    limits.greet()


async def test_a_silent_stream_is_let_go(cluster: Cluster) -> None:
    async with guarded(cluster) as on, on.agent("gpu-a", cluster.machine("gpu-a")) as agent:
        _, words = await agent.end()
        assert await agent.error() == "request-too-slow" and names(words, "1 s")
