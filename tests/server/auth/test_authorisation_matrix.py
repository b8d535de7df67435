"""Every gRPC method and HTTP operation against every identity, over real sockets; what is expected comes from the one table of rules."""

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from grpc_health.v1 import health_pb2

from hangdog_proto import deny_list
from hangdog_proto import x509 as leaf
from hangdog_proto.client import certificate_folder
from hangdog_proto.deny_list import DeniedCertificate
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth import permissions, tokens
from hangdog_server.auth.permissions import AGENT, ANYBODY, GRPC, HTTP, KNOWN
from hangdog_server.auth.tokens import Role
from hangdog_server.listener import LOCAL, ListenerConfig
from hangdog_server.web.openapi import document
from hangdog_server.web.request_guard import Guard
from support.servers.browsed import Browsed, browsed
from support.servers.cast import stage
from support.servers.guarded import CLIENT, STRICT, Cluster, made, now

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

DAY = 86400.0
#: Every method that is defined, and one that is not.
METHODS = [
    f"/{service.full_name}/{method.name}"
    for definition in (pb.DESCRIPTOR, health_pb2.DESCRIPTOR)
    for service in definition.services_by_name.values()
    for method in service.methods
]
#: What gRPC says to whoever may not, and to whoever does not get so far.
REFUSED = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Identity:
    """Who asks, and what they should be able to: `role` of a person, `agent` of a machine, `known` by a certificate.

    `connects`: the handshake succeeds.
    """

    name: str
    tls: Path | None = None
    said: Metadata = ()
    role: Role | None = None
    agent: bool = False
    known: bool = False
    connects: bool = True
    cross_site: bool = False

    def may(self, rule: Role | str | None) -> bool:
        """What the table says of this identity."""
        if rule is None or not self.connects:
            return False
        if isinstance(rule, Role):
            return self.role is not None and self.role >= rule
        return {AGENT: self.agent, KNOWN: self.known or self.role is not None, ANYBODY: True}[rule]


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def proxied(role: str) -> Metadata:
    return (("x-hangdog-user", "eve"), *([("x-hangdog-role", role)] if role else []))


@dataclass(frozen=True)
class Tokens:
    """A file with a token of each kind."""

    file: Path
    of: dict[str, str]

    def shown(self, **more: object) -> Iterator[Identity]:
        """Everybody who shows a token, or none."""
        yield replace(Identity("without a token"), **more)  # type: ignore[arg-type]
        for kind, token in self.of.items():
            role = Role[kind.upper()] if kind.upper() in Role.__members__ else None
            whoever = Identity(f"with a token: {kind}", said=bearer(token), role=role)
            yield replace(whoever, **more)  # type: ignore[arg-type]
        basic = Identity("with a password", said=(("authorization", f"Basic {self.of['act']}"),))
        twice = Identity("with two tokens", said=bearer(self.of["view"]) + bearer(self.of["act"]))
        yield replace(basic, **more)  # type: ignore[arg-type]
        yield replace(twice, **more)  # type: ignore[arg-type]


@pytest.fixture
def some(tmp_path: Path) -> Tokens:
    file = tmp_path / "tokens.json"
    of = {role.word: tokens.new(file, role.word, role, now()) for role in Role}
    of["revoked"] = tokens.new(file, "revoked", Role.ACT, now())
    tokens.revoke(file, "revoked")
    of["of nobody"] = tokens.PREFIX + "x" * 43
    of["ended"] = tokens.new(file, "ended", Role.ACT, now() - 2 * DAY, days=1)
    return Tokens(file, of)


def of_certificates(cluster: Cluster, some: Tokens, folder: Path) -> Iterator[Identity]:
    """Everybody who comes to the port that asks for certificates."""
    act = bearer(some.of["act"])
    machine, client = cluster.machine("gpu-a"), cluster.client("alice")
    only = folder / "only"
    only.mkdir()
    (only / "ca.pem").write_bytes((cluster.home / "ca.pem").read_bytes())
    stranger = made(folder / "other").machine("gpu-a")
    (stranger / "ca.pem").write_bytes((cluster.home / "ca.pem").read_bytes())
    uri = x509.UniformResourceIdentifier
    unnamed = cluster.odd("gpu-a", x509.DNSName("gpu-a"), uses=CLIENT, common="client portal")
    useless = cluster.odd("gpu-a", uri("hangdog://machine/gpu-a"))
    denied = {"machine": cluster.machine("gpu-a"), "client": cluster.client("bob"), "proxy": cluster.client("gateway")}
    for each in denied.values():
        serial = leaf.read_pem((each / "cert.pem").read_bytes()).serial
        deny_list.add(cluster.denied, DeniedCertificate(serial, "", now()))
    yield Identity("nobody", only, connects=False)
    yield Identity("nobody, with a token", only, act, connects=False)
    yield Identity("another authority's machine", stranger, act, connects=False)
    yield Identity("an ended certificate", cluster.machine("gpu-a", now() - 91 * DAY), act, connects=False)
    yield Identity("a machine", machine, agent=True, known=True)
    yield Identity("a machine, with a token", machine, act, Role.ACT, agent=True, known=True)
    yield Identity("a server", cluster.home / "server", known=True)
    for one in some.shown(tls=client, known=True):
        yield replace(one, name=f"a client, {one.name}")
    yield Identity("a certificate without a URI", unnamed)
    yield Identity("a certificate without a URI, with a token", unnamed, act, Role.ACT)
    yield Identity("a certificate without a URI, called like a proxy", unnamed, proxied("act"))
    yield Identity("a certificate without a use", useless)
    yield Identity("a certificate without a use, with a token", useless, act)
    for kind, each in denied.items():
        yield Identity(f"a denied {kind}", each)
        yield Identity(f"a denied {kind}, with a token", each, act)
        yield Identity(f"a denied {kind}, as a proxy", each, proxied("act"))
    portal = cluster.client("portal")
    for role in Role:
        yield Identity(f"a proxy, role {role.word}", portal, proxied(role.word), role, known=True)
    yield Identity("a proxy, no role", portal, proxied(""), Role.VIEW, known=True)
    yield Identity("a proxy, no such role", portal, proxied("root"), known=True)
    yield Identity("a proxy, for itself", portal, known=True)
    for kind, each in (("client", client), ("machine", cluster.machine("portal"))):
        agent = kind == "machine"
        yield Identity(f"an unnamed proxy with a {kind}'s certificate", each, proxied("act"), known=True, agent=agent)


def outcome(channel: grpc.Channel, method: str, whoever: Identity) -> grpc.StatusCode:
    """Sends one request for real; OK where it was answered, even if only with an error of what was asked."""
    body = b""
    if method == "/hangdog.v1.Agents/Connect":
        name = "portal" if "proxy with a machine" in whoever.name else "gpu-a"
        body = pb.FromAgent(hello=pb.Hello(machine=name)).SerializeToString()
    call = channel.stream_stream(method, bytes, bytes)(iter([body]), metadata=whoever.said, timeout=20)
    try:
        next(iter(call), None)
        return grpc.StatusCode.OK
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        return error.code()
    finally:
        call.cancel()  # type: ignore[no-untyped-call]  # the stubs say nothing of it


def sent(address: str, identities: list[Identity]) -> Counter[str]:
    """Sends every method as every identity to one port, and compares; how many were allowed and refused."""
    found: Counter[str] = Counter()
    wrong = []
    for whoever in identities:
        options = (("grpc.use_local_subchannel_pool", 1),)
        with (
            grpc.insecure_channel(address, options)
            if whoever.tls is None
            else grpc.secure_channel(address, certificate_folder.channel_credentials(whoever.tls), options)
        ) as channel:
            for method in [*METHODS, "/hangdog.v1.Incidents/Evict", "/grpc.reflection.v1.ServerReflection/Info"]:
                code, may = outcome(channel, method, whoever), whoever.may(GRPC.get(method))
                expected = not may and (REFUSED if whoever.connects else (grpc.StatusCode.UNAVAILABLE,))
                right = code in expected if expected else code not in (*REFUSED, grpc.StatusCode.UNAVAILABLE)
                found["allowed" if may else "refused"] += 1
                if not right:
                    wrong.append(f"{whoever.name}: {method} ended with {code.name}, and {'may' if may else 'may not'}")
    assert wrong == []
    return found


def told(where: str, found: Counter[str]) -> None:
    print(f"\n{where}: {found.total()} requests, {found['allowed']} allowed, {found['refused']} refused")
    assert found["allowed"] and found["refused"]


# ---- gRPC


def test_every_method_has_a_rule_and_every_rule_a_method() -> None:
    """A method that is added must be thought of: else it is refused to everybody."""
    assert set(METHODS) == set(GRPC)


def test_the_table_lets_nobody_do_more_than_is_promised() -> None:
    """The requests are held to the table; this holds the table to docs/security.md."""
    beyond_view = {method.rpartition("/")[2]: rule for method, rule in GRPC.items() if rule is not Role.VIEW}
    assert beyond_view == {
        "Connect": AGENT, "Snapshot": Role.TRIGGER, "Run": Role.ACT, "Abort": Role.ACT, "Act": Role.ACT, "Respond": Role.ACT,
        "Check": KNOWN, "List": KNOWN, "Watch": KNOWN,
    }  # fmt: skip
    anybody = {("GET", "/login"), ("POST", "/login"), ("POST", "/logout"), ("GET", "/favicon.ico")}
    assert {operation for operation, rule in HTTP.items() if not isinstance(rule, Role)} == anybody
    assert all(rule is Role.ACT for (method, path), rule in HTTP.items() if method == "POST" and "/log" not in path)


async def test_grpc_with_certificates(tmp_path: Path, some: Tokens) -> None:
    cluster = made(tmp_path / "ca")
    identities = list(of_certificates(cluster, some, tmp_path))
    door = cluster.door(tokens=some.file, proxies=("client portal", "client gateway"))
    async with stage(tmp_path / "s.db", settings=STRICT, door=door, clock=now) as on:
        address = f"localhost:{on.address.rpartition(':')[2]}"
        told("gRPC, certificates", await asyncio.to_thread(sent, address, identities))


async def test_grpc_for_people_without_certificates(
    tmp_path: Path, some: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = made(tmp_path / "ca")
    caplog.set_level("INFO")
    identities = list(some.shown(tls=cluster.machine("gpu-a")))  # nobody asks for it: it is not shown
    identities.append(Identity("an unnamed proxy", cluster.client("portal"), proxied("act")))
    door = cluster.door(tokens=some.file, proxies=("client portal",), people="127.0.0.1:0")
    async with stage(tmp_path / "s.db", settings=STRICT, door=door, clock=now):
        (port,) = re.findall(r"listening for people at 127.0.0.1:(\d+)", caplog.text)
        told("gRPC, people", await asyncio.to_thread(sent, f"localhost:{port}", identities))


async def test_grpc_on_loopback(tmp_path: Path, some: Tokens) -> None:
    identities = [*some.shown(agent=True), Identity("an unnamed proxy", said=proxied("act"), agent=True)]
    async with stage(tmp_path / "a.db", settings=STRICT, door=ListenerConfig(tokens=some.file), clock=now) as on:
        told("gRPC, loopback with tokens", await asyncio.to_thread(sent, on.address, identities))
    anybody = [
        Identity("anybody", role=Role.ACT, agent=True),
        Identity("anybody, called somebody", said=proxied("view"), role=Role.ACT, agent=True),
        Identity("with a token of nobody", said=bearer(some.of["of nobody"]), agent=True),
    ]
    async with stage(tmp_path / "b.db", settings=STRICT, door=LOCAL, clock=now) as on:
        told("gRPC, open loopback", await asyncio.to_thread(sent, on.address, anybody))


async def test_a_method_without_a_rule_is_refused(
    tmp_path: Path, some: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = "/hangdog.v1.Incidents/List"
    act = Identity("act", said=bearer(some.of["act"]))
    async with stage(tmp_path / "s.db", settings=STRICT, door=ListenerConfig(tokens=some.file), clock=now) as on:
        with grpc.insecure_channel(on.address) as channel:
            assert await asyncio.to_thread(outcome, channel, method, act) is grpc.StatusCode.OK
            monkeypatch.delitem(permissions.GRPC, method)
            assert await asyncio.to_thread(outcome, channel, method, act) is grpc.StatusCode.PERMISSION_DENIED


# ---- HTTP


@contextmanager
def routed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """The operations of the sites that are made while the block lasts, from their routing tables."""
    found: list[tuple[str, str]] = []
    enforced = Guard.enforced

    def watched(self: Guard, routes: list[object]) -> list[object]:
        found.extend(
            (method, route.path)  # type: ignore[attr-defined]
            for route in routes
            for method in sorted(route.methods - {"HEAD"})  # type: ignore[attr-defined]
        )
        return enforced(self, routes)  # type: ignore[arg-type, return-value]

    with monkeypatch.context() as patch:
        patch.setattr(Guard, "enforced", watched)
        yield found


def http_identities(some: Tokens, cookie: str) -> Iterator[Identity]:
    yield from some.shown()
    for kind in ("view", "act", "revoked"):
        role = Role[kind.upper()] if kind != "revoked" else None
        yield Identity(f"a browser: {kind}", said=(("cookie", f"{cookie}={some.of[kind]}"),), role=role)
    for header in (("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")):
        said = (("cookie", f"{cookie}={some.of['act']}"), header)
        yield Identity(f"a browser led by another site ({header[0]})", said=said, role=Role.ACT, cross_site=True)
    yield Identity("an unnamed proxy", said=proxied("act"))


async def browse(
    site: Browsed, operations: list[tuple[str, str]], identities: list[Identity], token: str = ""
) -> Counter[str]:
    """Asks every operation as every identity, and compares; `token` is written into the form to log in."""
    found: Counter[str] = Counter()
    wrong = []
    for whoever in identities:
        for method, path in operations:
            may = whoever.may(HTTP.get((method, path))) and not (whoever.cross_site and method == "POST")
            url = re.sub(r"\{\w+(:path)?\}", "nothing", path)
            posted = {"token": token} if (method, path) == ("POST", "/login") else None
            async with site.http.stream(method, url, headers=list(whoever.said), data=posted) as answer:
                to = answer.headers.get("location", "")
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    await answer.aread()  # so that the connection is used again
                refused = answer.status_code in (401, 403) or to.startswith("/login?next=")
            found["allowed" if may else "refused"] += 1
            if refused is may or answer.status_code >= 500:
                wrong.append(f"{whoever.name}: {method} {path} gave {answer.status_code} {to}; {may=}")
    assert wrong == []
    return found


@pytest.mark.parametrize("tls", [False, True])
async def test_http_with_tokens(tmp_path: Path, some: Tokens, monkeypatch: pytest.MonkeyPatch, tls: bool) -> None:
    home = made(tmp_path / "ca").home
    cookie = "__Host-hangdog" if tls else "hangdog"
    door = ListenerConfig(tls=home / "server" if tls else None, tokens=some.file)
    trusting = ssl.create_default_context(cafile=home / "ca.pem")
    with routed(monkeypatch) as operations:
        async with browsed(tmp_path / "s.db", door=door, clock=now, verify=trusting) as site:
            found = await browse(site, operations, list(http_identities(some, cookie)), some.of["view"])
    assert set(operations) == set(HTTP), "every operation has a rule, and every rule an operation"
    told(f"HTTP{'S' * tls}, tokens", found)


def test_what_is_documented_has_a_rule() -> None:
    documented = {(method.upper(), path) for path, item in document("1")["paths"].items() for method in item}
    assert documented <= {(method, path.replace(":path", "")) for method, path in HTTP}


async def test_http_behind_a_proxy_and_open(tmp_path: Path, some: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    with routed(monkeypatch) as operations:
        door = ListenerConfig(tokens=some.file, proxies=("127.0.0.1",))
        async with browsed(tmp_path / "a.db", door=door, clock=now) as site:
            whoever = [
                *(Identity(f"a proxy, role {role.word}", said=proxied(role.word), role=role) for role in Role),
                Identity("a proxy, no role", said=proxied(""), role=Role.VIEW),
                Identity("a proxy, no such role", said=proxied("root")),
                Identity("a proxy, for itself"),
            ]
            told("HTTP, a proxy", await browse(site, operations, whoever, some.of["view"]))
    async with browsed(tmp_path / "b.db", clock=now) as site:
        whoever = [
            Identity("anybody", role=Role.ACT),
            Identity("by a name that is not ours", said=(("host", "evil.example"),)),
            Identity("with a token of nobody", said=bearer(some.of["of nobody"])),
        ]
        rest = [one for one in operations if one != ("POST", "/login")]  # there is no token to log in with
        told("HTTP, open loopback", await browse(site, rest, whoever))


async def test_an_operation_without_a_rule_is_refused(
    tmp_path: Path, some: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    for operation in (("GET", "/api/now"), ("GET", "/login")):
        monkeypatch.delitem(permissions.HTTP, operation)
    async with browsed(tmp_path / "s.db", door=ListenerConfig(tokens=some.file), clock=now) as site:
        for path in ("/api/now", "/login"):
            answer = await site.http.get(path, headers=dict(bearer(some.of["act"])))
            assert answer.status_code == 403 and "nobody may ask" in answer.text
        assert (await site.http.get("/api/machines", headers=dict(bearer(some.of["act"])))).status_code == 200


def test_a_route_that_nothing_stands_before_stops_the_server() -> None:
    from starlette.routing import Route

    with pytest.raises(AssertionError, match="nothing stands before /x"):
        Guard(None).enforced([Route("/x", lambda request: None)])  # type: ignore[arg-type]
