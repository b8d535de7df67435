"""The addresses under which the trainers of this machine are reached: others name them where what they send is lost.

They are those of the trainers' network namespaces, which may be others than the machine's own, as in a pod.
"""

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from hangdog_agent.procfs import Proc

#: Namespaces that are read, and addresses that are told of a machine.
_MOST_NAMESPACES, MOST = 8, 64
#: The kernel's tree of routes, in which local addresses are leaves of their own.
_LOCAL = re.compile(r"\|-- (\d{1,3}(?:\.\d{1,3}){3})\n\s{1,400}/32 host LOCAL")
#: A row of `net/if_inet6`: an address, and its scope.
_ROW = re.compile(r"^([0-9a-f]{32}) [0-9a-f]{2} [0-9a-f]{2} ([0-9a-f]{2}) ", re.MULTILINE)
_GLOBAL = "00"
#: Characters of such a tree that are read: that of a machine with a thousand routes has a tenth of it.
_LARGEST = 1 << 20


def own_addresses(proc: Proc, pids: Iterable[int], folder: Path = Path("/proc")) -> tuple[str, ...]:
    """The addresses, without those that mean the machine itself or a link; of processes that are gone there are none."""
    namespaces: dict[str, int] = {}
    for pid in pids:
        try:
            namespaces.setdefault(os.readlink(folder / str(pid) / "ns/net"), pid)
        except OSError:
            continue
    found = (address for pid in list(namespaces.values())[:_MOST_NAMESPACES] for address in _of(proc, pid))
    return tuple(sorted(set(found)))[:MOST]


def _of(proc: Proc, pid: int) -> Iterator[str]:
    tree, rows = (
        read[:_LARGEST].decode("ascii", "replace") if isinstance(read := proc.raw(pid, name), bytes) else ""
        for name in ("net/fib_trie", "net/if_inet6")
    )
    for address in _LOCAL.findall(tree):
        if not address.startswith("127."):
            yield address
    for digits, scope in _ROW.findall(rows):
        if scope == _GLOBAL:
            yield str(ipaddress.IPv6Address(int(digits, 16)))
