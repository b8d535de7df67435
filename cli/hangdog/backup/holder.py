"""The process that holds shards on one machine while trainers end and start: `python -m hangdog.backup.holder --help`.

It writes nothing to a disk. It ends when it is told to, or once no trainer was connected for so long as was said.
"""

import argparse
import contextlib
import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from hangdog.backup.shard_memory import Shard, ShardMemory
from hangdog.backup.wire import (
    BackupFailed,
    Frame,
    Seal,
    admit,
    fill,
    job_key,
    local_address,
    number,
    receive,
    send,
    spread,
    text,
)
from hangdog_models.errors import HangdogError
from hangdog_models.ranks import MAX_RANK

#: Connections at once from each side: the ranks of a machine and those whose copies it holds, each with two, fit many times.
MOST_CONNECTIONS = 512
#: A peer whose machine is gone says nothing more: its connection ends after two minutes. Seconds, seconds, times.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
#: How often it asks itself whether anybody is connected. Seconds.
_LOOK_S = 1.0
#: How often, and how many seconds apart, one that came second looks whether the first one listens.
_TRIES, _TRY_S = 100, 0.1
#: How long one transfer may take that says no limit of its own. Seconds.
_TRANSFER_S = 3600.0


class Holder:
    """Serves trainers of one job, each connection by a thread."""

    def __init__(self, key: bytes, job: str, memory: int) -> None:
        self.memory = ShardMemory(memory)
        self._key, self._job = key, job
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._open = 0
        self._left = time.monotonic()
        self._address = ""

    def serve(self, listeners: list[socket.socket], idle_s: float) -> None:
        """Returns when it is told to end, or when nobody was connected for `idle_s`."""
        host, port = listeners[0].getsockname()[:2]
        self._address = f"{host}:{port}"
        for listener in listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        while not self._ended.wait(_LOOK_S):
            with self._lock:
                if not self._open and time.monotonic() - self._left > idle_s:
                    return

    def _accept(self, listener: socket.socket) -> None:
        slots = threading.BoundedSemaphore(
            MOST_CONNECTIONS
        )  # its own: strangers from outside keep no trainer here waiting
        while True:
            slots.acquire()
            try:
                line, _ = listener.accept()
            except OSError:  # no file descriptor left, or the peer is gone again
                slots.release()
                time.sleep(_LOOK_S)
                continue
            threading.Thread(target=self._connected, args=(line, slots), daemon=True).start()

    def _connected(self, line: socket.socket, slots: threading.Semaphore) -> None:
        try:
            with line, contextlib.suppress(OSError, HangdogError):
                if line.family == socket.AF_INET:
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    for option, value in _KEEPALIVE:
                        line.setsockopt(socket.IPPROTO_TCP, option, value)
                admit(line, self._key, self._job)
                self._count(1)
                try:
                    while not self._ended.is_set():
                        self._answer(line, receive(line, limit_s=None))
                finally:
                    self._count(-1)
        finally:
            slots.release()

    def _count(self, more: int) -> None:
        with self._lock:
            self._open += more
            self._left = time.monotonic()

    def _answer(self, line: socket.socket, asked: Frame) -> None:
        does: dict[str, Callable[[socket.socket, Frame], None]] = {
            "put": self._put, "get": self._get, "list": self._list, "end": self._end,
        }  # fmt: skip
        do = does.get(text(asked, "do"))
        if do is None:
            raise BackupFailed("it asks for what no holder does", code="damaged-message")
        try:
            do(line, asked)
        except (BackupFailed, TimeoutError) as failed:
            send(line, {"error": str(failed)})
            raise

    def _put(self, line: socket.socket, asked: Frame) -> None:
        shard = Shard(
            rank=number(asked, "rank", MAX_RANK),
            copy=text(asked, "copy", 64),
            step=number(asked, "step"),
            world=number(asked, "world", MAX_RANK),
            size=number(asked, "size"),
        )
        keep = asked.get("keep")
        body = self.memory.reserve(shard, keep if isinstance(keep, str) else "")
        kept = False
        try:
            send(line, {"go": True})
            seal = Seal(self._key, self._job, shard.rank, shard.copy, shard.size)
            limit_s = min(float(number(asked, "limit_s", 1 << 20)), _TRANSFER_S)
            fill(line, memoryview(body), time.monotonic() + limit_s, seal)
            if text(receive(line), "digest") != seal.digest():
                raise BackupFailed("the bytes are not those of the digest", code="damaged-backup")
            self.memory.commit(replace(shard, digest=seal.digest()), body)
            kept = True
        finally:
            if not kept:
                self.memory.release(shard)
        send(line, {"kept": True})

    def _get(self, line: socket.socket, asked: Frame) -> None:
        shard, body = self.memory.get(number(asked, "rank", MAX_RANK), text(asked, "copy", 64))
        send(line, {"size": shard.size, "digest": shard.digest})
        spread([line], memoryview(body), time.monotonic() + _TRANSFER_S)

    def _list(self, line: socket.socket, asked: Frame) -> None:
        shards = [asdict(shard) for shard in self.memory.shards()]
        send(line, {"address": self._address, "limit": self.memory.limit, "shards": shards})

    def _end(self, line: socket.socket, asked: Frame) -> None:
        send(line, {"ends": True})
        self._ended.set()


def main() -> int:
    """Listens, leaves itself in the background, and returns to the caller once it can be asked."""
    parser = argparse.ArgumentParser(prog="python -m hangdog.backup.holder", description=__doc__)
    parser.add_argument("--job", required=True, help="name of the job, the same on all machines")
    parser.add_argument(
        "--machine", default=socket.gethostname(), help="name of this machine  [default: its host name]"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address that other machines reach this one at")
    parser.add_argument("--memory", type=int, required=True, help="bytes that it holds at most")
    parser.add_argument("--idle", type=float, default=1800.0, help="seconds without a trainer after which it ends")
    asked = parser.parse_args()
    try:
        key = job_key()
    except HangdogError as wrong:
        parser.exit(64, f"{wrong}\n  {wrong.hint}\n")
    near = socket.socket(socket.AF_UNIX)
    if not _first(near, local_address(key, asked.job, asked.machine)):
        return 0
    far = socket.create_server((asked.host, 0), backlog=MOST_CONNECTIONS)
    near.listen(MOST_CONNECTIONS)
    if os.fork():
        os._exit(0)
    _leave()
    near.listen(
        MOST_CONNECTIONS
    )  # once more, so that the kernel names this process to who asks whom it is connected to
    Holder(key, asked.job, asked.memory).serve([far, near], asked.idle)
    return 0


def _first(near: socket.socket, address: str) -> bool:
    """Takes the machine's address; False where another one has it and listens. One that begins or ends is waited for."""
    for _ in range(_TRIES):
        try:
            near.bind(address)
            return True
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(ConnectionRefusedError):
            line.connect(address)
            return False
        time.sleep(_TRY_S)
    raise TimeoutError("another holder has the address of this machine, and does not listen")


def _leave() -> None:
    """Away from the trainer's session, terminal and folder, so that its end is not this one's."""
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    os.close(null)
    with contextlib.suppress(OSError):  # where memory runs out, the copies are worth less than the trainers
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    sys.exit(main())
