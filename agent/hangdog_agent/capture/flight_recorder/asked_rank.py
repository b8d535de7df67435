"""The trainer whose flight record is asked for, seen by a process that has taken its rights on files."""

import os
import time
from collections.abc import Iterator
from typing import Any

from hangdog_agent.confinement import syscalls
from hangdog_agent.confinement.credentials import CredentialsRefused
from hangdog_agent.confinement.pinned_process import Inode, PinnedProcess


class AskedRank:
    """The trainer that is asked, once this process has its rights: where its paths lead, and which FIFOs it listens at."""

    def __init__(self, order: dict[str, Any]) -> None:
        """Gives up the agent's rights; raises Refused, OSError."""
        trainer = PinnedProcess(order["proc"], order["pid"], order["started"])
        self.pid, self.who = trainer.pid, trainer.credentials()
        number, pipe = order["rank"], trainer.absolute(order["pipe"])
        self.socket = trainer.absolute(order["socket"])
        self.pipe = f"{pipe}{number}.pipe" if pipe else ""
        self.dumps = tuple(f"{trainer.absolute(prefix)}{number}" for prefix in order["dumps"])
        self._trainer, self._started = trainer, float(order["started"])
        self.listens_at: set[Inode] = set()
        self._unseen = ""
        if pipe:
            try:
                self.listens_at = trainer.fifos(self.pipe.rpartition("/")[2])
            except OSError as error:
                self._unseen = f"its open files cannot be listed: {error.strerror}"
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

    def began_s(self, now: float) -> float:
        """When its process started, as Unix seconds by this machine's clock, which shows `now`."""
        return now - time.clock_gettime(time.CLOCK_BOOTTIME) + self._started / os.sysconf("SC_CLK_TCK")

    def memory(self) -> Iterator[range]:
        """The addresses of its own memory, of no file, that it may write to; raises Refused."""
        with syscalls.privileged():
            maps = self._trainer.maps()
        for line in maps.splitlines():
            fields = line.split(None, 5)  # addresses, rights, offset, device, inode, what it is of
            if len(fields) >= 5 and fields[1] == "rw-p" and fields[4] == "0":
                first, _, end = fields[0].partition("-")
                yield range(int(first, 16), int(end, 16))
