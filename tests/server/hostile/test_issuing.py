"""What a server signs for its agents: certificates for the machine of the stream, and nothing that anybody asks for."""

import asyncio
import ipaddress
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hangdog_agent.connection import certificate_renewal
from hangdog_models.errors import WrongUse
from hangdog_proto import deny_list
from hangdog_proto import x509 as leaf
from hangdog_proto.client import server_auth
from hangdog_proto.deny_list import DeniedCertificate
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth import certificates
from hangdog_server.auth import issuer as issuing
from hangdog_server.auth.audit_log import AuditLog
from hangdog_server.auth.issuer import LIFE_DAYS, Issuer
from hangdog_server.cluster.certificate_renewals import AT_ONCE
from hangdog_server.listener import OpenListeners
from hangdog_server.settings import ServerSettings
from support.refused import refused
from support.servers.cast import Agent
from support.servers.guarded import CLIENT, Cluster, guarded, now, refusal
from support.worded import names

DAY = 86400.0


def uri(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


@pytest.fixture
def issuer(cluster: Cluster) -> Path:
    return issuing.make(cluster.home / "issuer", now())


async def renewed(agent: Agent, request: bytes) -> pb.Renewed:
    await agent.say(renew=pb.Renew(request=request))
    answer = await agent.next()
    assert answer.HasField("renewed")
    return answer.renewed


def put(cluster: Cluster, name: str, key: bytes, certificate: bytes) -> Path:
    """A folder with that pair."""
    folder = cluster.home / "put" / name
    folder.mkdir(parents=True)
    (folder / "key.pem").write_bytes(key)
    (folder / "cert.pem").write_bytes(certificate)
    (folder / "ca.pem").write_bytes((cluster.home / "ca.pem").read_bytes())
    return folder


async def test_a_machine_gets_another_certificate_over_its_stream_and_that_one_works(
    cluster: Cluster, issuer: Path
) -> None:
    old, made = cluster.machine("gpu-a"), certificate_renewal.request()
    async with guarded(cluster, issuer=issuer) as on:
        async with on.agent("gpu-a", old) as agent:
            welcome = await agent.hello(llama=[0])
            assert welcome.renews and 44.9 * DAY < welcome.renew_in_s < 45.1 * DAY
            answer = await renewed(agent, made.request)
        found = leaf.read_pem(answer.certificate)
        assert (found.owners, found.client_auth, found.server_auth) == (("machine gpu-a",), True, False)
        assert abs(found.ends - now() - LIFE_DAYS * DAY) < 60
        new = put(cluster, "gpu-a", made.key, answer.certificate)
        async with on.agent("gpu-a", new) as agent:
            welcome = await agent.hello(llama=[0])
            assert 3.4 * DAY < welcome.renew_in_s < 3.6 * DAY
            assert (
                leaf.read_pem((await renewed(agent, certificate_renewal.request().request)).certificate).owners
                == found.owners
            )
        async with on.agent("gpu-b", new) as agent:
            code, words = await refusal(agent, hello=pb.Hello(machine="gpu-b"))
            assert (code, await agent.error()) == (grpc.StatusCode.PERMISSION_DENIED, "certificate-of-another-machine")
            assert names(words, "gpu-a", "gpu-b")
    lines = [json.loads(line) for line in (cluster.home / "audit.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line["what"] == "certificate renew")
    before = leaf.read_pem((old / "cert.pem").read_bytes()).serial
    assert (first["who"], first["why"]) == ("gpu-a", f"instead of {before}")
    assert first["outcome"].startswith(f"signed {found.serial}, until ")


async def test_of_a_request_its_key_alone_counts(cluster: Cluster, issuer: Path) -> None:
    """Whoever holds one machine asks for everything else."""
    key = ec.generate_private_key(ec.SECP256R1())
    greedy = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client root")]))
        .add_extension(
            x509.SubjectAlternativeName(
                [uri("hangdog://machine/gpu-b"), uri("hangdog://client/root"), x509.DNSName("h")]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    made = Issuer(issuer, now).sign(greedy.public_bytes(Encoding.PEM), "gpu-a")
    found, whole = leaf.read_pem(made), x509.load_pem_x509_certificate(made)
    assert (found.owners, found.client_auth, found.server_auth) == (("machine gpu-a",), True, False)
    assert not whole.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = whole.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [uri("hangdog://machine/gpu-a")]
    assert whole.subject == x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpu-a")])


def csr(key: Any, digest: Any = None) -> bytes:
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, digest or hashes.SHA256())
    return made.public_bytes(Encoding.PEM)


def forged() -> bytes:
    """A request for the key of somebody else, signed with one's own."""
    own, other = (x509.load_pem_x509_csr(certificate_renewal.request().request) for _ in range(2))
    der = own.public_bytes(Encoding.DER).replace(_point(own), _point(other))
    return x509.load_der_x509_csr(der).public_bytes(Encoding.PEM)


def _point(request: x509.CertificateSigningRequest) -> bytes:
    from cryptography.hazmat.primitives.serialization import PublicFormat

    return request.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (lambda: b"", "read"),
        (lambda: b"-----BEGIN CERTIFICATE REQUEST-----\n!!!\n-----END CERTIFICATE REQUEST-----\n", "read"),
        (lambda: certificate_renewal.request().request[:-60], "read"),
        (lambda: b"\xff" * 5000, "too long"),
        (lambda: csr(ec.generate_private_key(ec.SECP384R1())), "P-256"),
        (lambda: csr(rsa.generate_private_key(65537, 2048)), "P-256"),
        (forged, "own key"),
    ],
    ids=["empty", "no base64", "cut", "long", "P-384", "RSA", "forged"],
)
def test_a_request_that_proves_nothing_is_refused(issuer: Path, request_: Callable[[], bytes], words: str) -> None:
    with refused("wrong-certificate-request", WrongUse, words):
        Issuer(issuer, now).sign(request_(), "gpu-a")


async def test_a_server_signs_for_one_machine_only_so_often(cluster: Cluster, issuer: Path) -> None:
    async with guarded(cluster, issuer=issuer) as on, on.agent("gpu-a", cluster.machine("gpu-a")) as agent:
        await agent.hello(llama=[0])
        answers = [await renewed(agent, certificate_renewal.request().request) for _ in range(AT_ONCE + 1)]
        assert [bool(answer.certificate) for answer in answers] == [True] * AT_ONCE + [False]
        assert "within the hour" not in answers[-1].refused and "4 certificates lately" in answers[-1].refused
        async with on.agent("gpu-b", cluster.machine("gpu-b")) as other:
            await other.hello(llama=[1])
            assert (await renewed(other, certificate_renewal.request().request)).certificate


async def test_without_an_issuer_nothing_is_signed(cluster: Cluster) -> None:
    async with guarded(cluster) as on, on.agent("gpu-a", cluster.machine("gpu-a")) as agent:
        assert not (await agent.hello(llama=[0])).renews
        assert "signs no certificates" in (await renewed(agent, certificate_renewal.request().request)).refused


async def test_what_cannot_be_recorded_is_not_signed(
    cluster: Cluster, issuer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(self: AuditLog, deed: object) -> bool:
        return False

    monkeypatch.setattr(AuditLog, "note", full)
    async with guarded(cluster, issuer=issuer) as on, on.agent("gpu-a", cluster.machine("gpu-a")) as agent:
        await agent.hello(llama=[0])
        answer = await renewed(agent, certificate_renewal.request().request)
        assert answer.certificate == b"" and names(answer.refused, "audit log")


async def test_what_a_thief_had_renewed_is_denied_with_its_owner(cluster: Cluster, issuer: Path) -> None:
    stolen, made = cluster.machine("gpu-a"), certificate_renewal.request()
    async with guarded(cluster, issuer=issuer) as on:
        async with on.agent("gpu-a", stolen) as thief:
            await thief.hello(llama=[0])
            fresh = put(cluster, "thief", made.key, (await renewed(thief, made.request)).certificate)
        deny_list.add(cluster.denied, DeniedCertificate("", "machine gpu-a", now() + 1))
        for shown in (stolen, fresh):
            async with on.agent("gpu-a", shown) as thief:
                await refusal(thief, hello=pb.Hello(machine="gpu-a"))
                assert await thief.error() == "denied-certificate"


# ---- whoever steals the issuer's key


def minted(cluster: Cluster, issuer: Path, names: Iterable[x509.GeneralName], uses: Sequence[Any] = CLIENT) -> Path:
    """A folder with a certificate that the issuer's key has signed and the server never would."""
    above = x509.load_pem_x509_certificate((issuer / "cert.pem").read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        certificates.builder(x509.Name([]), above.subject, key, now(), 5)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .sign(certificates.signer(issuer / "key.pem"), hashes.SHA256())
    )
    return put(cluster, f"minted-{made.serial_number:x}", certificates._key(key), certificates.pem(made))


MINTED: dict[str, tuple[x509.GeneralName, ...]] = {
    "a person's": (uri("hangdog://client/root"),),
    "a server's": (uri("hangdog://server/localhost"),),
    "a machine's and a person's": (uri("hangdog://machine/gpu-a"), uri("hangdog://client/root")),
    "a DNS name": (x509.DNSName("gpu-a"),),
    "a machine's and a DNS name": (uri("hangdog://machine/gpu-a"), x509.DNSName("gpu-a")),
    "a machine's and an address": (uri("hangdog://machine/gpu-a"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))),
}


@pytest.mark.parametrize("what", MINTED)
async def test_whoever_has_the_issuers_key_makes_no_certificate_but_a_machines(
    cluster: Cluster, issuer: Path, what: str
) -> None:
    shown = minted(cluster, issuer, MINTED[what])
    async with guarded(cluster, issuer=issuer, trust_dns_names=True, proxies=("client root",)) as on:
        async with on.agent("gpu-a", shown) as agent:
            assert (await refusal(agent, hello=pb.Hello(machine="gpu-a")))[0] is grpc.StatusCode.UNAVAILABLE
        async with on.agent("gpu-a", minted(cluster, issuer, [uri("hangdog://machine/gpu-a")])) as agent:
            await agent.hello(llama=[0])  # that is what it can make, and so the test can see a difference


async def test_whoever_has_the_issuers_key_is_no_server(cluster: Cluster, issuer: Path) -> None:
    """Agents do not believe it at all."""
    names = [uri("hangdog://server/localhost"), x509.DNSName("localhost")]
    found = minted(cluster, issuer, names, [ExtendedKeyUsageOID.SERVER_AUTH])
    server = grpc.aio.server()
    pair = ((found / "key.pem").read_bytes(), (found / "cert.pem").read_bytes())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    with pytest.raises(Exception, match="over TLS"):
        await asyncio.to_thread(server_auth.verified, f"localhost:{port}", cluster.machine("gpu-a"))
    await server.stop(0)


def test_the_clusters_own_authority_is_no_issuer(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "issuer"
    folder.mkdir()
    (folder / "cert.pem").write_bytes((cluster.home / "ca.pem").read_bytes())
    (folder / "key.pem").write_bytes((cluster.home / "ca.key").read_bytes())
    with refused("wrong-authority"):
        OpenListeners("127.0.0.1:0", cluster.door(issuer=folder), ServerSettings(), now)
    with refused("missing-option"):
        OpenListeners("127.0.0.1:0", replace(cluster.door(issuer=folder), tls=None), ServerSettings(), now)


def test_no_certificate_outlives_its_issuer(cluster: Cluster) -> None:
    ends = now() + 2 * DAY
    issuer = issuing.make(cluster.home / "short", ends - 5 * DAY, days=5)
    found = leaf.read_pem(Issuer(issuer, now).sign(certificate_renewal.request().request, "gpu-a"))
    assert abs(found.ends - ends) < 2
    with refused("expired-certificate"):
        Issuer(issuer, lambda: ends + 1)
