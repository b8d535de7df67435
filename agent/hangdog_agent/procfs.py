"""Reads what the kernel says of processes, from /proc, without touching them.

A process may vanish between any two reads: then the answer is None (or an empty text), never an exception.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from hangdog_models.stack import Reason

#: Largest file read from /proc: an environment or command line may be megabytes long, what we look for stands early.
_MOST_BYTES = 1 << 20
#: The flag of the kernel's own threads (<linux/sched.h>).
_PF_KTHREAD = 0x00200000


@dataclass(frozen=True, slots=True)
class Stat:
    """One line of `/proc/PID/stat`, of a process or of one of its threads.

    `cpu_ticks` and `started` (after boot) count clock ticks. `image` differs after an exec; 0 where it may not be read.
    `kernel` marks the kernel's own threads.
    """

    pid: int
    comm: str
    state: str
    parent: int
    cpu_ticks: int
    started: int
    image: int = 0
    kernel: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """What `/proc/PID/status` adds: `pids` are the pid's names from our namespace inwards, `switches` how often it woke."""

    tracer: int = 0
    pids: tuple[int, ...] = ()
    uid: int = 0
    capabilities: int = 0
    seccomp: int = 0
    switches: int = 0


class Proc:
    """The process table under `root`, which tests may draw themselves."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self.root = root
        self._folder = os.fspath(root)  # paths are put together as text: a scan makes thousands of them

    def pids(self) -> tuple[int, ...]:
        """All processes, ascending."""
        return _numbers(self._folder)

    def tids(self, pid: int) -> tuple[int, ...]:
        """The threads of a process, ascending; empty when it is gone."""
        return _numbers(f"{self._folder}/{pid}/task")

    def stat(self, pid: int, tid: int | None = None) -> Stat | None:
        """State, parent, times; None when the process (or thread) is gone."""
        text = self._text(pid, tid, "stat")
        return parse_stat(text) if text else None

    def status(self, pid: int, tid: int | None = None) -> Status | None:
        """Tracer, namespaces, rights; None when the process (or thread) is gone."""
        text = self._text(pid, tid, "status")
        return parse_status(text) if text else None

    def schedstat(self, pid: int, tid: int) -> tuple[int, int, int] | None:
        """Of a thread: nanoseconds on a core, nanoseconds waiting for one, times it was given one; None when unknown."""
        words = (self._text(pid, tid, "schedstat") or "").split()
        try:
            return int(words[0]), int(words[1]), int(words[2])
        except (ValueError, IndexError):
            return None

    def io_bytes(self, pid: int) -> int | None:
        """Bytes a process passed to and from system calls that read and write; None when not permitted or gone."""
        lines = dict(line.split(": ", 1) for line in (self._text(pid, None, "io") or "").splitlines() if ": " in line)
        try:
            return int(lines["rchar"]) + int(lines["wchar"])
        except (KeyError, ValueError):
            return None

    def wchan(self, pid: int, tid: int | None = None) -> str:
        """The kernel function a sleeper waits in; empty when running, not permitted or gone."""
        text = self._text(pid, tid, "wchan") or ""
        return "" if text == "0" else text

    def syscall(self, pid: int, tid: int | None = None) -> str:
        """The system call a sleeper is in, as number and arguments; `running`, or empty when not permitted or gone."""
        return (self._text(pid, tid, "syscall") or "").strip()

    def executable(self, pid: int) -> str:
        """Path of the program a process runs; empty when not permitted, gone, or a kernel thread's."""
        try:
            return str((self.root / str(pid) / "exe").readlink())
        except OSError:
            return ""

    def arguments(self, pid: int) -> tuple[str, ...]:
        """The command line, unredacted; empty when gone. Waits for the target's memory map: see discovery/process_table.py."""
        return parse_arguments(self.raw(pid, "cmdline"))

    def setting(self, path: str) -> str | None:
        """A setting of the kernel (`sys/kernel/...`); None where it has none of that name."""
        try:
            return _read(f"{self._folder}/{path}").decode("utf-8", "replace").strip()
        except OSError:
            return None

    def raw(self, pid: int, name: str) -> bytes | Reason:
        """A file of a process as it stands, or why it cannot be read: EXITED or NOT_PERMITTED."""
        try:
            return _read(f"{self._folder}/{pid}/{name}")
        except PermissionError:
            return Reason.NOT_PERMITTED
        except OSError:
            return Reason.EXITED

    def _text(self, pid: int, tid: int | None, name: str) -> str | None:
        read = self.raw(pid, name if tid is None else f"task/{tid}/{name}")
        return None if isinstance(read, Reason) else read.decode("utf-8", "surrogateescape")


def parse_stat(text: str) -> Stat | None:
    """Reads a line of `/proc/PID/stat`; None when it is none. The name may itself hold spaces and brackets."""
    head, _, rest = text.rpartition(")")
    number, _, comm = head.partition(" (")
    fields = rest.split()
    try:
        # proc(5) counts fields from 1 and the state is the third: field n stands at n - 3
        return Stat(
            pid=int(number),
            comm=comm,
            state=fields[0],
            parent=int(fields[1]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            started=int(fields[19]),
            image=int(fields[47]) if len(fields) > 47 else 0,
            kernel=bool(int(fields[6]) & _PF_KTHREAD),
        )
    except (ValueError, IndexError):
        return None


def parse_status(text: str) -> Status:
    """Reads `/proc/PID/status`; a line that is absent leaves its default."""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def number(name: str, base: int = 10) -> int:
        words = lines.get(name, "").split()
        try:
            return int(words[0], base) if words else 0
        except ValueError:
            return 0

    return Status(
        tracer=number("TracerPid"),
        pids=tuple(int(word) for word in lines.get("NSpid", "").split() if word.isdigit()),
        uid=number("Uid"),
        capabilities=number("CapEff", 16),
        seccomp=number("Seccomp"),
        switches=number("voluntary_ctxt_switches"),
    )


def parse_arguments(read: bytes | Reason) -> tuple[str, ...]:
    """Splits a command line as the kernel keeps it, each argument ended by a zero byte."""
    if isinstance(read, Reason):
        return ()
    return (
        tuple(part.decode("utf-8", "surrogateescape") for part in read.removesuffix(b"\0").split(b"\0")) if read else ()
    )


def parse_environ(read: bytes, names: frozenset[str]) -> dict[str, str]:
    """The variables of an environment whose name is in `names`; nothing else is kept, for an environment holds secrets."""
    found: dict[str, str] = {}
    for entry in read.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and (key := name.decode("utf-8", "replace")) in names:
            found.setdefault(key, value.decode("utf-8", "replace"))
    return found


def _numbers(folder: str) -> tuple[int, ...]:
    try:
        return tuple(sorted(map(int, filter(str.isdigit, os.listdir(folder)))))
    except OSError:
        return ()


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        read = part = os.read(fd, 1 << 16)  # all of nearly every file there is
        while part and len(read) < _MOST_BYTES:
            part = os.read(fd, 1 << 16)
            read += part
        return read
    finally:
        os.close(fd)
