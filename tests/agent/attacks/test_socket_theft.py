"""A trainer whose worker server's socket is somebody else's: no server that the trainer may not reach is ever connected to."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from attacking.stage import (
    BRIEF,
    KINDS,
    MANY,
    OTHER,
    Attacker,
    Rights,
    attacking,
    captured,
    needs_root,
    settled,
    started,
    tries_until,
)
from support.fakes.dumper import recorded

pytestmark = [needs_root, pytest.mark.parallel]

RECORD = recorded(7, 6)
PATIENCE = replace(BRIEF, socket_s=0.5)
SAID = "TORCH_WORKER_SERVER_SOCKET"
WAIT = """
os.chdir(given["home"])
if given["victims"]:
    os.symlink(given["victims"], "s")
ready()
wait()
"""
#: A worker server of its own, in a folder that changes places with a link to the victim's once it was asked for the first time.
RACE = """
os.chdir(given["home"])
os.mkdir("d")
os.symlink(given["victims"], "e")
fill()
server = served("d/s")
ready()
def answer():
    try:
        line = server.accept()[0]
        line.recv(4096)
        record = bytes.fromhex(given["record"])
        head = "HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(record)
        line.sendall(head.encode() + record)
        line.close()
    except OSError:
        pass
answer()
flipping("d", "e")
while True:
    answer()
"""
#: Serves a socket that everybody may connect to, and tells of each connection, and of each in which anything was said.
BYSTANDER = """
server = served(given["path"])
os.chmod(given["path"], 0o777)
ready()
while True:
    line = server.accept()[0]
    line.settimeout(2.0)
    try:
        os.write(1, b"r" if line.recv(4096) else b"c")
    except OSError:
        os.write(1, b"c")
    line.close()
"""


@dataclass(slots=True)
class Victim:
    """A server of root's; everybody who connects to it is counted."""

    path: Path
    connections: list[bytes] = field(default_factory=list)


@pytest.fixture
def victim(vault: Path) -> Iterator[Victim]:
    one = Victim(vault / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(one.path))
        server.listen(64)

        def serve() -> None:
            while True:
                try:
                    line = server.accept()[0]
                except OSError:
                    return
                with line:
                    one.connections.append(b"")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield one
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def naming(path: str, home: Path, kind: str = "user", victims: str = "") -> Iterator[Attacker]:
    """A trainer that names this path as its worker server's; `victims` is where its link `s` leads."""
    rights = settled(kind, home, {"victims": victims})
    with attacking(WAIT, rights, **{SAID: path.format(home=rights.given["home"], pid=os.getpid())}) as attacker:
        yield attacker


@pytest.mark.parametrize("through", ["", "/proc/self/root", "/proc/{pid}/root", "/proc/1/cwd/../../../.."])
def test_a_path_into_a_folder_of_root_s(through: str, home: Path, victim: Victim) -> None:
    with naming(f"{through}{victim.path}", home) as attacker:
        told = captured(attacker, PATIENCE)
    assert told.missing is not None
    assert not victim.connections


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_to_a_socket_of_root_s(kind: str, home: Path, victim: Victim) -> None:
    with naming("{home}/s", home, kind, victims=os.fspath(victim.path)) as attacker:
        captured(attacker, PATIENCE)
    assert not victim.connections


def test_a_socket_whose_folder_everybody_may_enter(home: Path, victim: Victim) -> None:
    """It belongs to root and nobody else may write to it: the kernel refuses all others the connection."""
    victim.path.parent.chmod(0o711)
    victim.path.chmod(0o600)
    with naming(os.fspath(victim.path), home) as attacker:
        captured(attacker, PATIENCE)
    assert not victim.connections


def test_a_server_of_another_user_is_asked_nothing(home: Path) -> None:
    """Everybody may connect to it, the trainer too; but what it says is not the trainer's, and it gets no request."""
    path = home / "s"
    home.chmod(0o777)
    with (
        started(BYSTANDER, Rights(uid=OTHER, given={"path": os.fspath(path)})) as bystander,
        naming(os.fspath(path), home) as attacker,
    ):
        told = captured(attacker, PATIENCE)
        assert told.missing is not None
        bystander.terminate()
        assert bystander.stdout is not None
        assert b"r" not in bystander.stdout.read()


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_worker_server_is_asked(kind: str, home: Path, victim: Victim) -> None:
    """What the other tests rest upon: the way is open to those who take it honestly."""
    with racing(kind, home, victim) as attacker:
        assert captured(attacker, replace(BRIEF, socket_s=5.0)).data == RECORD


@contextmanager
def racing(kind: str, home: Path, victim: Victim) -> Iterator[Attacker]:
    rights = settled(kind, home, {"victims": os.fspath(victim.path.parent), "record": RECORD.hex()})
    with attacking(RACE, rights, **{SAID: f"{rights.given['home']}/d/s"}) as attacker:
        yield attacker


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_and_a_link_change_places_again_and_again(kind: str, home: Path, victim: Victim) -> None:
    with racing(kind, home, victim) as attacker:
        assert captured(attacker, replace(BRIEF, socket_s=5.0)).data == RECORD
        number = tries_until(lambda: bool(victim.connections), attacker, MANY)
    assert number is None, f"root's server was connected to at capture {number}"
