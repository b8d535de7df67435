"""Lets a hostile trainer loose on the agent's own captures, and keeps what is root's where the trainer cannot reach it."""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_agent.capture.flight_recorder.recorder import RecorderTimeouts, record
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_proto.codec.collectives import Statement
from support.fakes.dumper import own_job
from support.fakes.recorder_asked import TOOLS, trainer

#: Nobody's account on any machine.
UID = 40001
#: Another one.
OTHER = 40002
#: For attackers that win while they are asked, or never: a dump is not waited for. Seconds.
BRIEF = RecorderTimeouts(socket_s=0.2, dump_s=0.03, start_s=8.0)
#: An attacker that was written to says so at once. Seconds.
ANSWER_S = 10.0
IN_ACCESS, IN_MODIFY, IN_OPEN = 0x01, 0x02, 0x20
ATTACKER = Path(__file__).with_name("attacker.py")

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: the agent is root, and the attacker another user"
)


@dataclass(frozen=True, slots=True)
class Rights:
    """As whom an attacker runs: `container` is a folder on which a file system of its own is mounted as its whole tree."""

    uid: int = UID
    container: str = ""
    user_namespace: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)


#: As whom it runs. A container's root has no capability, and a file system of its own; that of a user namespace all within it.
KINDS = {
    "user": Rights(),
    "root of a container": Rights(uid=0, container="as asked"),
    "root of a user namespace": Rights(user_namespace=True),
}
#: Tries of a race, over all kinds of attackers: `make attacks` takes a thousand.
TRIES = int(os.environ.get("HANGDOG_TRIES", "100"))
MANY = TRIES // len(KINDS) + 1


def settled(kind: str, home: Path, given: Mapping[str, Any]) -> Rights:
    """Rights of that kind; `given["home"]` is where the attacker finds its own folder."""
    rights = KINDS[kind]
    inside = "/work" if rights.container else os.fspath(home)
    container = os.fspath(home) if rights.container else ""
    return replace(rights, container=container, given={"home": inside} | dict(given))


@dataclass(frozen=True, slots=True)
class Group:
    """A control group of root's with one process in it."""

    folder: Path
    process: "subprocess.Popen[bytes]"


@dataclass(slots=True)
class Attacker:
    """A hostile trainer that is running."""

    process: "subprocess.Popen[bytes]"
    member: RankProcesses
    #: Its own folder, as it calls that itself.
    home: str = ""

    def was_poked(self, within_s: float = ANSWER_S) -> None:
        """Returns once its own FIFO was written to; fails when it is not."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], within_s)[0], "its FIFO is not written to"
        os.read(self.process.stdout.fileno(), 1 << 16)


@contextlib.contextmanager
def folder(uid: int = UID) -> Iterator[Path]:
    """A folder of that user's, to which every user finds the way."""
    with tempfile.TemporaryDirectory(prefix="attacker-") as made:
        os.chown(made, uid, uid)
        Path(made).chmod(0o711)
        yield Path(made)


@contextlib.contextmanager
def attacking(body: str, rights: Rights, **environ: str) -> Iterator[Attacker]:
    """A hostile trainer of rank 0 in a job of its own, once it is ready; all its processes are killed in the end."""
    says = own_job() | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"} | environ
    with started(body, rights, says) as process:
        yield Attacker(process, trainer(process), rights.given.get("home", ""))


@contextlib.contextmanager
def started(body: str, rights: Rights, environ: Mapping[str, str] | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of that user, once it is ready; it and all that it has started are killed in the end."""
    call = [sys.executable, "-I", os.fspath(ATTACKER), json.dumps(asdict(rights)), body]
    process = subprocess.Popen(
        call,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,  # a file would be a log, which is read
        env=os.environ | (environ or {}),
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None and process.stderr is not None
            if process.stdout.readline() != b"ready\n":
                pytest.fail(process.stderr.read().decode())
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def captured(attacker: Attacker, patience: RecorderTimeouts = BRIEF) -> Statement:
    """One capture of its flight record, as an order of the server's ends in."""
    return record(attacker.member, TOOLS, patience)


def tries_until(
    won: Callable[[], bool], attacker: Attacker, most: int, patience: RecorderTimeouts = BRIEF
) -> int | None:
    """Captures again and again; answers at which capture the attacker had won, or None when it never had."""
    for number in range(1, most + 1):
        captured(attacker, patience)
        if won():
            return number
    return None


class Watched:
    """A file that tells whether anybody opened, read or wrote it, whoever that was: by inotify(7)."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if libc.inotify_add_watch(self._fd, os.fsencode(path), IN_ACCESS | IN_MODIFY | IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {path}")

    def touched(self) -> bool:
        """Whether that has happened since the last time this was asked."""
        try:
            return bool(os.read(self._fd, 1 << 16))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._fd)
