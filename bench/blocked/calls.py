"""Calls that never return, as people write them, each with the verdicts that are right of it.

No machine is at fault in any of them. A loop that polls, and work without an end, may be called slow.
"""

import asyncio
import concurrent.futures
import fcntl
import logging
import multiprocessing
import os
import re
import select
import signal
import socket
import sqlite3
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import shared_memory
from pathlib import Path

from hangdog_models.verdict import Kind

WAITS = frozenset({Kind.SOFTWARE, Kind.DEPENDENCY})
WORKS = frozenset({Kind.SOFTWARE, Kind.SLOW, Kind.UNDETERMINED})
FOREVER_S = 1e6


@dataclass(frozen=True)
class Call:
    """A function that gets a folder of its own, and the kinds of a verdict that are right."""

    function: Callable[[Path], object]
    right: frozenset[Kind]


def fifo_open(folder: Path) -> object:
    os.mkfifo(folder / "fifo")
    return (folder / "fifo").open().read()


def fifo_read(folder: Path) -> object:
    os.mkfifo(folder / "fifo")
    return os.read(os.open(folder / "fifo", os.O_RDWR), 10)


def stdin(_: Path) -> object:
    reads, _writes = os.pipe()
    return os.fdopen(reads).readline()


def selecting(_: Path) -> object:
    reads, _writes = os.pipe()
    return select.select([reads], [], [])


def zmq_recv(folder: Path) -> object:
    import zmq

    bound = zmq.Context().socket(zmq.PULL)
    bound.bind(f"ipc://{folder}/socket")
    return bound.recv()


def zmq_poll(_: Path) -> object:
    import zmq

    asks = zmq.Context().socket(zmq.REQ)
    asks.connect("tcp://127.0.0.1:1")
    asks.send(b"x")
    poller = zmq.Poller()
    poller.register(asks)
    return poller.poll()


def grpc_call(_: Path) -> object:
    import grpc

    listens = _listening()
    channel = grpc.insecure_channel(f"127.0.0.1:{listens.getsockname()[1]}")
    return channel.unary_unary("/service/method", None, None)(b"x", wait_for_ready=True)


def http(_: Path) -> object:
    listens = _listening()
    return urllib.request.urlopen(f"http://127.0.0.1:{listens.getsockname()[1]}/manifest").read()


def accept(_: Path) -> object:
    return _listening().accept()


def _listening() -> socket.socket:
    listens = socket.socket()
    listens.bind(("127.0.0.1", 0))
    listens.listen()
    return listens


def mp_queue(_: Path) -> object:
    return multiprocessing.Queue().get()


def mp_pipe(_: Path) -> object:
    here, _there = multiprocessing.Pipe()
    return here.recv()


def mp_lock(_: Path) -> object:
    lock = multiprocessing.Lock()
    return lock.acquire() and lock.acquire()


def pool(_: Path) -> object:
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        return workers.map(time.sleep, [FOREVER_S])


def future(_: Path) -> object:
    return concurrent.futures.ThreadPoolExecutor(1).submit(time.sleep, FOREVER_S).result()


def event(_: Path) -> object:
    return threading.Event().wait()


def condition(_: Path) -> object:
    waits = threading.Condition()
    with waits:
        return waits.wait()


def logging_lock(_: Path) -> None:
    class Stuck(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            other = threading.Thread(target=logging.getLogger("job").error, args=("again",))
            other.start()  # it waits for the lock of this handler, which is held here
            other.join()

    logging.getLogger("job").addHandler(Stuck())
    logging.getLogger("job").error("a message")


def aio(_: Path) -> object:
    async def main() -> None:
        await asyncio.Event().wait()

    return asyncio.run(main())


def flock(folder: Path) -> None:
    with (folder / "lock").open("w") as first, (folder / "lock").open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX)


def sqlite(folder: Path) -> object:
    first = sqlite3.connect(folder / "d.db")
    first.execute("create table t(x)")
    first.execute("begin exclusive")
    return sqlite3.connect(folder / "d.db", timeout=FOREVER_S).execute("insert into t values(1)")


def communicate(_: Path) -> object:
    return subprocess.Popen(["sleep", str(FOREVER_S)], stdout=subprocess.PIPE).communicate()


def pidwait(_: Path) -> object:
    return os.waitpid(subprocess.Popen(["sleep", str(FOREVER_S)]).pid, 0)


def sleep(_: Path) -> None:
    time.sleep(FOREVER_S)


def pause(_: Path) -> None:
    signal.pause()


def store_key(_: Path) -> object:
    import torch.distributed as dist

    return dist.distributed_c10d._get_default_store().get("never")


def poll_file(folder: Path) -> None:
    while not (folder / "never").exists():
        time.sleep(0.5)


def spin_file(folder: Path) -> None:
    while not (folder / "never").exists():
        pass


def shm_wait(_: Path) -> None:
    memory = shared_memory.SharedMemory(create=True, size=8)
    while memory.buf is not None and memory.buf[0] == 0:
        time.sleep(0.001)


def numpy_loop(_: Path) -> None:
    import numpy as np

    values = np.random.rand(400, 400)
    while True:
        values = values @ values / (values @ values).max()


def tokenize(_: Path) -> object:
    return re.match(r"(a+)+$", "a" * 40 + "b")


_WAIT = (
    fifo_open, fifo_read, stdin, selecting, zmq_recv, zmq_poll, grpc_call, http, accept, mp_queue, mp_pipe, mp_lock, pool, future,
    event, condition, logging_lock, aio, flock, communicate, pidwait, sleep, pause, store_key,
)  # fmt: skip
_WORK = (sqlite, poll_file, spin_file, shm_wait, numpy_loop, tokenize)
CALLS = {one.__name__: Call(one, WAITS) for one in _WAIT} | {one.__name__: Call(one, WORKS) for one in _WORK}
