"""A second user of the server's machine, over loopback and over the unix socket: may look where that is open, and no more."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.main import main
from hangdog_proto.client.incidents import Client
from hangdog_server.auth import local_user, relayed_peer, tokens
from hangdog_server.auth.local_user import Caller, LocalUsers
from hangdog_server.auth.tokens import Role
from hangdog_server.listener import LOCAL, OpenListeners
from hangdog_server.ports import unix_socket
from support.refused import refused
from support.servers import another_user
from support.servers.another_user import GROUP, MEMBER, STRANGER
from support.servers.browsed import browsed
from support.servers.cast import PATIENT, Stage, stage
from support.servers.guarded import Cluster, guarded, made, now
from support.worded import names

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parallel,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else"),
]


#: What is asked for one after another, and what a server says to it that allows all.
ALL, ALLOWED = ("look", "trigger", "act"), ["allowed", "64 no connected machine", "64 the breaker is closed"]


async def asked(uid: int, address: str, *whats: str, groups: tuple[int, ...] = ()) -> list[str]:
    return await asyncio.to_thread(lambda: another_user.ask(uid, address, *whats, groups=groups))


def begins(said: list[str], *words: str) -> bool:
    return len(said) == len(words) and all(map(str.startswith, said, words))


@asynccontextmanager
async def on_socket(folder: Path, role: str = "") -> AsyncIterator[tuple[Stage, str]]:
    """A server with a socket in a folder that everybody reaches, as pytest's are not; and what clients call it."""
    with tempfile.TemporaryDirectory(prefix="hangdog-test-") as home:
        Path(home).chmod(0o755)
        path = Path(home) / "s"
        door = replace(LOCAL, socket=path, wanted=True, groups={GROUP: role} if role else {})
        door = replace(door, tokens=folder / "tokens.json", audit=folder / "audit.jsonl")
        async with stage(folder / "s.db", door=door) as on:
            yield on, f"unix:{path}"


async def test_over_open_loopback_another_user_may_look_and_do_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on:
        allowed, *denied = await asked(STRANGER, on.address, *ALL)
        assert allowed == "allowed" and begins(denied, "77 ", "77 ")
        assert all(names(one, "view", role) for one, role in zip(denied, ("trigger", "act"), strict=True))
        assert begins(await asked(0, on.address, *ALL), *ALLOWED), "its own user may"


async def test_over_open_pages_another_user_decides_nothing(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as by:
        (refused,) = await asked(STRANGER, by.address, "page")
        assert refused.startswith("403 ") and "this takes act" in refused
        (closed,) = await asked(0, by.address, "page")
        assert names(closed, "nothing-to-decide"), "its own user may"
        assert (await by.http.get("/")).status_code == 200


async def test_over_the_socket_its_owner_may_act_and_others_nothing(tmp_path: Path) -> None:
    async with on_socket(tmp_path) as (on, way):
        assert stat.S_IMODE(Path(way.removeprefix("unix:")).stat().st_mode) == 0o600
        assert begins(await asked(STRANGER, way, "look"), "69 "), "the file itself keeps them out"
        Path(way.removeprefix("unix:")).chmod(0o666)
        *nothing, agent = await asked(STRANGER, way, *ALL, "agent")
        assert begins(nothing, *["77 "] * 3) and all(names(one, f"uid {STRANGER}", "nothing") for one in nothing)
        assert names(agent, "as root")
        assert begins(await asked(0, way, *ALL, "agent"), *ALLOWED, "allowed welcome")
        tokens.new(tmp_path / "tokens.json", "alice", Role.VIEW, 0.0)
        assert begins(await asked(0, way, "act"), ALLOWED[2]), "the kernel's word is as good as a token"
        with Client(on.address) as client, refused("no-token"):
            await asyncio.to_thread(client.machines)


@pytest.mark.parametrize(("role", "may"), [("view", 1), ("trigger", 2), ("act", 3)])
async def test_a_member_of_the_group_may_what_its_role_says(tmp_path: Path, role: str, may: int) -> None:
    async with on_socket(tmp_path, role) as (_, way):
        said = await asked(MEMBER, way, *ALL, groups=(GROUP,))
        assert begins(said, *ALLOWED[:may], *["77 "] * (3 - may)), said
        if may == 1:
            assert begins(await asked(MEMBER, way, "look"), "77 "), "without the group nobody is its member"


async def test_a_server_that_acts_believes_no_agent_of_another_user(tmp_path: Path) -> None:
    """Whoever could speak for a machine could have any machine convicted, and so taken out of use."""
    tokens.new(tmp_path / "tokens.json", "alice", Role.ACT, now())
    door = replace(LOCAL, tokens=tmp_path / "tokens.json")
    opened = OpenListeners("127.0.0.1:0", door, PATIENT, now)
    opened.close()
    async with stage(tmp_path / "s.db", opened=opened) as on:
        (refused,) = await asked(STRANGER, on.address, "agent")
        assert names(refused, "as root")
        tokens.revoke(tmp_path / "tokens.json", "alice")
        agent, act = await asked(0, on.address, "agent", "act")
        assert agent == "allowed welcome" and "asks for a token" in act, "without a token left, too"


@pytest.mark.parametrize("mode", ["approve", "auto"])
@pytest.mark.parametrize(("options", "words"), [
    ([], "any user of this machine can reach 127.0.0.1:0"),
    (["--insecure"], "with --insecure anyone"),
    (["--insecure", "--listen", "0.0.0.0:0"], "with --insecure anyone"),
])  # fmt: skip
def test_modes_that_act_refuse_an_open_door(tmp_path: Path, mode: str, options: list[str], words: str) -> None:
    (tmp_path / "acting.toml").write_text(f'mode = "{mode}"\n')
    command = ["server", "--listen", "127.0.0.1:0", "--store", str(tmp_path / "s.db")]
    refused = CliRunner().invoke(main, [*command, "--acting", str(tmp_path / "acting.toml"), *options])
    assert refused.exit_code == 64 and words in refused.stderr and "--tls" in refused.stderr
    assert not (tmp_path / "s.db").exists(), "refused before anything is made"


@pytest.mark.parametrize("how", ["tokens", "tls", "dry-run"])
async def test_and_take_one_that_is_shut(tmp_path: Path, how: str) -> None:
    mode = "dry-run" if how == "dry-run" else "auto"
    (tmp_path / "acting.toml").write_text(f'mode = "{mode}"\n')
    more: list[str] = []
    if how == "tokens":
        tokens.new(tmp_path / "tokens.json", "alice", Role.ACT, now())
    elif how == "tls":
        more = ["--tls", str(made(tmp_path / "ca").home / "server")]
    command = ("server", "--listen", "127.0.0.1:0", "--store", str(tmp_path / "s.db"))
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hangdog", *command, "--acting", str(tmp_path / "acting.toml"), *more,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    assert (await server.stdout.readline()).startswith(b"listening on ")
    with Client(f"unix:{tmp_path / 'server.sock'}") as client:  # its default place, and a person who has no token
        mode_told = (await asyncio.to_thread(client.actions)).mode
    found = CliRunner().invoke(main, ["actions", "--format", "json"], env={"HANGDOG_STORE": str(tmp_path / "s.db")})
    assert found.exit_code == 0, "commands find the socket by themselves"
    server.send_signal(signal.SIGTERM)
    await server.communicate()
    assert mode_told == mode and not (tmp_path / "server.sock").exists()


async def test_with_certificates_too_people_of_the_machine_use_the_socket(tmp_path: Path) -> None:
    cluster: Cluster = made(tmp_path / "ca")
    async with guarded(cluster, socket=tmp_path / "s"):
        with Client(f"unix:{tmp_path / 's'}") as client:
            assert await asyncio.to_thread(client.machines) == ()
        (refused,) = await asked(0, f"unix:{tmp_path / 's'}", "agent")
        assert "is no machine's" in refused


def test_who_left_before_the_kernel_is_asked_is_nobody() -> None:
    """Of a socket that is closed the kernel would say that it is root's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        ours, address = listening.accept()
        assert local_user.of_loopback(address, ours.getsockname()) == Caller(0)
        peer.close()
        assert local_user.of_loopback(address, ours.getsockname()) is None
        ours.close()
        assert local_user.of_loopback(address, listening.getsockname()) is None
        assert local_user.of_loopback(listening.getsockname(), ("127.0.0.1", 9)) is None, "nor one that listens"


def test_users_without_a_number_here_are_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a user namespace all users outside of it have one number, and a server may run under that very number."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert local_user.of_unix(ours) == Caller(0, frozenset(os.getgroups()) | {os.getgid()})
        monkeypatch.setattr(local_user, "_strangers", lambda _: frozenset({0}))
        assert local_user.of_unix(ours) is None
    assert LocalUsers({7: "view", 8: "act"}).role(Caller(1, frozenset({7, 8}))) == "act"
    assert not LocalUsers({7: "view"}).role(Caller(1, frozenset({9}))) and not LocalUsers({}).role(None)


def test_what_the_relay_tells_is_read_back_and_nothing_else_is_believed() -> None:
    told = relayed_peer.From("ipv6:[fe80::1]:65535", 1000, "trigger")
    name = relayed_peer.written(told).decode().removeprefix("\0")
    assert relayed_peer.read(f"unix-abstract:{name.replace('|', '%7C')}") == told
    assert relayed_peer.read("ipv4:10.0.0.1:5") == relayed_peer.From("ipv4:10.0.0.1:5")
    assert not relayed_peer.read("unix-abstract:somebody|1|unix:|0|act").role
    assert relayed_peer.word(("::ffff:10.0.0.1", 5)) == "ipv4:10.0.0.1:5"


def test_a_socket_replaces_a_dead_one_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "run" / "s"
    unix_socket.listening(path, False).close()  # killed: the file is left
    with unix_socket.listening(path, True) as made_:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        with pytest.raises(unix_socket.Taken):
            unix_socket.listening(path, True)
        assert made_.getsockname()
    path.unlink()
    path.write_text("of somebody")
    with pytest.raises(OSError, match="something else"):
        unix_socket.listening(path, False)


@pytest.mark.parametrize("group", ["nobody-of-that-name=act", "0=root", "act"])
def test_a_group_that_cannot_be_let_in_is_said(tmp_path: Path, group: str) -> None:
    refused = CliRunner().invoke(main, ["server", "--store", str(tmp_path / "s.db"), "--socket-group", group])
    assert refused.exit_code == 64 and group.partition("=")[0] in refused.stderr
