"""Asks one trainer for its flight record, as a process of its own: what it opens may lie on the file system that hangs.

Started as a script by recorder.py, with one JSON object as its argument, and killed at its deadline; it knows nothing else
of hangdog, so that it starts in 20 ms. It writes the record to stdout and ends with 0, or says on stderr why there is none.
"""

import json
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

#: Between two looks at the dump's file. Seconds.
_BEAT_S = 0.02
#: A dump that did not change for so long is written: PyTorch writes all of it with one call. Seconds.
_SETTLED_S = 0.1
#: What the worker server may be asked for, best first: the recorder of NCCL, whole; then that of the other backends.
_HANDLERS = ("dump_nccl_trace_json", "fr_trace_json")
_NO_ENTRIES = re.compile(rb'"entries"\s*:\s*\[\s*\]')
#: The kernel follows as many links itself before it gives up.
_MOST_LINKS = 40

Identity = tuple[int, int, int, int] | None


class Refused(Exception):
    """Why there is no record, in words without a path or pid: those of many ranks are told together."""


def main() -> None:
    order = json.loads(sys.argv[1])
    reasons: list[str] = []
    meagre = b""
    for name, door in (("socket", worker_server), ("pipe", pipe)):
        if order[name]:
            try:
                record = door(order)
            except Refused as error:
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


def worker_server(order: dict[str, Any]) -> bytes:
    """What PyTorch's worker server behind a unix socket tells; raises Refused, OSError."""
    meagre = b""
    for handler in _HANDLERS:
        answer = _posted(inside(order["root"], order["socket"]), handler, order["most"], order["socket_s"])
        if answer and not _NO_ENTRIES.search(answer[:4096]):
            return answer
        meagre = answer or meagre
    if not meagre:
        raise Refused("its worker server has no flight recorder")
    return meagre


def _posted(path: str, handler: str, most: int, within_s: float) -> bytes:
    """The content of one answer, empty when the server knows no such handler."""
    until = time.monotonic() + within_s
    folder, _, name = path.rpartition("/")
    # a path through /proc/PID/root may be longer than the 107 bytes of a socket's address; its folder's descriptor is not
    opened = os.open(folder or "/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(within_s)
            line.connect(f"/proc/self/fd/{opened}/{name}")
            line.sendall(f"POST /handler/{handler} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
            answer = bytearray()
            while part := _part(line, until):
                answer += part
                if len(answer) > most:
                    raise Refused(f"its worker server's answer is longer than {most} bytes")
    except TimeoutError:
        raise Refused(f"its worker server did not answer within {within_s:g} s") from None
    except (ConnectionError, FileNotFoundError):
        raise Refused("no worker server listens at its socket") from None
    finally:
        os.close(opened)
    head, _, content = bytes(answer).partition(b"\r\n\r\n")
    words = head.split(None, 2)
    length = re.search(rb"(?i)\r\ncontent-length:\s*(\d{1,12})", head)
    if len(words) < 2 or not words[1].isdigit():
        raise Refused("what answers at its socket is no worker server")
    if words[1] != b"200":
        return b""
    if length is not None and int(length[1]) != len(content):
        raise Refused("its worker server broke off its answer")
    return content


def _part(line: socket.socket, until: float) -> bytes:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    line.settimeout(left)
    return line.recv(1 << 16)


def pipe(order: dict[str, Any]) -> bytes:
    """Pokes the rank's FIFO and waits for the dump that follows; raises Refused, OSError.

    Only a file that changed since the poke is taken, and only once it is whole: a pickle from its first to its last byte.
    """
    root, rank = order["root"], order["rank"]
    place = inside(root, f"{order['pipe']}{rank}.pipe")
    files = [inside(root, f"{prefix}{rank}") for prefix in order["dumps"]]
    try:
        if not stat.S_ISFIFO(os.lstat(place).st_mode):
            raise Refused("what stands in its pipe's place is no pipe")
    except FileNotFoundError:
        raise Refused("its pipe does not exist") from None
    if not _listens(order["fds"], place.rpartition("/")[2]):
        raise Refused("it does not listen at its pipe")
    before = {file: _identity(file) for file in files}
    try:
        opened = os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise Refused(f"nobody listens at its pipe ({error.strerror})") from None
    try:
        os.write(opened, b"1\n")
    except BlockingIOError:
        raise Refused("its pipe is full: nobody reads it") from None
    finally:
        os.close(opened)
    return _awaited(before, order["most"], order["dump_s"])


def _listens(fds: str, name: str) -> bool:
    """Whether the trainer itself has the pipe open; True where its descriptors may not be seen.

    Their names are read and not followed: following one may wait for a dead file server.
    """
    try:
        for fd in os.listdir(fds):
            try:
                if os.readlink(f"{fds}/{fd}").rpartition("/")[2] == name:
                    return True
            except FileNotFoundError:
                continue
    except OSError:
        return True
    return False


def _awaited(before: dict[str, Identity], most: int, within_s: float) -> bytes:
    until = time.monotonic() + within_s
    seen: dict[str, tuple[Identity, float]] = {}
    size = None
    while (now := time.monotonic()) < until:
        for file, old in before.items():
            new = _identity(file)
            if new is None or new == old:
                continue
            size = new[3]
            if size > most:
                raise Refused(f"its dump of {size} bytes is longer than {most}")
            if seen.get(file, (None, 0.0))[0] != new:
                seen[file] = new, now
            elif now - seen[file][1] >= _SETTLED_S and (record := _whole(file, size)) and _identity(file) == new:
                return record
        time.sleep(_BEAT_S)
    if size is not None:
        raise Refused(f"its new dump is not whole after {within_s:g} s")
    raise Refused(f"no new dump within {within_s:g} s")


def _identity(file: str) -> Identity:
    """What changes when a file is written: never a clock's word, for the file server has another one than we."""
    try:
        about = os.lstat(file)
    except OSError:
        return None
    return (about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size) if stat.S_ISREG(about.st_mode) else None


def _whole(file: str, size: int) -> bytes:
    """The file when it is a whole pickle, else nothing: it begins with its protocol and ends with STOP."""
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        head, tail = os.pread(opened, 2, 0), os.pread(opened, 2, size - 1) if size else b""
        if head[:1] != b"\x80" or tail != b".":
            return b""
        return b"".join(_pieces(opened, size))
    finally:
        os.close(opened)


def _pieces(opened: int, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := os.read(opened, min(size, 1 << 20))):
        size -= len(piece)
        yield piece


def inside(root: str, path: str) -> str:
    """Where a path of the trainer's leads, as seen through its `root` (empty: ours): links stay within, `..` too."""
    done: list[str] = []
    todo: list[str] = _parts(path)
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            done[-1:] = []
            continue
        try:
            target = os.readlink("/".join([root, *done, part]))
        except OSError:  # no link, or nothing yet
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            raise Refused("too many symbolic links")
        if target.startswith("/"):
            done = []
        todo += _parts(target)
    return "/".join([root, *done])


def _parts(path: str) -> list[str]:
    parts: Sequence[str] = [part for part in path.split("/") if part not in ("", ".")]
    return list(reversed(parts))


if __name__ == "__main__":
    main()
