"""Tells whose sockets listen at a TCP port, by the kernel's tables of a network namespace (proc_pid_net(5))."""

from collections.abc import Iterable, Iterator
from pathlib import Path

#: The state of a listening socket.
_LISTENS = "0A"
#: The kernel lists listening sockets before all others, some tens of them.
_MOST_LINES = 10_000


def owners(proc: str, pid: int, port: int) -> set[int]:
    """The users whose sockets listen at that port in the network of a process; empty where nobody does. Raises OSError."""
    found: set[int] = set()
    for table in ("tcp", "tcp6"):
        try:
            with (Path(proc) / str(pid) / "net" / table).open(encoding="ascii", errors="replace") as lines:
                next(lines, None)
                found |= {uid for at, uid in listening(lines) if at == port}
        except FileNotFoundError:
            if table == "tcp":  # without IPv6 there is no tcp6
                raise
    return found


def listening(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Port and user of each listening socket in the rows of a table; ends where the others begin."""
    for count, line in enumerate(lines):
        words = line.split()
        if count >= _MOST_LINES or len(words) < 8 or words[3] != _LISTENS:
            return
        try:
            yield int(words[1].rpartition(":")[2], 16), int(words[7])
        except ValueError:
            return
