"""Asks one trainer for its flight record, in a process of its own that has the trainer's rights on files and no others.

Started by recorder.py with one JSON object as its argument, and killed at its deadline. It writes the record to stdout and
ends with 0, or says on stderr why there is none. What it opens may lie on a file system that hangs, and its names are the
trainer's, who may exchange what they stand for at any moment: so each is opened once, and only then looked at.
"""

import json
import os
import re
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

from hangdog_agent.confinement import syscalls
from hangdog_agent.confinement.credentials import Credentials, CredentialsRefused
from hangdog_agent.confinement.pinned_process import Inode, PinnedProcess

#: Between two looks at the dump's file. Seconds.
_BEAT_S = 0.02
#: A dump that did not change for so long is written: PyTorch writes all of it with one call. Seconds.
_SETTLED_S = 0.1
#: What the worker server may be asked for, best first: the recorder of NCCL, whole; then that of the other backends.
_HANDLERS = ("dump_nccl_trace_json", "fr_trace_json")
_NO_ENTRIES = re.compile(rb'"entries"\s*:\s*\[\s*\]')

#: Device, inode, time of the last change, size.
Identity = tuple[int, int, int, int] | None


class Rank:
    """The trainer that is asked, once this process has its rights: where its paths lead, and which FIFOs it listens at."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Gives up the agent's rights; raises Refused, OSError."""
        trainer = PinnedProcess(order["proc"], order["pid"], order["started"])
        self.pid, self.who = trainer.pid, trainer.credentials()
        number, pipe = order["rank"], trainer.absolute(order["pipe"])
        self.socket = trainer.absolute(order["socket"])
        self.pipe = f"{pipe}{number}.pipe" if pipe else ""
        self.dumps = tuple(f"{trainer.absolute(prefix)}{number}" for prefix in order["dumps"])
        self.listens_at: set[Inode] = set()
        self._unseen = ""
        if pipe:
            try:
                self.listens_at = trainer.fifos(self.pipe.rpartition("/")[2])
            except OSError as error:
                self._unseen = f"what it has open cannot be seen: {error.strerror}"
        self._root = trainer.root()
        syscalls.become(self.who, order["cpu_s"])

    def open(self, path: str) -> int:
        """An O_PATH descriptor of what its path leads to; raises OSError, Refused."""
        return syscalls.open_inside(self._root, path, os.O_PATH)

    def has_open(self, about: os.stat_result) -> bool:
        """Whether it has this very FIFO open itself; raises Refused where that cannot be seen."""
        if self._unseen:
            raise CredentialsRefused(self._unseen)
        return (about.st_dev, about.st_ino) in self.listens_at


def main() -> None:
    order = json.loads(sys.argv[1])
    try:
        rank = Rank(order)
    except CredentialsRefused as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"it cannot be reached: {error.strerror or error}")
    reasons: list[str] = []
    meagre = b""
    for name, ask in (("socket", worker_server), ("pipe", pipe)):
        if order[name]:
            try:
                record = ask(order, rank)
            except CredentialsRefused as error:
                reasons.append(str(error))
                continue
            except OSError as error:
                reasons.append(f"its {name}: {error.strerror or error}")
                continue
            if not _NO_ENTRIES.search(record[:4096]):
                break
            meagre = record
    else:
        record = meagre
    if not record:
        sys.exit("; ".join(reasons))
    sys.stdout.buffer.write(record)


def worker_server(order: dict[str, Any], rank: Rank) -> bytes:
    """What PyTorch's worker server behind a unix socket tells; raises Refused, OSError."""
    meagre = b""
    for handler in _HANDLERS:
        answer = _posted(rank, handler, order["most"], order["socket_s"])
        if answer and not _NO_ENTRIES.search(answer[:4096]):
            return answer
        meagre = answer or meagre
    if not meagre:
        raise CredentialsRefused("its worker server has no flight recorder")
    return meagre


def _posted(rank: Rank, handler: str, most: int, within_s: float) -> bytes:
    """The content of one answer, empty when the server knows no such handler."""
    until = time.monotonic() + within_s
    try:
        handle = rank.open(rank.socket)
    except FileNotFoundError:
        raise CredentialsRefused("no worker server listens at its socket") from None
    try:
        if not stat.S_ISSOCK(os.fstat(handle).st_mode):
            raise CredentialsRefused("what stands in its socket's place is no socket")
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(within_s)
            # by its descriptor: a path may be longer than the 107 bytes of an address, and lead elsewhere by now
            line.connect(f"/proc/self/fd/{handle}")
            _believed(line, rank.pid, rank.who)
            line.sendall(f"POST /handler/{handler} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
            answer = bytearray()
            while part := _part(line, until):
                answer += part
                if len(answer) > most:
                    raise CredentialsRefused(f"its worker server's answer is longer than {most} bytes")
    except TimeoutError:
        raise CredentialsRefused(f"its worker server did not answer within {within_s:g} s") from None
    except ConnectionError:
        raise CredentialsRefused("no worker server listens at its socket") from None
    finally:
        os.close(handle)
    head, _, content = bytes(answer).partition(b"\r\n\r\n")
    words = head.split(None, 2)
    length = re.search(rb"(?i)\r\ncontent-length:\s*(\d{1,12})", head)
    if len(words) < 2 or not words[1].isdigit():
        raise CredentialsRefused("what answers at its socket is no worker server")
    if words[1] != b"200":
        return b""
    if length is not None and int(length[1]) != len(content):
        raise CredentialsRefused("its worker server broke off its answer")
    return content


def _believed(line: socket.socket, pid: int, who: Credentials) -> None:
    """Raises Refused unless the trainer itself listens there: nothing is said to anybody else."""
    peer, uid, _ = struct.unpack("iII", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if (peer, uid) != (pid, who.uid):
        raise CredentialsRefused("another process listens at its socket")


def _part(line: socket.socket, until: float) -> bytes:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    line.settimeout(left)
    return line.recv(1 << 16)


def pipe(order: dict[str, Any], rank: Rank) -> bytes:
    """Writes to the rank's FIFO and waits for the dump that follows; raises Refused, OSError.

    Only a file that changed since is taken, and only once it is whole: a pickle from its first to its last byte.
    """
    try:
        handle = rank.open(rank.pipe)
    except FileNotFoundError:
        raise CredentialsRefused("its pipe does not exist") from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISFIFO(about.st_mode):
            raise CredentialsRefused("what stands in its pipe's place is no pipe")
        if not rank.has_open(about):
            raise CredentialsRefused("it does not listen at its pipe")
        before = {file: _identity(rank, file) for file in rank.dumps}
        try:
            opened = syscalls.reopen(handle, os.O_WRONLY)
        except OSError as error:
            raise CredentialsRefused(f"nobody listens at its pipe ({error.strerror})") from None
    finally:
        os.close(handle)
    try:
        os.write(opened, b"1\n")
    except BlockingIOError:
        raise CredentialsRefused("its pipe is full: nobody reads it") from None
    finally:
        os.close(opened)
    return _awaited(rank, before, order["most"], order["dump_s"])


def _awaited(rank: Rank, before: dict[str, Identity], most: int, within_s: float) -> bytes:
    until = time.monotonic() + within_s
    seen: dict[str, tuple[Identity, float]] = {}
    size = None
    while (now := time.monotonic()) < until:
        for file, old in before.items():
            new = _identity(rank, file)
            if new is None or new == old:
                continue
            size = new[3]
            if size > most:
                raise CredentialsRefused(f"its dump of {size} bytes is longer than {most}")
            if seen.get(file, (None, 0.0))[0] != new:
                seen[file] = new, now
            elif now - seen[file][1] >= _SETTLED_S and (record := _whole(rank, file, new)):
                return record
        time.sleep(_BEAT_S)
    if size is not None:
        raise CredentialsRefused(f"its new dump is not whole after {within_s:g} s")
    raise CredentialsRefused(f"no new dump within {within_s:g} s")


def _identity(rank: Rank, file: str) -> Identity:
    """What changes when a file is written: never a clock's word, for the file server has another one than we."""
    try:
        handle = rank.open(file)
    except OSError:
        return None
    try:
        return _file_identity(os.fstat(handle))
    finally:
        os.close(handle)


def _file_identity(about: os.stat_result) -> Identity:
    return (about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size) if stat.S_ISREG(about.st_mode) else None


def _whole(rank: Rank, file: str, seen: Identity) -> bytes:
    """The file, if it is still the one that was seen and a whole pickle, else nothing: from its protocol to STOP."""
    handle = rank.open(file)
    try:
        if seen is None or _file_identity(os.fstat(handle)) != seen:
            return b""
        opened = syscalls.reopen(handle, os.O_RDONLY)
    finally:
        os.close(handle)
    try:
        size = seen[3]
        head, tail = os.pread(opened, 2, 0), os.pread(opened, 2, size - 1) if size else b""
        if head[:1] != b"\x80" or tail != b".":
            return b""
        record = b"".join(_pieces(opened, size))
        return record if _file_identity(os.fstat(opened)) == seen else b""
    finally:
        os.close(opened)


def _pieces(opened: int, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := os.read(opened, min(size, 1 << 20))):
        size -= len(piece)
        yield piece


if __name__ == "__main__":
    main()
