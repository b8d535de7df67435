"""Ranks of one job as threads, and machines as names: the holders beside them are real processes."""

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from hangdog.backup.backups import Backups, BackupSettings
from hangdog.backup.holder_client import Membership, end, near
from hangdog.backup.wire import KEY, BackupFailed

Answer = TypeVar("Answer")


@dataclass
class Meeting:
    """Where the threads of one start of the job meet."""

    size: int
    said: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.said = [b""] * self.size
        self.barrier = threading.Barrier(self.size, timeout=60)


@dataclass
class ThreadGroup:
    meeting: Meeting
    rank: int

    @property
    def size(self) -> int:
        return self.meeting.size

    def gather(self, data: bytes) -> list[bytes]:
        self.meeting.said[self.rank] = data
        self.meeting.barrier.wait()
        told = list(self.meeting.said)
        self.meeting.barrier.wait()
        return told


@dataclass
class PlayedJob:
    """Starts ranks again and again under one key. `machines` names the machine of each rank."""

    placement: Sequence[int]
    memory: int = 1 << 20
    share: float = 1e9
    job: str = field(default_factory=lambda: f"test-{secrets.token_hex(4)}")
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    started: set[str] = field(default_factory=set)

    def member(self) -> Membership:
        return Membership(self.key.encode(), self.job)

    def run(self, machines: Sequence[str], act: Callable[[Backups, int], Answer]) -> list[Answer]:
        """What each rank answers, each in a thread of its own."""
        self.started |= set(machines)
        meeting = Meeting(len(machines))
        environ = {KEY: self.key}

        def rank_runs(rank: int) -> Answer:
            try:
                settings = BackupSettings(
                    self.job, self.memory, machine=machines[rank], host="127.0.0.1", share=self.share
                )
                return act(Backups(ThreadGroup(meeting, rank), self.placement, settings, environ), rank)
            except BaseException:
                meeting.barrier.abort()
                raise

        with ThreadPoolExecutor(len(machines)) as pool:
            ranks = [pool.submit(rank_runs, rank) for rank in range(len(machines))]
            errors = [error for one in ranks if (error := one.exception(120)) is not None]
        for error in sorted(errors, key=lambda one: isinstance(one, threading.BrokenBarrierError)):
            raise error  # the first cause, not that others waited for it in vain
        return [one.result() for one in ranks]

    def lose(self, machine: str) -> None:
        """The machine is gone, with the process that held shards on it."""
        os.kill(holder_pid(self.member(), machine), 9)


def holder_pid(member: Membership, machine: str) -> int:
    with near(member, machine) as line:
        return int.from_bytes(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")


@contextmanager
def played_job(placement: Sequence[int], memory: int = 1 << 20) -> Iterator[PlayedJob]:
    job = PlayedJob(placement, memory)
    try:
        yield job
    finally:
        for machine in job.started:
            try:
                with near(job.member(), machine) as line:
                    end(line)
            except (OSError, BackupFailed):
                pass
