"""Whose rights an opening takes: of the process that was found and of nobody else, whatever became of it meanwhile."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from attacking.setuid import become_setuid, setuid
from attacking.stage import BRIEF, OTHER, Rights, attacking, captured, folder, needs_root, settled, started
from hangdog_agent.capture.flight_recorder.recorder import record
from hangdog_agent.procfs import Proc, Stat
from live.stalled import Stalled
from support.fakes.dumper import pickled
from support.fakes.recorder_asked import TOOLS, by_pid

pytestmark = needs_root

SECRET = pickled(987654321, 123456789)
PATIENCE = replace(BRIEF, socket_s=0.5, dump_s=0.8)
NEXT_PID = Path("/proc/sys/kernel/ns_last_pid")
#: Answers each poke by having something else where its dump should be. With `program` that is done by a child of the trainer,
#: which becomes another program itself once it is told to; the pipe stays open in both.
THEFT = """
os.chdir(given["home"])
door = opened("pipe-0.pipe")
os.mkdir("d")
os.symlink(given["victims"], "e")
dumpable(given.get("dumpable", True))
program = given.get("program")
if program and os.fork():
    ready()
    os.read(0, 1)
    os.set_inheritable(door, True)
    os.execv(program, ["python", "3600"])
if program:
    dies_with_parent()
    os.dup2(os.pipe()[0], 0)
else:
    ready()
while True:
    wait_for(door)
    os.rename("d", "d-before")
    os.rename("e", "d")
"""
LINK = """
os.symlink(given["victims"], given["home"] + "/s")
ready()
wait()
"""
#: A server that nobody but its own user may connect to; it tells of each connection.
SERVER = """
server = served(given["path"])
os.chmod(given["path"], 0o600)
ready()
while True:
    server.accept()[0].close()
    os.write(1, b"c")
"""


@pytest.fixture
def secret(vault: Path) -> Path:
    place = vault / "dump-0"
    place.write_bytes(SECRET)
    place.chmod(0o600)
    return vault


def doors(home: Path) -> dict[str, str]:
    return {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{home}/pipe-",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{home}/d/dump-",
    }


@pytest.mark.parametrize("wholly", [False, True])
@pytest.mark.parametrize("found", ["before", "afterwards"])
def test_a_trainer_that_became_a_setuid_program_is_not_asked_as_root(
    found: str, wholly: bool, home: Path, secret: Path, tmp_path: Path
) -> None:
    """It runs as root and is the trainer's to start, with any environment and name: sudo, which waits for a password.

    /proc says that its effective user is root, and, where it has become so wholly, nothing of any other.
    """
    program = setuid(home, tmp_path, wholly=wholly)
    rights = settled("user", home, {"victims": os.fspath(secret), "program": os.fspath(program)})
    with attacking(THEFT, rights, **doors(home)) as attacker:
        become_setuid(attacker, wholly=wholly)
        if found == "afterwards":
            attacker.member = by_pid(attacker.process.pid)  # its first argument says that it is a Python
        assert captured(attacker, PATIENCE).data != SECRET


def test_an_undumpable_trainer_gets_no_more_than_others(home: Path, secret: Path) -> None:
    """Its files in /proc belong to root: whoever takes the owner's rights for the trainer's takes root's."""
    rights = settled("user", home, {"victims": os.fspath(secret), "dumpable": False})
    with attacking(THEFT, rights, **doors(home)) as attacker:
        assert Path(f"/proc/{attacker.process.pid}/fd").stat().st_uid == 0
        assert captured(attacker, PATIENCE).data != SECRET


def test_a_process_that_got_the_pid_is_not_asked_in_its_place(home: Path) -> None:
    """The pid is looked at before the trainer ends, and used afterwards, when it is another user's who may reach more."""
    if not os.access(NEXT_PID, os.W_OK):
        pytest.skip("pids cannot be chosen here: CONFIG_CHECKPOINT_RESTORE is not set")
    with folder(OTHER) as others, contextlib.ExitStack() as stack:
        path = others / "s"
        rights = settled("user", home, {"victims": os.fspath(path)})
        with attacking(LINK, rights, TORCH_WORKER_SERVER_SOCKET=f"{home}/s") as attacker:
            member = attacker.member
            seen = TOOLS.proc.stat(member.process.pid)
        server = stack.enter_context(
            successor(member.process.pid, SERVER, Rights(uid=OTHER, given={"path": os.fspath(path)}))
        )
        assert record(member, TOOLS, PATIENCE).missing is not None
        told = record(member, replace(TOOLS, proc=OnceStale(seen)), PATIENCE)
        assert told.missing is not None
        server.terminate()
        assert server.stdout is not None
        assert server.stdout.read() == b"", "the other user's server was connected to"


@pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs FUSE")
def test_a_dump_on_a_file_system_that_hangs_takes_bounded_time(home: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "dump-0").write_bytes(SECRET)
    with Stalled(source) as stalled:
        rights = settled("user", home, {"victims": os.fspath(stalled.folder)})
        with attacking(THEFT, rights, **doors(home)) as attacker:
            brief = replace(PATIENCE, socket_s=0.1, start_s=0.3)
            began = time.monotonic()
            told = captured(attacker, brief)
            assert time.monotonic() - began < brief.whole_s + 5.0
    assert told.missing is not None


class OnceStale(Proc):
    """Answers as things were a moment ago, the first time it is asked."""

    def __init__(self, seen: Stat | None) -> None:
        super().__init__()
        self._seen = seen

    def stat(self, pid: int, tid: int | None = None) -> Stat | None:
        seen, self._seen = self._seen, None
        return seen or super().stat(pid, tid)


@contextlib.contextmanager
def successor(pid: int, body: str, rights: Rights) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has got this pid, which is free; where others on this machine are faster, it is tried again."""
    for _ in range(50):
        NEXT_PID.write_text(str(pid - 1))
        with started(body, rights) as process:
            if process.pid == pid:
                yield process
                return
        Path(rights.given["path"]).unlink(missing_ok=True)
    pytest.skip(f"pid {pid} is not to be had")
