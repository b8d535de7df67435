"""A small job that trains, one rank of which computes for longer: the collective is a fake, that all wait for it is real."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen

from support.fakes import targets

#: Lies where torch's own would, so that its frames read like those of a real job; whoever calls waits for all the others.
_ALL_REDUCE = """
import os
def all_reduce(line):
    try:
        line.send(b"x")
        line.recv(1)
    except OSError:
        os._exit(0)  # the others are gone
"""
#: Works in one layer after the other, with a collective behind each.
_TRAIN = """
import os, socket, sys, time
from torch.distributed.distributed_c10d import all_reduce

def compute(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(100))

def embedding(line, seconds):
    compute(seconds)
    all_reduce(line)

def attention(line, seconds):
    compute(seconds)
    all_reduce(line)

def experts(line, seconds):
    compute(seconds)
    all_reduce(line)

def norm(line, seconds):
    compute(seconds)
    all_reduce(line)

def loss(line, seconds):
    compute(seconds)
    all_reduce(line)

def main():
    line = socket.socket(socket.AF_UNIX)
    line.connect(sys.argv[2])
    seconds = float(sys.argv[3])
    os.write(1, b"ready\\n")
    while True:
        for layer in (embedding, attention, experts, norm, loss):
            layer(line, seconds)
"""
_START = "import sys; sys.path.insert(0, sys.argv[1]); import train; train.main()"


@contextlib.contextmanager
def training(
    folder: Path, environs: list[Mapping[str, str]], slow: int, often_s: float, slow_s: float
) -> Iterator[list[Popen[bytes]]]:
    """One process for each environment; all compute `often_s` seconds a layer, but the slow one `slow_s`."""
    package = folder / "torch" / "distributed"
    package.mkdir(parents=True)
    for name in (folder / "torch" / "__init__.py", package / "__init__.py"):
        name.touch()
    (package / "distributed_c10d.py").write_text(_ALL_REDUCE)
    (folder / "train.py").write_text(_TRAIN)
    with ExitStack() as stack:
        hub = stack.enter_context(socket.socket(socket.AF_UNIX))
        hub.bind(str(folder / "hub"))
        hub.listen()
        meeting = threading.Thread(target=_meet, args=(hub, len(environs)))
        meeting.start()
        stack.callback(meeting.join)  # ends with the processes
        ranks = []
        for rank, environ in enumerate(environs):
            seconds = slow_s if rank == slow else often_s
            arguments = (str(folder), str(folder / "hub"), str(seconds))
            ranks.append(stack.enter_context(targets.running(_START, *arguments, environ=environ, settles=False)))
        yield ranks


def _meet(hub: socket.socket, world: int) -> None:
    """Lets everybody go on once everybody is there, until one is gone."""
    with ExitStack() as stack:
        lines = [stack.enter_context(hub.accept()[0]) for _ in range(world)]
        with contextlib.suppress(OSError):
            while all(line.recv(1) for line in lines):
                for line in lines:
                    line.send(b"y")
