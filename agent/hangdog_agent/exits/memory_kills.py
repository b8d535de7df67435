"""How often the kernel killed for memory in the control group of a process."""

from dataclasses import dataclass
from pathlib import Path

from hangdog_agent.checks.check_paths import text
from hangdog_agent.procfs import Proc

#: Where control groups are, and the counters of both versions.
_EVENTS, _OOM_CONTROL = "memory.events", "memory.oom_control"
_COUNTER = "oom_kill"


@dataclass(frozen=True, slots=True)
class MemoryKills:
    """A counter of a control group, and what it was."""

    file: Path
    count: int

    @property
    def risen(self) -> bool:
        """Whether somebody was killed there since. False where the group is gone."""
        return (_count(self.file) or 0) > self.count


def memory_kills(proc: Proc, root: Path, pid: int) -> MemoryKills | None:
    """The counter of a process's control group below `root`; None where nothing counts."""
    read = proc.raw(pid, "cgroup")
    for line in read.decode("utf-8", "replace").splitlines() if isinstance(read, bytes) else ():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if ".." in path.split("/"):  # seen from a container of ours it lies elsewhere
            continue
        if not controllers:
            file = root / path.lstrip("/") / _EVENTS
        elif "memory" in controllers.split(","):
            file = root / "memory" / path.lstrip("/") / _OOM_CONTROL
        else:
            continue
        if (count := _count(file)) is not None:
            return MemoryKills(file, count)
    return None


def _count(file: Path) -> int | None:
    read = text(file, 4096)
    for line in read.splitlines() if isinstance(read, str) else ():
        name, _, number = line.partition(" ")
        if name == _COUNTER and number.strip().isdigit():
            return int(number)
    return None
