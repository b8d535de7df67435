"""Certificates of the right authority that must not count: without a URI, without a use, and on the deny list."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from hangdog_models.errors import NotAllowed, WrongUse
from hangdog_proto import deny_list
from hangdog_proto import x509 as leaf
from hangdog_proto.client.channel_options import open_channel
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress
from hangdog_proto.deny_list import DeniedCertificate, DenyList
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth import peer_certificates, tokens
from hangdog_server.auth.tokens import Role
from hangdog_server.listener import OpenListeners
from hangdog_server.settings import ServerSettings
from support.refused import refused
from support.servers.cast import Stage, trainer
from support.servers.guarded import CLIENT, Cluster, guarded, now, refusal
from support.worded import names

HELLO = pb.Hello(machine="gpu-a")


def serial(folder: Path) -> str:
    return leaf.read_pem((folder / "cert.pem").read_bytes()).serial


def deny(cluster: Cluster, folder: Path, reason: str = "stolen") -> None:
    assert deny_list.add(cluster.denied, DeniedCertificate(serial(folder), "", now(), reason))


def asked(on: Stage, shown: Path, token: str = "", *said: tuple[str, str]) -> tuple[grpc.StatusCode, str]:
    """Asks for the machines with that certificate; how it ends."""
    with open_channel(ServerAddress(on.address, shown, token), ()) as channel:
        try:
            channel.unary_unary("/hangdog.v1.Incidents/Machines", bytes, bytes)(b"", metadata=said, timeout=10)
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


NO_URI: dict[str, tuple[str, Callable[[Cluster], Path]]] = {
    "a DNS name alone": (
        "the certificate of gpu-a is no machine's",
        lambda cluster: cluster.odd("gpu-a", x509.DNSName("gpu-a"), uses=CLIENT),
    ),
    "a common name alone": (
        "the certificate of gpu-a is no machine's",
        lambda cluster: cluster.odd("gpu-a", uses=CLIENT, common="gpu-a"),
    ),
    "no extended key usage": (
        "machine gpu-a does not allow client authentication",
        lambda cluster: cluster.odd("gpu-a", x509.UniformResourceIdentifier("hangdog://machine/gpu-a")),
    ),
    "a URI of another scheme": (
        "is no machine's",
        lambda cluster: cluster.odd("gpu-a", x509.UniformResourceIdentifier("spiffe://machine/gpu-a"), uses=CLIENT),
    ),
}


@pytest.mark.parametrize("which", NO_URI)
async def test_a_certificate_of_the_authority_that_does_not_say_whose_it_is_speaks_for_nobody(
    cluster: Cluster, which: str
) -> None:
    words, make = NO_URI[which]
    async with guarded(cluster) as on, on.agent("gpu-a", make(cluster)) as agent:
        code, said = await refusal(agent, hello=HELLO)
        assert code is grpc.StatusCode.PERMISSION_DENIED and words in said
        assert await on.machines() == ()


async def test_a_proxy_is_never_named_by_a_common_name(cluster: Cluster) -> None:
    """Whatever is trusted: anybody who gets a certificate of the authority chooses its subject."""
    for shown in (
        cluster.odd("portal", uses=CLIENT, common="client portal"),
        cluster.odd("portal", x509.DNSName("other"), uses=CLIENT, common="client portal"),
    ):
        async with guarded(Cluster(cluster.home), proxies=("client portal",), trust_dns_names=True) as on:
            tokens.revoke(cluster.home / "tokens.json", "root")
            code, _ = await asyncio.to_thread(asked, on, shown, "", ("x-hangdog-user", "eve"))
            assert code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("uses", "code"),
    [
        (
            None,
            grpc.StatusCode.PERMISSION_DENIED,
        ),  # TLS itself lets it through: it checks the extension where there is one
        ((ExtendedKeyUsageOID.SERVER_AUTH,), grpc.StatusCode.UNAVAILABLE),  # TLS itself
        ((ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,), grpc.StatusCode.UNAVAILABLE),
        (CLIENT, grpc.StatusCode.OK),
    ],
)
async def test_a_persons_certificate_must_allow_client_authentication(
    cluster: Cluster, uses: tuple[x509.ObjectIdentifier, ...] | None, code: grpc.StatusCode
) -> None:
    shown = cluster.odd("eve", x509.UniformResourceIdentifier("hangdog://client/eve"), uses=uses)
    async with guarded(cluster) as on:
        assert on.reach is not None
        assert (await asyncio.to_thread(asked, on, shown, on.reach.token))[0] is code


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Denied streams are looked for often, so that a test need not wait."""
    monkeypatch.setattr(peer_certificates, "WATCHED_S", 0.05)


@pytest.mark.usefixtures("watched")
async def test_a_denied_machine_is_put_out_and_not_let_in_again(cluster: Cluster) -> None:
    shown, other = cluster.machine("gpu-a"), cluster.machine("gpu-b")
    async with guarded(cluster) as on, on.agent("gpu-b", other) as stays:
        await stays.hello(llama=[1])
        async with on.agent("gpu-a", shown) as agent:
            await agent.hello(llama=[0])
            await on.knows("gpu-a", "gpu-b")
            deny(cluster, shown)
            async with asyncio.timeout(10):
                code, words = await agent.end()
                assert (code, await agent.error()) == (grpc.StatusCode.PERMISSION_DENIED, "denied-certificate")
            assert names(words, "gpu-a", "stolen")
        async with on.agent("gpu-a", shown) as agent:
            assert (await refusal(agent, hello=HELLO))[0] is grpc.StatusCode.PERMISSION_DENIED
        async with on.agent("gpu-a", cluster.machine("gpu-a")) as agent:  # another certificate for it
            await agent.hello(llama=[0])
        assert [one.name for one in await on.machines() if one.connected and one.name == "gpu-b"] == ["gpu-b"]
    lines = [json.loads(line) for line in (cluster.home / "audit.jsonl").read_text().splitlines()]
    (outcome,) = [line["outcome"] for line in lines if line["what"] == "request refused"]
    assert names(outcome, "gpu-a", serial(shown), "denied", "stolen")


@pytest.mark.usefixtures("watched")
async def test_a_denied_person_is_put_out_whatever_their_token_says(cluster: Cluster) -> None:
    alice = cluster.client("alice")
    async with guarded(cluster) as on, on.agent("gpu-a", cluster.machine("gpu-a")) as agent:
        await agent.hello(llama=[0])
        await on.knows("gpu-a")
        token = tokens.new(cluster.home / "tokens.json", "alice", Role.ACT, now())
        with Client(ServerAddress(on.address, alice, token)) as client:
            following = client.snapshot("llama")
            await asyncio.to_thread(next, following)
            deny(cluster, alice)
            with refused("denied-certificate", NotAllowed, "stolen"):
                await asyncio.to_thread(list, following)
        code, _ = await asyncio.to_thread(asked, on, alice, token)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        await agent.answer(await agent.order(), trainer(0))


async def test_a_denied_proxy_says_of_nobody_who_they_are(cluster: Cluster) -> None:
    portal, user = cluster.client("portal"), ("x-hangdog-user", "alice")
    async with guarded(cluster, proxies=("client portal",)) as on:
        assert (await asyncio.to_thread(asked, on, portal, "", user))[0] is grpc.StatusCode.OK
        deny(cluster, portal)
        assert (await asyncio.to_thread(asked, on, portal, "", user))[0] is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.usefixtures("watched")
async def test_a_damaged_deny_list_lets_nobody_in_and_puts_nobody_out(cluster: Cluster) -> None:
    shown = cluster.machine("gpu-b")
    deny_list.add(cluster.denied, DeniedCertificate("abc", "", now()))
    async with guarded(cluster) as on, on.agent("gpu-a", cluster.machine("gpu-a")) as agent:
        await agent.hello(llama=[0])
        await on.knows("gpu-a")
        kept = cluster.denied.read_bytes()
        for damage in (b'{"schema": "hangdog.denied/1", "denied": [{"serial', b"", None):
            cluster.denied.unlink() if damage is None else cluster.denied.write_bytes(damage)
            async with on.agent("gpu-b", shown) as new:
                code, words = await refusal(new, hello=pb.Hello(machine="gpu-b"))
                assert (code, await new.error()) == (grpc.StatusCode.PERMISSION_DENIED, "damaged-deny-list")
            assert names(words, "gpu-b", "cannot be read")
        cluster.denied.write_bytes(kept)
        assert [one.connected for one in await on.machines()] == [True], "who was there stays"
        async with on.agent("gpu-b", shown) as new:
            await new.hello(llama=[1])


@pytest.mark.parametrize(
    "damage",
    [
        "", "[]", "{}", '{"schema": "hangdog.denied/2", "denied": []}', "[" * 100_000,
        '{"schema": "hangdog.denied/1", "denied": [{"serial": "xyz", "owner": "", "at": 0, "reason": ""}]}',
        '{"schema": "hangdog.denied/1", "denied": [{"serial": "", "owner": "", "at": 0, "reason": ""}]}',
        '{"schema": "hangdog.denied/1", "denied": [{"serial": "ab", "owner": "", "at": "x", "reason": ""}]}',
    ],
)  # fmt: skip
def test_a_server_does_not_start_on_a_damaged_deny_list(cluster: Cluster, damage: str) -> None:
    cluster.denied.write_text(damage)
    with refused("damaged-deny-list", WrongUse, str(cluster.denied)):
        OpenListeners("127.0.0.1:0", cluster.door(), ServerSettings(), now)
    with refused("damaged-deny-list", WrongUse, str(cluster.denied)):
        deny_list.add(cluster.denied, DeniedCertificate("ab", "", 0.0))


def test_a_denied_owner_has_no_certificate_left_but_those_made_later(cluster: Cluster) -> None:
    """A thief may have had the stolen certificate renewed: those count no longer either, however many there are."""
    stolen, renewed = (
        leaf.read_pem((cluster.machine("gpu-a", now() - ago) / "cert.pem").read_bytes()) for ago in (86400, 60)
    )
    deny_list.add(cluster.denied, DeniedCertificate("", "machine gpu-a", now()))
    later, other = (
        leaf.read_pem((cluster.machine(name, now() + 60) / "cert.pem").read_bytes()) for name in ("gpu-a", "gpu-b")
    )
    listed = DenyList(cluster.denied)
    assert [bool(listed.refuses(one)) for one in (stolen, renewed, later, other)] == [True, True, False, False]
