"""Asks one trainer for its flight record, in a process of its own that has the trainer's rights on files and no others.

Started by recorder.py with one JSON object as its argument, and killed at its deadline. It writes to stdout how many seconds
before it was asked the record was written, a line, and then the record; it ends with 0, or says on stderr why there is none.
What it opens may lie on a file system that hangs, and its names are the trainer's, who may exchange what they stand for at
any moment: so each is opened once, and only then looked at.
"""

import fcntl
import json
import os
import re
import socket
import stat
import struct
import sys
import termios
import time
from typing import Any

from hangdog_agent.capture.flight_recorder import kept_dump
from hangdog_agent.capture.flight_recorder.asked_rank import AskedRank
from hangdog_agent.capture.flight_recorder.dump_files import SETTLED_S, Identity, identity, whole
from hangdog_agent.confinement import syscalls
from hangdog_agent.confinement.credentials import Credentials, CredentialsRefused

#: Between two looks at the dump's file. Seconds.
_BEAT_S = 0.02
#: What the worker server may be asked for, best first: the recorder of NCCL, whole; then that of the other backends.
_HANDLERS = ("dump_nccl_trace_json", "fr_trace_json")
_NO_ENTRIES = re.compile(rb'"entries"\s*:\s*\[\s*\]')


class NewDumpRefused(CredentialsRefused):
    """The rank wrote a dump when it was asked, which cannot be taken: one that it wrote before is gone."""


def main() -> None:
    order = json.loads(sys.argv[1])
    asked_s = time.time()  # noqa: TID251 - a program of its own, which compares it with the times of files
    try:
        rank = AskedRank(order)
    except CredentialsRefused as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"it cannot be reached: {error.strerror or error}")
    reasons: list[str] = []
    record, age_s = b"", 0
    try:
        record = _answer(order, rank, reasons)
        if order["dumps"] and (not record or _NO_ENTRIES.search(record[:4096])):
            record, age_s = kept_dump.find(rank, order["most"], asked_s, order["stated"]) or (record, 0)
    except CredentialsRefused as error:
        reasons.append(str(error))
    except OSError as error:
        reasons.append(f"{kept_dump.THERE}: {error.strerror or error}")
    if not record:
        sys.exit("; ".join(reasons))
    sys.stdout.buffer.write(b"%d\n" % age_s + record)


def _answer(order: dict[str, Any], rank: AskedRank, reasons: list[str]) -> bytes:
    """The record that the rank gave when it was asked, of no operations where there is no better; `reasons` why others gave none.

    Raises NewDumpRefused.
    """
    meagre = b""
    for name, ask in (("socket", worker_server), ("pipe", pipe)):
        if order[name]:
            try:
                record = ask(order, rank)
            except NewDumpRefused:
                raise
            except CredentialsRefused as error:
                reasons.append(str(error))
                continue
            except OSError as error:
                reasons.append(f"its {name}: {error.strerror or error}")
                continue
            if not _NO_ENTRIES.search(record[:4096]):
                return record
            meagre = record
    return meagre


def worker_server(order: dict[str, Any], rank: AskedRank) -> bytes:
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


def _posted(rank: AskedRank, handler: str, most: int, within_s: float) -> bytes:
    """The content of one answer, empty when the server knows no such handler."""
    until = time.monotonic() + within_s
    try:
        handle = rank.open(rank.socket)
    except FileNotFoundError:
        raise CredentialsRefused("no worker server listens at its socket") from None
    try:
        if not stat.S_ISSOCK(os.fstat(handle).st_mode):
            raise CredentialsRefused("the file at its socket's path is not a socket")
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
        raise CredentialsRefused("the program at its socket is not a worker server")
    if words[1] != b"200":
        return b""
    if length is not None and int(length[1]) != len(content):
        raise CredentialsRefused("its worker server cut its answer short")
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


def pipe(order: dict[str, Any], rank: AskedRank) -> bytes:
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
            raise CredentialsRefused("the file at its pipe's path is not a pipe")
        if not rank.has_open(about):
            raise CredentialsRefused("it does not listen at its pipe")
        before = {file: identity(rank, file) for file in rank.dumps}
        try:
            opened = syscalls.reopen(handle, os.O_WRONLY)
        except OSError as error:
            raise CredentialsRefused(f"no process listens at its pipe ({error.strerror})") from None
        seen = syscalls.reopen(handle, os.O_RDONLY)
    finally:
        os.close(handle)
    try:
        # its time is that of the last writing, by this kernel's clock
        if _unread(seen) and time.time() - about.st_mtime > order["read_s"]:  # noqa: TID251 - as in `main`
            raise CredentialsRefused("no process reads its pipe: an earlier request is still in it")
        try:
            os.write(opened, b"1\n")
        except BlockingIOError:
            raise CredentialsRefused("its pipe is full: no process reads it") from None
        finally:
            os.close(opened)
        return _awaited(order, rank, before, seen)
    finally:
        os.close(seen)


def _unread(pipe: int) -> int:
    """The bytes that were written to a FIFO and nobody has read yet."""
    (size,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(size)


def _awaited(order: dict[str, Any], rank: AskedRank, before: dict[str, Identity], pipe: int) -> bytes:
    began, within_s, most = time.monotonic(), order["dump_s"], order["most"]
    seen: dict[str, tuple[Identity, float]] = {}
    size, read = None, False
    while (now := time.monotonic()) < began + within_s:
        for file, old in before.items():
            new = identity(rank, file)
            if new is None or new == old:
                continue
            size = new[3]
            if size > most:
                raise NewDumpRefused(f"its dump of {size} bytes is longer than {most}")
            if seen.get(file, (None, 0.0))[0] != new:
                seen[file] = new, now
            elif now - seen[file][1] >= SETTLED_S and (record := whole(rank, file, new)):
                return record
        read = read or not _unread(pipe)
        if not read and size is None and now > began + order["read_s"]:
            raise CredentialsRefused(f"no process read its pipe within {order['read_s']:g} s")
        time.sleep(_BEAT_S)
    if size is not None:
        raise NewDumpRefused(f"its new dump is incomplete after {within_s:g} s")
    raise CredentialsRefused(f"no new dump within {within_s:g} s")


if __name__ == "__main__":
    main()
