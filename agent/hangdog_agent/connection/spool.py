"""Keeps what was seen while no server was there: a bounded folder of files that outlives kill -9, restarts and reboots.

When it is full the oldest stay: the first looks at a standstill decide, later ones repeat it. Each file is written under
another name, flushed to the disk and renamed, and carries its digest, so that what is there under its name is whole.
"""

import contextlib
import errno
import hashlib
import logging
import math
import os
import re
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from google.protobuf.message import DecodeError

from hangdog_agent.connection.settings import SpoolSettings
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.private_files import make_folder, restrict_folder

log = logging.getLogger(__name__)

#: A file's name sorts by its number; the rest makes it another's id than that of any file before the folder was emptied.
_NAME = re.compile(r"(\d{8})-[0-9a-f]{16}\.look")
_MOST_NUMBER = 99_999_999
#: Written and not yet renamed when the agent was killed.
_UNFINISHED = re.compile(r"\d{8}-[0-9a-f]{16}\.look\.new")
#: First word of a file: what it is, and in which form.
_FORM = "hangdog-look/1"
#: Bytes of the line before the message: form, digest, boot id and a number.
_MOST_HEAD = 256
#: Errors that say nothing of the file itself: too many files are open, no memory, a disk or a server that fails for a while.
_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EAGAIN, errno.ESTALE, errno.EINTR})
#: Names read of the folder; its bounds are far below.
_MOST_NAMES = 10_000
#: An age is believed up to a year: beyond that a clock was wrong. Seconds.
_OLDEST_S = 366 * 86400.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """`unix` gives Unix seconds, which may be set; `since_boot` seconds since the machine's start named `boot`."""

    unix: Callable[[], float]
    since_boot: Callable[[], float]
    boot: str


class Spool:
    """Messages to a server that is not there. Every method may wait for the disk; only one thread may be in here."""

    def __init__(self, folder: Path | None, settings: SpoolSettings, clocks: Clocks) -> None:
        """Takes up what is in `folder`; without one, or where it cannot be written, the memory has to do."""
        self._folder = folder
        self._settings = settings
        self._clocks = clocks
        self._sizes: dict[str, int] = {}
        self._memory: dict[str, bytes] = {}
        self._reported: set[str] = set()
        self._number = 0
        self.refused = 0
        if folder is not None:
            restrict_folder(folder, ("*",))
            self._open(folder)

    def waiting(self) -> tuple[str, ...]:
        """The ids of what is kept, oldest first."""
        return tuple(self._sizes)

    def put(self, message: pb.Spooled, stood_s: float) -> bool:
        """Keeps a message about what began `stood_s` seconds ago, naming it; False when there is no room."""
        self._number = min(self._number + 1, _MOST_NUMBER)
        name = f"{self._number:08d}-{secrets.token_hex(8)}.look"
        message.id = name.removesuffix(".look")
        message.began_s = self._clocks.unix() - stood_s
        message.stood_s = stood_s
        content = self._packed(message, self._clocks.since_boot() - stood_s)
        full = sum(self._sizes.values()) + len(content) > self._settings.spool_bytes
        if full or len(self._sizes) >= self._settings.spool_looks:
            self.refused += 1
            self._say("full", f"the spool is full: {len(self._sizes)} looks are kept, later ones are not")
            return False
        if self._folder is None:
            self._say("none", "looks are kept in memory until a server has them: there is no folder (see --state)")
        if self._folder is None or not self._write(self._folder, name, content):
            self._memory[message.id] = content
        self._sizes[message.id] = len(content)
        return True

    def read(self, name: str) -> pb.Spooled | None:
        """A message with its age; None when it cannot be read: what never can be is given up, the rest stays for later."""
        try:
            content = self._memory.get(name) or self._content(name)
            return self._unpacked(name, content)
        except (OSError, ValueError, DecodeError) as error:
            if isinstance(error, OSError) and error.errno in _PASSING:
                log.warning("spooled look %s cannot be read now: %s", name, error)
                return None
            log.warning("spooled look %s is dropped: %s", name, error)
            self.drop(name)
            return None

    def drop(self, name: str) -> None:
        """Forgets a message that a server has."""
        self._memory.pop(name, None)
        if self._sizes.pop(name, None) is not None and self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / f"{name}.look").unlink(missing_ok=True)
        if not self._sizes:
            self._reported.discard("full")

    def _open(self, folder: Path) -> None:
        try:
            found = sorted(entry.name for entry in islice(os.scandir(folder), _MOST_NAMES))
        except FileNotFoundError:
            return
        except OSError as error:
            self._say("disk", f"the spool {folder} cannot be read: {error}")
            return
        for name in found:
            if _UNFINISHED.fullmatch(name):
                with contextlib.suppress(OSError):
                    (folder / name).unlink()
            elif match := _NAME.fullmatch(name):
                self._number = max(self._number, int(match[1]))
                with contextlib.suppress(OSError):
                    self._sizes[name.removesuffix(".look")] = (folder / name).lstat().st_size
            else:
                self._say("foreign", f"{folder / name} is none of the agent's files: left alone")
        if self._sizes:
            log.info("%d looks from an earlier run wait for a server", len(self._sizes))

    def _write(self, folder: Path, name: str, content: bytes) -> bool:
        new = folder / f"{name}.new"
        try:
            make_folder(folder)
            try:
                _flushed(new, content)
                new.rename(folder / name)
                _flush_folder(folder)
            except OSError:
                with contextlib.suppress(OSError):
                    new.unlink(missing_ok=True)
                raise
        except OSError as error:
            self._say("disk", f"looks are kept in memory until a server has them: {folder} cannot be written: {error}")
            return False
        self._reported.discard("disk")
        return True

    def _content(self, name: str) -> bytes:
        """A file's bytes, which are no more than the spool may hold; raises OSError, also when it is no file."""
        assert self._folder is not None  # what is not in memory came from there
        fd = os.open(self._folder / f"{name}.look", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:  # noqa: PTH123 - opened by descriptor
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it is no file")
            if found.st_size > self._settings.spool_bytes:
                raise OSError(errno.EFBIG, "it is larger than the whole spool may be")
            return file.read(found.st_size)

    def _packed(self, message: pb.Spooled, began: float) -> bytes:
        body = message.SerializeToString()
        return f"{_FORM} {_digest(body)} {self._clocks.boot} {began!r}\n".encode() + body

    def _unpacked(self, name: str, content: bytes) -> pb.Spooled:
        """Reads what `_packed` wrote; raises ValueError or DecodeError."""
        head, line, body = content.partition(b"\n")
        words = head.decode("ascii").split(" ") if line and len(head) <= _MOST_HEAD else []
        if len(words) != 4 or words[0] != _FORM or words[1] != _digest(body):
            raise ValueError("it is torn, or not the agent's")
        message = pb.Spooled.FromString(body)
        if message.id != name:
            raise ValueError("it is another look under this name")
        same = words[2] == self._clocks.boot and words[2] != "unknown"
        age = self._clocks.since_boot() - float(words[3]) if same else self._clocks.unix() - message.began_s
        message.refused = self.refused
        message.age_s = min(max(age, 0.0), _OLDEST_S) if math.isfinite(age) else 0.0
        return message

    def _say(self, what: str, words: str) -> None:
        """Once, until it is over."""
        if what not in self._reported:
            self._reported.add(what)
            log.warning("%s", words)


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def _flushed(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _flush_folder(folder: Path) -> None:
    """The file's new name reaches the disk too."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
