"""What the kernel says of the tools that run below this process: their limits and rights, sampled while they run."""

import contextlib
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from support.fakes import targets

Answer = TypeVar("Answer")

#: Between two samples: py-spy lives for 10 ms and more. Seconds.
_PAUSE_S = 0.001
#: A busy machine samples a tool of 10 ms now and then never: so often the tool is run again.
_TRIES = 20
#: What sets limits and rights, and then becomes the tool: it has not all of them yet.
_LAUNCHERS = "prlimit", "setpriv"
_LIMIT = re.compile(r"^Max (address space|cpu time|file size|core file size) +(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Tool:
    """One program that ran, as it was last seen: its limits (`unlimited` where there is none), and its rights."""

    name: str
    limits: dict[str, str]
    no_new_privileges: bool
    seccomp: int
    #: Bytes of address space, the most that was seen.
    most_bytes: int

    def bounded(self) -> bool:
        """Whether memory, CPU and written files have limits; none of its children gains rights."""
        return len(self.limits) == 4 and "unlimited" not in self.limits.values() and self.no_new_privileges


class Tools:
    """Every program that is started below this process in the meantime; `but` are pids of processes that are no tools."""

    def __init__(self, *but: int) -> None:
        self._but = {os.getpid(), *but, *below(os.getpid())}  # what is there already is no tool
        self._own = Path("/proc/self/cmdline").read_bytes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._seen: dict[int, Tool] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def named(self, part: str) -> list[Tool]:
        """Those whose command line holds these words."""
        return [tool for tool in self.all() if part in tool.name]

    def sampled(self, part: str, act: Callable[[], Answer]) -> Answer:
        """What `act` answers, which starts a tool whose command line holds these words; done again until one was seen."""
        for _ in range(_TRIES):
            answer = act()
            if self.named(part):
                break
        return answer

    def all(self) -> list[Tool]:
        return list(self._seen.values())

    def _sample(self) -> None:
        while not self._over.wait(_PAUSE_S):
            for pid in below(os.getpid()) - self._but:
                with contextlib.suppress(OSError, ValueError):
                    self._look(pid)

    def _look(self, pid: int) -> None:
        home = Path(f"/proc/{pid}")
        command = (home / "cmdline").read_bytes()
        if not command or command == self._own:  # a copy of ours that has not become a program yet, or one that ended
            return
        if Path(os.fsdecode(command.partition(b"\0")[0])).name in _LAUNCHERS:
            return
        limits = dict(_LIMIT.findall((home / "limits").read_text()))
        said = dict(line.split(":\t", 1) for line in (home / "status").read_text().splitlines() if ":\t" in line)
        if "VmPeak" not in said:
            return
        size = int(said["VmPeak"].split()[0]) << 10
        name = command.replace(b"\0", b" ").decode("utf-8", "replace")
        self._seen[pid] = Tool(name, limits, said["NoNewPrivs"] == "1", int(said["Seccomp"]), size)


def below(pid: int) -> set[int]:
    """The descendants of a process."""
    found: set[int] = set()
    ask = [pid]
    while ask:
        parent = ask.pop()
        for tid in targets.proc.tids(parent):
            with contextlib.suppress(OSError):
                children = {int(word) for word in Path(f"/proc/{parent}/task/{tid}/children").read_text().split()}
                ask += children - found
                found |= children
    return found
