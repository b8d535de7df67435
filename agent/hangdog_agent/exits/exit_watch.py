"""Waits for processes to end, and notes at once when and how: their parents reap them within a moment."""

import contextlib
import os
import select
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from hangdog_agent.discovery.discover import Key
from hangdog_agent.exits import exit_status
from hangdog_agent.exits.memory_kills import MemoryKills, memory_kills
from hangdog_agent.procfs import Proc

#: Processes waited for, each of which holds a descriptor, of which a process has 1,024: machines have some eight trainers.
MOST = 256
#: Between two readings of the kills for memory of all of them, which cost some 70 µs each. Seconds.
_COUNTED_S = 4.0
#: While a process is being reaped nothing tells its status: so often it is looked for, longer and longer apart. Seconds.
_TRIES, _PAUSE_S = 4, 0.001
#: How long closing waits for the thread, which is woken. Seconds.
_CLOSE_S = 1.0


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """A process that ended at `at` (`time.monotonic`). `status` as of `Exit`; `oom`: its control group killed for memory."""

    key: Key
    at: float
    status: int | None
    oom: bool


class ExitWatch:
    """The waiting. `follow` and `ended` may be called from any thread; `close` it."""

    def __init__(self, proc: Proc, cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        """`cgroups` is where control groups are."""
        self._proc, self._cgroups = proc, cgroups
        self._held: dict[int, Key] = {}
        self._kills: dict[Key, MemoryKills | None] = {}
        self._ended: list[ProcessExit] = []
        self._counted_at = float("-inf")
        self._lock = threading.Lock()
        self._poll = select.epoll()
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC)
        self._poll.register(self._woken, select.EPOLLIN)
        self._thread = threading.Thread(target=self._keep, name="hangdog-exits", daemon=True)
        self._thread.start()

    def follow(self, keys: Collection[Key]) -> None:
        """Waits for these from now on, and no longer for others."""
        with self._lock:
            held = {key: fd for fd, key in self._held.items()}
            for key in held.keys() - set(keys):
                if _has_ended(held[key]):  # and the thread was not there yet
                    self._note(held[key], key, time.monotonic())
                else:
                    self._forget(held[key])
            for key in keys:
                if key not in held and len(self._held) < MOST:
                    self._begin(key)
            if (now := time.monotonic()) - self._counted_at >= _COUNTED_S:
                self._counted_at = now
                for key, before in self._kills.items():
                    self._kills[key] = memory_kills(self._proc, self._cgroups, key[0]) or before

    def ended(self) -> list[ProcessExit]:
        """Those that ended since this was called last, the first one first."""
        with self._lock:
            found, self._ended = self._ended, []
            return found

    def close(self) -> None:
        """Waits for nobody any more."""
        os.write(self._wake, b"x")
        self._thread.join(_CLOSE_S)
        with self._lock:
            for fd in list(self._held):
                self._forget(fd)
            for each in (self._woken, self._wake):
                os.close(each)
            self._poll.close()

    def _begin(self, key: Key) -> None:
        try:
            fd = os.pidfd_open(key[0])
        except OSError:  # it has ended, or an old kernel has none
            return
        stat = self._proc.stat(key[0])
        if stat is None or stat.started != key[1]:  # the pid is another process's by now
            os.close(fd)
            return
        self._held[fd] = key
        self._kills[key] = memory_kills(self._proc, self._cgroups, key[0])
        self._poll.register(fd, select.EPOLLIN)

    def _forget(self, fd: int) -> None:
        self._kills.pop(self._held.pop(fd), None)
        with contextlib.suppress(OSError):
            self._poll.unregister(fd)
        os.close(fd)

    def _keep(self) -> None:
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._woken:
                    return
                at = time.monotonic()
                with self._lock:
                    if (key := self._held.get(fd)) is not None:
                        self._note(fd, key, at)

    def _note(self, fd: int, key: Key, at: float) -> None:
        status = None
        for number in range(_TRIES):
            time.sleep(number * _PAUSE_S)
            status = exit_status.of_zombie(self._proc, *key)
            status = exit_status.of_reaped(fd) if status is None else status
            if status is not None:
                break
        kills = self._kills.get(key)
        self._ended.append(ProcessExit(key, at, status, kills is not None and kills.risen))
        self._forget(fd)


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
