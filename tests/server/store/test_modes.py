"""Nobody but the server's user reads or writes what it keeps, whatever the umask it was started with."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_server.auth.audit_log import AuditEntry, append, line
from hangdog_server.auth.tokens import Role, Tokens, new
from hangdog_server.store.store import Store

pytestmark = pytest.mark.parallel  # its slow tests measure no time


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The mode of everything in a folder, and of the folder itself as `.`."""
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o7777 for path in (folder, *folder.rglob("*"))}


def private(found: dict[str, int]) -> bool:
    return not any(mode & 0o077 for mode in found.values())


async def test_a_new_store_and_all_beside_it_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "hangdog"
    store = Store(folder / "s.db")
    await store.latest("", 1)
    append(folder / "audit.jsonl", line(AuditEntry("x", "x", "x", "x", "x", "x", "x"), 0.0))
    new(folder / "tokens.json", "alice", Role.VIEW, 0.0)
    found = modes(tmp_path / "state")
    assert {"hangdog/s.db", "hangdog/s.db-wal", "hangdog/s.db-shm", "hangdog/s.db.lock"} <= found.keys()
    assert {"hangdog/audit.jsonl", "hangdog/tokens.json", "hangdog/tokens.json.lock"} <= found.keys()
    assert private(found), found
    store.close()


@pytest.mark.parametrize("first", ["audit", "tokens"])
def test_whichever_comes_first_makes_the_folder(tmp_path: Path, first: str) -> None:
    folder = tmp_path / "state" / "hangdog"
    if first == "audit":
        append(folder / "audit.jsonl", line(AuditEntry("x", "x", "x", "x", "x", "x", "x"), 0.0))
    else:
        new(folder / "tokens.json", "alice", Role.VIEW, 0.0)
    assert private(modes(tmp_path / "state"))


def test_a_store_of_before_is_narrowed_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "state"
    Store(folder / "s.db").close()
    (folder / "audit.jsonl").touch()
    (folder / "tokens.json").touch()
    for path in (folder, *folder.iterdir()):
        path.chmod(0o777 if path.is_dir() else 0o666)
    store = Store(folder / "s.db")
    assert private(modes(folder)), modes(folder)
    assert caplog.text.count("owner alone") >= 5
    store.close()


def test_tokens_that_somebody_copied_there_are_narrowed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    shown = new(path, "alice", Role.VIEW, 0.0)
    path.chmod(0o644)
    assert Tokens(path, lambda: 1.0).find(shown) is not None
    assert path.stat().st_mode & 0o7777 == 0o600


@pytest.mark.slow
def test_a_server_started_with_an_open_umask_keeps_all_to_itself(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    hangdog = [sys.executable, "-m", "hangdog"]
    subprocess.run(
        [*hangdog, "token", "new", "--name", "a", "--role", "view", "--tokens", str(folder / "tokens.json")], check=True
    )
    command = [*hangdog, "server", "--listen", "127.0.0.1:0", "--store", str(folder / "s.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None and server.stdout.readline().startswith(b"listening on")
            assert private(modes(folder)), modes(folder)
        finally:
            server.send_signal(signal.SIGTERM)
