"""A trainer that exchanges a folder for a link while its flight recorder is asked for: root writes to no file but the trainer's."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attacking.stage import KINDS, MANY, Group, attacking, captured, needs_root, settled, tries_until
from attacking.whole import UNIT

pytestmark = [needs_root, pytest.mark.slow, pytest.mark.parallel]

#: Where the victim has another name, the pipe's is a link to it: so what stands there after the exchange may be anything.
RACE = """
os.chdir(given["home"])
os.mkdir("d")
if given["name"] != "0.pipe":
    os.symlink(given["name"], "d/0.pipe")
if given.get("wide", True):
    fill()
door = opened("d/" + given["name"])
os.symlink(given["victims"], "e")
ready()
if given["name"] == "0.pipe":
    wait_for(door)
flipping("d", "e")
while True:
    wait_for(door)
"""
#: Captures the trainer with this pid, so many times.
CAPTURES = """
import sys
from hangdog_agent.capture.flight_recorder.recorder import record
from attacking.stage import BRIEF
from support.fakes.recorder_asked import TOOLS, by_pid
member = by_pid(int(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    record(member, TOOLS, BRIEF)
"""
#: Tries where few must do: one in five is won against an opener that trusts paths.
FEW = 8

#: Tries of each kind when the window is so wide that one in five is won.
WIDENED = 40


def raced(kind: str, home: Path, victim: Path, won: Callable[[], bool], most: int) -> None:
    """Fails when the attacker gets root to write to the victim; the first capture shows that pipes are written to at all."""
    rights = settled(kind, home, {"name": victim.name, "victims": os.fspath(victim.parent)})
    with attacking(RACE, rights, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{rights.given['home']}/d/") as attacker:
        captured(attacker)
        if victim.name == "0.pipe":  # honestly asked for: it is written to
            attacker.was_poked()
        number = tries_until(won, attacker, most)
    assert number is None, f"root wrote to {victim.name} at capture {number}"


def of_root(vault: Path) -> tuple[Path, Callable[[], bool]]:
    secret = vault / "0.pipe"
    secret.write_text("root's own\n")
    secret.chmod(0o600)
    return secret, lambda: secret.read_text() != "root's own\n"


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_of_root_is_written_to(kind: str, home: Path, vault: Path) -> None:
    raced(kind, home, *of_root(vault), FEW)


@pytest.mark.parametrize("kind", KINDS)
def test_no_control_group_is_killed(kind: str, home: Path, group: Group) -> None:
    raced(kind, home, group.folder / "cgroup.kill", lambda: group.process.poll() is not None, FEW)


@pytest.mark.skipif(not all(map(shutil.which, ("setpriv", "unshare"))), reason="needs setpriv and unshare: util-linux")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nor_by_an_agent_that_may_do_no_more_than_its_unit_leaves_it(home: Path, group: Group) -> None:
    """Three capabilities, no new privileges, /sys read-only: the way leads through the attacker's own mounts."""
    mount = next(parent for parent in group.folder.parents if parent.is_mount())
    confined = f'mount -o remount,bind,ro "{mount}" && exec "$@"'
    victim = group.folder / "cgroup.kill"
    leads = os.path.relpath(victim.parent, home)  # an absolute link would lead through the agent's own mounts
    rights = settled("user", home, {"name": victim.name, "victims": leads})
    with attacking(RACE, rights, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{home}/d/") as attacker:
        call = ["unshare", "--mount", "sh", "-c", confined, "sh", *UNIT, sys.executable, "-c", CAPTURES]
        paths = os.pathsep.join(path for path in sys.path if path)
        subprocess.run(
            [*call, str(attacker.process.pid), "100"], check=True, env=os.environ | {"PYTHONPATH": paths}, timeout=200
        )
        assert group.process.poll() is None, "the control group was killed"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_pipe_of_root_is_written_to_however_often_it_is_tried(kind: str, home: Path, vault: Path) -> None:
    """A pipe passes every look at what kind of file it is."""
    victim = vault / "0.pipe"
    os.mkfifo(victim, 0o600)
    reader = os.open(victim, os.O_RDWR | os.O_NONBLOCK)

    def won() -> bool:
        try:
            return bool(os.read(reader, 100))
        except BlockingIOError:
            return False

    try:
        raced(kind, home, victim, won, MANY)
    finally:
        os.close(reader)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt-get install strace")
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_nor_when_each_look_at_a_name_takes_a_millisecond(
    kind: str, home: Path, vault: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of microseconds are made wide enough to be met: whoever asks is held up after each call that takes a path."""
    victim, won = of_root(vault)
    slowly = tmp_path / "python"
    calls = "open,openat,openat2,lstat,stat,newfstatat,statx,fstat"
    delays = f"strace -f --seccomp-bpf -qq -o /dev/null -e trace={calls} -e inject={calls}:delay_exit=1000"
    slowly.write_text(f'#!/bin/sh\nexec {delays} "{sys.executable}" "$@"\n')
    slowly.chmod(0o755)
    given = {"name": victim.name, "victims": os.fspath(victim.parent), "wide": False}
    rights = settled(kind, home, given)
    with attacking(RACE, rights, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{rights.given['home']}/d/") as attacker:
        monkeypatch.setattr(sys, "executable", os.fspath(slowly))
        captured(attacker)
        attacker.was_poked()
        number = tries_until(won, attacker, WIDENED)
    assert number is None, f"root wrote to {victim.name} at capture {number}"
