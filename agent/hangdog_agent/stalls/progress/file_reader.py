"""Keeps one process that looks at files with one user's rights, and speaks with it without ever waiting for it."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hangdog_agent.confinement import confined_children, syscalls
from hangdog_agent.confinement.credentials import Credentials
from hangdog_agent.confinement.subprocesses import ParentDeathGuard

#: A line of wishes must fit into an empty pipe, so that writing it never waits. Bytes.
MOST_ASKED = 60 << 10
#: An answer is what is read of one file, in base64.
_MOST_ANSWER = 1 << 20
#: A killed process dies at once, unless a file system that is dead holds it. Seconds.
_DEATH_S = 0.2

K = TypeVar("K")
#: Device and number of a file: names of the same file are equal in this.
Identity = tuple[int, int]
#: The longest path the kernel takes.
MOST_PATH = 4096


@dataclass(frozen=True, slots=True)
class FileQuery:
    """A file to be looked at: its content from `offset` on if it still is the file `known`, of any other only its end.

    `trainer` is its pid and start time. The file is what it has open as `descriptor`, else what `path` leads to from its
    root or working folder. At most `most` bytes are read, and the last ones where more were appended; 0 reads nothing.
    `keep`: it is to be read once more when its trainer has `ended`. `ring`: it is one of the profiler plug-in, of which
    the counts are wanted, as JSON; `everything`: of all communicators.
    """

    trainer: tuple[int, int]
    descriptor: int | None = None
    path: str = ""
    most: int = 0
    known: Identity | None = None
    offset: int = 0
    keep: bool = False
    ended: bool = False
    ring: bool = False
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file as it is now; `data` ends at `offset`, and `joins` what was read of it before.

    It was touched `age_s` seconds ago, if its file server and this machine have the same time.
    """

    identity: Identity
    touched_ns: int
    offset: int
    data: bytes = b""
    joins: bool = False
    age_s: float = 0.0


class FileReader(Generic[K]):
    """One such process, and the round of wishes it is at. Only one thread may use it."""

    def __init__(self, who: Credentials, proc: str) -> None:
        """Starts it; raises OSError."""
        self.who = who
        self.used = time.monotonic()
        self._asked: tuple[K, ...] = ()
        self._found: list[Found | None] = []
        self._read = bytearray()
        self._moved = self.used
        self._guard = ParentDeathGuard()
        order = {"uid": who.uid, "gid": who.gid, "groups": who.groups, "proc": proc}
        try:
            with syscalls.handing_on(confined_children.READER.capabilities):
                self._process = subprocess.Popen(
                    confined_children.reader("hangdog_agent.stalls.progress.file_reader_process", json.dumps(order)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(self._guard.far,),
                    env=confined_children.environment(),
                    start_new_session=True,
                )
        except OSError:
            self._guard.pull()
            raise
        self._guard.tie(self._process.pid)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    @property
    def busy(self) -> bool:
        """Whether it is at a round."""
        return bool(self._asked)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, wishes: Mapping[K, FileQuery]) -> None:
        """Begins a round of the first of these wishes, as many as fit into one line. It must not be at one."""
        assert not self._asked
        line, keys = _line(wishes)
        self.used = self._moved = time.monotonic()
        self._asked, self._found = keys, []
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: `ended` says so
            os.write(self._process.stdin.fileno(), line)

    def answer(self) -> tuple[float, dict[K, Found | None]] | None:
        """When the round ended, and what it found; None while it goes on."""
        self._take()
        if len(self._found) < len(self._asked):
            return None
        answer = dict(zip(self._asked, self._found, strict=True))
        self._asked = ()
        return self._moved, answer

    def at(self) -> tuple[K | None, dict[K, Found | None]]:
        """The file it is at, and what it found before."""
        found = dict(zip(self._asked, self._found, strict=False))
        return (self._asked[len(found)] if len(found) < len(self._asked) else None), found

    def silent_s(self) -> float:
        """For how long a round has brought nothing."""
        return time.monotonic() - self._moved if self._asked else 0.0

    def ended(self) -> str | None:
        """Its last words where it has ended by itself; None while it lives."""
        if self._process.poll() is None:
            return None
        assert self._process.stderr is not None
        with contextlib.suppress(OSError):
            stated = os.read(self._process.stderr.fileno(), 1 << 12).decode("utf-8", "replace").strip()
            return stated.rpartition("\n")[2] or "it ended without a word"
        return "it ended without a word"

    def close(self) -> "subprocess.Popen[bytes] | None":
        """Kills it; gives the process where it does not die, for a dead file system holds it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._guard.pull()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._process.wait(_DEATH_S)
        except subprocess.TimeoutExpired:
            return self._process
        return None

    def _take(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._process.stdout.fileno(), 1 << 16):
                self._read += part
                if len(self._read) > _MOST_ANSWER + len(part):
                    raise ValueError("an answer is too long")
                *lines, rest = self._read.split(b"\n")
                self._read = bytearray(rest)
                self._found += [_found(json.loads(line)) for line in lines]
                self._moved = time.monotonic() if lines else self._moved


def _line(wishes: Mapping[K, FileQuery]) -> tuple[bytes, tuple[K, ...]]:
    """As many wishes as fit into one line; a path that is longer than any can be is left out."""
    parts: list[str] = []
    keys: list[K] = []
    size = 3
    for key, wish in wishes.items():
        part = json.dumps(_asked(wish), separators=(",", ":"))
        if size + len(part) + 1 > MOST_ASKED:
            break
        size += len(part) + 1
        parts.append(part)
        keys.append(key)
    return f"[{','.join(parts)}]\n".encode(), tuple(keys)


def _asked(wish: FileQuery) -> dict[str, Any]:
    return {
        "pid": wish.trainer[0],
        "started": wish.trainer[1],
        "descriptor": wish.descriptor,
        "path": wish.path,
        "most": wish.most,
        "known": wish.known,
        "offset": wish.offset,
        "keep": wish.keep,
        "ended": wish.ended,
        "ring": wish.ring,
        "everything": wish.everything,
    }


def _found(stated: dict[str, Any] | None) -> Found | None:
    if stated is None:
        return None
    device, inode = stated["identity"]
    data = base64.b64decode(stated.get("data", ""))
    return Found((device, inode), stated["touched_ns"], stated["offset"], data, stated["joins"], stated["age_ns"] / 1e9)
