"""Who may ask what: every request against every role, over the true wire; tokens, proxies, and what nobody mapped."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from hangdog_models.errors import HangdogError, NotAllowed, WrongUse
from hangdog_proto.client.channel_options import open_channel
from hangdog_proto.client.communicator_client import CommunicatorClient
from hangdog_proto.client.server_address import ServerAddress
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth import tokens
from hangdog_server.auth.permissions import GRPC as NEEDED
from hangdog_server.auth.refused_requests import address
from hangdog_server.auth.tokens import Role, Tokens
from hangdog_server.listener import ListenerConfig
from support.refused import refused
from support.servers.cast import Stage, stage, trainer
from support.servers.guarded import STRICT, Cluster, beside, guarded, made, now

#: Every request of people, and the role it takes.
ASKED: dict[str, tuple[Role, Callable[[CommunicatorClient], object]]] = {
    "List": (Role.VIEW, lambda client: client.incidents()),
    "Get": (Role.VIEW, lambda client: client.incident("x")),
    "Machines": (Role.VIEW, lambda client: client.machines()),
    "Mentions": (Role.VIEW, lambda client: client.most_suspected()),
    "Report": (Role.VIEW, lambda client: client.report()),
    "Bundle": (Role.VIEW, lambda client: client.stored("x")),
    "Communicators": (Role.VIEW, lambda client: client.communicators("x")),
    "Actions": (Role.VIEW, lambda client: client.actions()),
    "Act": (Role.ACT, lambda client: client.act("close-breaker")),
    "Respond": (Role.ACT, lambda client: client.respond("x", "ack")),
    "Snapshot": (Role.TRIGGER, lambda client: next(client.snapshot())),
}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return made(tmp_path / "ca")


def asks(on: Stage, token: str, what: str, tls: Path | None = None) -> HangdogError | None:
    """Asks something; what it is refused with."""
    way = ServerAddress(on.address, tls, token)
    try:
        with CommunicatorClient(way) as client:
            ASKED[what][1](client)
    except HangdogError as error:
        return error
    return None


def test_every_request_of_every_service_has_a_role_or_is_refused() -> None:
    """A request that is added must be thought of here: else it is refused to everybody."""
    ours = {
        f"/{service.full_name}/{method.name}"
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert ours == {method for method in NEEDED if method.startswith("/hangdog.")}
    assert {f"/hangdog.v1.Incidents/{name}" for name in ASKED} == {method for method in ours if "Incidents" in method}


@pytest.mark.parametrize("role", Role)
async def test_a_role_may_what_it_says_and_no_more(tmp_path: Path, role: Role) -> None:
    token = tokens.new(tmp_path / "tokens.json", "alice", role, now())
    door = ListenerConfig(tokens=tmp_path / "tokens.json")
    async with stage(tmp_path / "s.db", door=door, clock=now) as on:
        for what, (needed, _) in ASKED.items():
            refused = await asyncio.to_thread(asks, on, token, what)
            if role >= needed:
                assert not isinstance(refused, NotAllowed), what
            else:
                assert isinstance(refused, NotAllowed) and refused.exit_code == 77
                assert str(refused) == f"alice may {role.word}, and this takes {needed.word}"


@pytest.mark.slow
@pytest.mark.parallel
@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("shown", ["", "hangdog_wrong", "ended", "revoked"])
async def test_without_a_token_that_counts_nothing_is_answered(tmp_path: Path, what: str, shown: str) -> None:
    path = tmp_path / "tokens.json"
    tokens.new(path, "somebody", Role.ACT, now())
    if shown == "ended":
        shown = tokens.new(path, "ended", Role.ACT, now() - 2 * 86400.0, days=1)
    if shown == "revoked":
        shown = tokens.new(path, "revoked", Role.ACT, now())
        tokens.revoke(path, "revoked")
    async with stage(tmp_path / "s.db", door=ListenerConfig(tokens=path), clock=now) as on:
        refused = await asyncio.to_thread(asks, on, shown, what)
        assert isinstance(refused, NotAllowed) and "HANGDOG_TOKEN" in refused.hint
        assert refused.code == ("token-not-valid" if shown else "no-token")


async def test_tokens_count_from_the_moment_they_are_made_until_they_are_revoked(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    async with stage(tmp_path / "s.db", door=ListenerConfig(tokens=path), clock=now) as on:
        assert await asyncio.to_thread(asks, on, "", "List") is None, "on loopback, as long as there is no token"
        token = tokens.new(path, "alice", Role.VIEW, now())
        assert isinstance(await asyncio.to_thread(asks, on, "", "List"), NotAllowed)
        assert await asyncio.to_thread(asks, on, token, "List") is None
        tokens.revoke(path, "alice")
        assert isinstance(await asyncio.to_thread(asks, on, token, "List"), NotAllowed)
        path.unlink()
        assert isinstance(await asyncio.to_thread(asks, on, "", "List"), NotAllowed), (
            "a file that is lost opens nothing"
        )


def entry(**wrong: object) -> str:
    """A token file with one token of which something is wrong."""
    token = {"name": "alice", "role": "view", "made": 0.0, "expires": 9.0, "sha256": "0" * 64} | wrong
    return json.dumps({"schema": "hangdog.tokens/1", "tokens": [token]})


def test_a_file_as_earlier_versions_wrote_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text(entry(name="al\u00fc", made=0))
    assert [one.name for one in tokens.read(tmp_path / "tokens.json")] == ["al\u00fc"]


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "[]",
        "{}",
        '{"schema": "hangdog.tokens/2", "tokens": []}',
        "[" * 100_000,
        "x" * (1 << 20) + "x",
        entry(name=5),
        entry(role="owner"),
        entry(made="x"),
        entry(expires=0),
        entry(sha256="ab"),
        entry(more=1),
    ],
)
def test_a_damaged_file_lets_nobody_in(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "tokens.json"
    token = tokens.new(path, "alice", Role.VIEW, 0.0)
    known = Tokens(path, lambda: 1.0)
    assert known.find(token) is not None
    path.write_text(damage)
    assert known.find(token) is None and known.look()
    with refused("wrong-schema"):
        tokens.new(path, "bob", Role.VIEW, 0.0)


def test_the_file_holds_no_token_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tokens.json"
    token = tokens.new(path, "alice", Role.ACT, 1000.0, days=1)
    assert token not in path.read_text() and token.removeprefix("hangdog_") not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(WrongUse, match="alice") as caught:
        tokens.new(path, "alice", Role.VIEW, 1000.0)
    assert caught.value.code == "already-exists"
    tokens.new(path, "alice", Role.VIEW, 1000.0 + 86400.0 + 1)
    (left,) = tokens.read(path)
    assert left.role == "view", "what has ended gives way"
    with pytest.raises(WrongUse, match="bob") as caught:
        tokens.revoke(path, "bob")
    assert caught.value.code == "no-such-token"


def test_tokens_that_are_made_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    path = tmp_path / "tokens.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: tokens.new(path, f"p{number}", Role.VIEW, 0.0), range(32)))
    assert len(tokens.read(path)) == 32


def told_by(on: Stage, tls: Path, *metadata: tuple[str, str]) -> grpc.StatusCode:
    """Asks for the machines with any metadata; how that ends."""
    with open_channel(ServerAddress(on.address, tls), ()) as channel:
        ask = channel.unary_unary("/hangdog.v1.Incidents/Machines", bytes, bytes)
        try:
            ask(b"", metadata=metadata, timeout=10)
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            return error.code()
    return grpc.StatusCode.OK


ALICE = ("x-hangdog-user", "alice@example.org")


async def test_only_the_proxy_that_is_named_says_who_somebody_is(cluster: Cluster) -> None:
    portal, other = cluster.client("portal"), cluster.client("other")
    async with guarded(cluster, proxies=("client portal",)) as on:

        async def told(tls: Path, *said: tuple[str, str]) -> grpc.StatusCode:
            return await asyncio.to_thread(told_by, on, tls, *said)

        ok, no = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED
        assert await told(portal, ALICE) is ok
        assert await told(portal, ALICE, ("x-hangdog-role", "trigger")) is ok
        assert await told(portal) is no
        assert await told(other, ALICE) is no
        assert await told(portal, ALICE, ("x-hangdog-role", "root")) is no
        assert await told(portal, ("x-hangdog-user", "x" * 300)) is no
        assert await told(portal, ALICE, ("x-hangdog-user", "bob")) is no, "which of them?"
        assert await told(other, ("authorization", "Basic YTpi")) is no


async def test_a_proxy_may_be_named_by_its_address(cluster: Cluster) -> None:
    async with guarded(cluster, proxies=("127.0.0.1",)) as on:
        assert await asyncio.to_thread(told_by, on, cluster.client("any"), ALICE) is grpc.StatusCode.OK
    async with guarded(replace(made(cluster.home / "b")), proxies=("10.0.0.1",)) as on:
        assert await asyncio.to_thread(told_by, on, Path(on.reach.tls), ALICE) is not grpc.StatusCode.OK  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.5:33412", "10.0.0.5"),
        ("ipv6:%5B::1%5D:40000", "::1"),
        ("ipv6:[fd00::7]:40000", "fd00::7"),
        ("unix:", "unix:"),
        ("unix:10.0.0.5:1", "unix:10.0.0.5:1"),
    ],
)
def test_the_address_of_a_peer(peer: str, host: str) -> None:
    assert address(peer) == host


async def test_people_without_a_certificate_have_a_port_of_their_own(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    only = cluster.home / "only"
    only.mkdir()
    (only / "ca.pem").write_bytes((cluster.home / "ca.pem").read_bytes())
    async with guarded(cluster, people="127.0.0.1:0") as on:
        (said,) = [record.getMessage() for record in caplog.records if "listening for people at" in record.getMessage()]
        there = replace(on, address=said.rpartition(" ")[2])
        token = on.reach.token if on.reach else ""
        assert await asyncio.to_thread(asks, there, token, "Machines", only) is None
        assert isinstance(await asyncio.to_thread(asks, there, "", "Machines", only), NotAllowed)
        async with there.agent("gpu-a", cluster.machine("gpu-a")) as agent:
            with suppress(grpc.aio.AioRpcError):  # it may be turned away before it has said who it is
                await agent.say(hello=pb.Hello(machine="gpu-a"))
            status, _ = await agent.end()
            assert (status, await agent.error()) == (grpc.StatusCode.PERMISSION_DENIED, "no-machine-certificate")


async def test_nobody_asks_for_more_snapshots_than_the_settings_say(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", settings=replace(STRICT, snapshots_per_min=2)) as on:
        refusals = [await asyncio.to_thread(asks, on, "", "Snapshot") for _ in range(3)]
        assert [one and one.code for one in refusals] == ["no-such-job", "no-such-job", "rate-limited"]
        assert " 2 snapshots a minute" in str(refusals[2])


async def test_what_somebody_had_done_is_recorded_with_who_and_what_came_of_it(cluster: Cluster) -> None:
    async with guarded(cluster) as on, beside(on, tls=cluster.machine("good")) as served:
        await served()
        view = tokens.new(cluster.home / "tokens.json", "bob", Role.TRIGGER, now())
        with pytest.raises(WrongUse) as caught:
            await asyncio.to_thread(_snapshot, replace(_reach(on), token=view), "no such job\x1b")
        assert caught.value.code == "no-such-job"
    lines = [json.loads(line) for line in (cluster.home / "audit.jsonl").read_text().splitlines()]
    assert [(line["who"], line["role"], line["by"], line["what"], line["job"]) for line in lines] == [
        *[("root", "act", "token", "snapshot", "good")] * 2,
        *[("bob", "trigger", "token", "snapshot", "no such job\\x1b")] * 2,
    ]
    first, last, _, refused = lines
    assert (first["outcome"], first["incident"]) == ("asked", "") and first["peer"].startswith("ipv4:127.0.0.1:")
    assert len(last["incident"]) == 12 and last["outcome"] == "undetermined"
    assert refused["outcome"] == f"refused: {caught.value}".replace("\x1b", "\\x1b")
    assert (cluster.home / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def _reach(on: Stage) -> ServerAddress:
    assert on.reach is not None
    return on.reach


def _snapshot(way: ServerAddress, job: str) -> Any:
    with CommunicatorClient(way) as client:
        return list(client.snapshot(job))


async def test_whoever_hangs_up_is_recorded_too(cluster: Cluster) -> None:
    async with guarded(cluster) as on, on.agent("a", cluster.machine("a")) as agent:
        await agent.hello(llama=[0])
        await on.knows("a")
        with CommunicatorClient(_reach(on)) as client:
            steps = client.snapshot()
            await asyncio.to_thread(next, steps)
            steps.close()
        order = await agent.order()
        async with asyncio.timeout(30):
            while len(lines := (cluster.home / "audit.jsonl").read_text().splitlines()) < 2:
                await asyncio.sleep(0.01)
        assert json.loads(lines[-1])["outcome"].startswith("left ")
        await agent.answer(order, trainer(0))
