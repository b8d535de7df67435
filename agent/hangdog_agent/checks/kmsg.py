"""Reads records of /dev/kmsg without waiting; a FIFO or a file that holds such records reads alike.

The device gives one record for each read: `prio,seq,usec,flags;text`, then lines ` KEY=value` that nobody needs here.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: The kernel's own bound for a record is 8 KiB; a smaller buffer would be refused.
_RECORD_BYTES = 16 << 10
#: Start of a line that has not ended yet; more without an end is no record.
_MOST_TAIL = 64 << 10
_RECORD = re.compile(r"(\d{1,5}),(\d{1,19}),(\d{1,17}),[^;]{1,64};(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One record: `seq` counts all since the machine's start, `uptime_s` is seconds since then; facility 0 is the kernel."""

    facility: int
    level: int
    seq: int
    usec: int
    text: str

    @property
    def uptime_s(self) -> float:
        return self.usec / 1e6


class Kmsg:
    """The kernel's log, open for reading; `read` stands for `os.read` in tests."""

    def __init__(self, path: Path, read: Callable[[int, int], bytes] = os.read) -> None:
        self._path = path
        self._read = read
        self._fd = -1
        self._device = False
        self._tail = b""
        #: How often the kernel said that records were overwritten before they were read.
        self.overrun = 0

    def open(self) -> str:
        """Opens it from its oldest record on, once; says why not."""
        if self._fd >= 0:
            return ""
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return f"there is no {self._path}: mount it into the container"
        except PermissionError:
            return f"{self._path} may not be read: give the agent CAP_SYSLOG (kernel.dmesg_restrict is 1)"
        except OSError as error:
            return f"{self._path} cannot be read: {error.strerror or error}"
        self._device = stat.S_ISCHR(os.fstat(self._fd).st_mode)
        return ""

    def records(self, most: int) -> Iterator[KernelRecord]:
        """What has come since the last call, at most `most` records; ends, with the rest unread, where they end."""
        taken = 0
        while taken < most and self._fd >= 0:
            try:
                read = self._read(self._fd, _RECORD_BYTES)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    self.overrun += 1
                    continue
                return  # EAGAIN: no more for now; anything else is asked again next time
            if not read:
                return
            for line in self._lines(read):
                if record := parse(line):
                    taken += 1
                    yield record

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _lines(self, read: bytes) -> list[str]:
        if not self._device:  # no borders of records: the last line may go on in the next read
            whole, _, self._tail = (self._tail + read).rpartition(b"\n")
            self._tail = self._tail[-_MOST_TAIL:]
            read = whole
        return read.decode("utf-8", "replace").split("\n")


def parse(line: str) -> KernelRecord | None:
    """A record from its first line; None for what is none, such as ` KEY=value` behind it."""
    found = _RECORD.fullmatch(line)
    if found is None:
        return None
    prio = int(found[1])
    return KernelRecord(prio >> 3, prio & 7, int(found[2]), int(found[3]), found[4])
