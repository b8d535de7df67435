"""A trainer whose ring leads to what only root, or another user, may read: no such file is opened, and nothing of it is told."""

import os
from pathlib import Path

import pytest

from attacking.stage import KINDS, UID, Attacker, Watched, attacking, needs_root, settled
from hangdog_agent.capture import profiler_layout, ring_statement
from hangdog_agent.discovery.environ_names import RING_FOLDER
from hangdog_proto.codec.collectives import Statement
from support.fakes.recorder_asked import TOOLS

pytestmark = needs_root

IDLE = """
os.chdir(given["home"])
if given["victims"]:
    os.symlink(given["victims"], "e")
ready()
wait()
"""


def named(attacker: Attacker, folder: Path, owner: int) -> Path:
    """A file in the form of the attacker's ring, of somebody."""
    layout = profiler_layout
    head = layout.HEADER.pack(layout.MAGIC, layout.VERSION, layout.SIZE, 64, 768, 512, 0, 0, 0, 0, 0)
    status = TOOLS.proc.status(attacker.member.process.pid)
    assert status is not None
    ring = folder / f"{status.pids[-1]}-{attacker.member.process.started}"
    ring.write_bytes(head.ljust(layout.SIZE, b"\0"))
    ring.chmod(0o600)
    os.chown(ring, owner, owner)
    return ring


def told(attacker: Attacker) -> Statement | None:
    return ring_statement.progress(attacker.member, TOOLS)


def test_a_ring_of_its_own_is_read(home: Path) -> None:
    """Else the rest would show nothing."""
    with attacking(IDLE, settled("user", home, {"victims": ""}), **{RING_FOLDER: str(home)}) as attacker:
        named(attacker, home, UID)
        stated = told(attacker)
        assert stated is not None and stated.data == b'{"schema":"hangdog.progress/1","progress":[]}'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["the vault itself", "a link to the vault"])
def test_what_only_root_may_read_is_never_opened(kind: str, where: str, home: Path, vault: Path) -> None:
    folder = str(vault) if where == "the vault itself" else "e"
    rights = settled(kind, home, {"victims": str(vault)})
    with attacking(IDLE, rights, **{RING_FOLDER: folder}) as attacker:
        watched = Watched(named(attacker, vault, 0))
        stated = told(attacker)
        assert stated is None or (stated.missing is not None and not stated.data)
        assert not watched.touched()
        watched.close()


def test_a_ring_of_another_user_that_all_may_read_is_none_of_its_own(home: Path) -> None:
    with attacking(IDLE, settled("user", home, {"victims": ""}), **{RING_FOLDER: str(home)}) as attacker:
        named(attacker, home, 0).chmod(0o644)
        stated = told(attacker)
        assert stated is not None and stated.missing is not None
        assert "of its user" in stated.missing.message
