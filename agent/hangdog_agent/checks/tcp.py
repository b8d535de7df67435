"""Checks the TCP connections of training processes for data that nobody acknowledges, however often the kernel sends it again.

A process that hangs or is stopped still acknowledges, for its kernel does. So what stays unacknowledged was lost on the way,
or the machine at the other end is gone: no program does that. RDMA traffic is not seen here.

Whose end it is shows where a machine has no way to the other end any more: its own interface is down, and took its routes along.
"""

import contextlib
import ipaddress
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hangdog_agent.checks.check_paths import CheckPaths, names, text
from hangdog_agent.checks.check_result import CheckKind, CheckResult, Component, Moment, state
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.counts import counted
from hangdog_models.findings import Impact
from hangdog_models.ranks import Rank, format_ranks

_SOURCE = "TCP"
#: Network namespaces looked at: a machine's containers have one each.
_MOST_NAMESPACES = 64
#: Open files of one process that are looked through for its connections.
_MOST_FILES = 1 << 16
#: Share of a core that reading tables takes at most: the kernel goes over all it has room for (30 ms on a machine with three
#: connections), and a machine on a lossy network always has new time-outs.
_SHARE = 0.01
#: Other ends that are named: of a network that is gone a few say it all.
_MOST_ENDS = 8
#: The state of an open connection in `net/tcp`, and its timers (get_tcp4_sock in the kernel's tcp_ipv4.c): one waits for the
#: acknowledgement of data, the other probes a window that the other end has closed, because its process does not read.
_ESTABLISHED, _RETRANSMITS, _PROBES = "01", "01", "04"
#: The kernel gives a connection up after some 15 of these: more is nonsense.
_MOST_TIMES = 1 << 16
_WHOLE = re.compile(r"\d{1,20}", re.ASCII)
#: A route by which nothing may go (RTF_REJECT).
_REJECTS = 0x0200
#: What the kernel counts as either of them runs out: its line in `net/netstat`, and the names.
_TIME_OUTS = ("TcpExt:", ("TCPTimeouts", "TCPWinProbe"))
#: Where the own interface is down it counts in `net/snmp` that there is no way, and no time-out. Other programs may have none at any
#: time, so for that alone a table is read only so rarely. Seconds.
_NO_WAY, _NO_WAY_S = ("Ip:", ("OutNoRoutes",)), 20.0


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """A connection whose data, or probe for room, was sent again `times` times in a row; `end` is the other end's address."""

    end: str
    times: int
    inode: str


@dataclass(frozen=True, slots=True)
class _TcpSeen:
    """A namespace's past: the time-outs it had counted as its table was read, when that was, and what was found there.

    `no_way`: how often something had no way to go. `cut_off` are the other ends to which trainers have none.
    """

    time_outs: int | None = None
    no_way: int | None = None
    read_at: float = float("-inf")
    lost: tuple[tuple[Rank, Unacknowledged], ...] = ()
    cut_off: frozenset[str] = frozenset()


class Tcp:
    """The check; `trainers` are the ranks of the training processes by their pid.

    A table is read only where the kernel counts new time-outs.
    """

    name = "tcp"

    def __init__(
        self, places: CheckPaths, settings: CheckSettings, trainers: Callable[[], Mapping[int, Rank]] = dict
    ) -> None:
        self.every_s = settings.tcp_every_s
        self._proc = places.proc
        self._resent = settings.tcp_resent
        self._trainers = trainers
        self._seen: dict[str, _TcpSeen] = {}
        #: Seconds spent on tables and not yet paid for, and when that was reckoned.
        self._owed, self._at = 0.0, 0.0

    def supported(self) -> str:
        return "" if isinstance(text(self._proc / "self/net/tcp", 64), str) else "the kernel tells no TCP connections"

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        self._owed = max(0.0, self._owed - _SHARE * (moment.now - self._at))
        self._at = moment.now
        here = self._namespaces()
        past = {namespace: self._seen.get(namespace, _TcpSeen()) for namespace in here}
        self._seen = {
            namespace: self._look(here[namespace], seen, moment)
            for namespace, seen in sorted(past.items(), key=lambda item: item[1].read_at)
        }
        reported: dict[str, list[tuple[Rank, Unacknowledged]]] = {}
        for seen in self._seen.values():
            for rank, one in seen.lost:
                reported.setdefault(one.end, []).append((rank, one))
        worst = sorted(reported.items(), key=lambda item: (-max(one.times for _, one in item[1]), item[0]))
        unanswered = tuple(self._result(end, lost, moment) for end, lost in worst[:_MOST_ENDS])
        cut_off = sorted({end for seen in self._seen.values() for end in seen.cut_off})[:_MOST_ENDS]
        return (*unanswered, *(self._cut_off(end, moment) for end in cut_off))

    def close(self) -> None:
        pass

    def _result(self, end: str, lost: Sequence[tuple[Rank, Unacknowledged]], moment: Moment) -> CheckResult:
        ranks = sorted({rank for rank, _ in lost})
        who = f"ranks {format_ranks(ranks)} send" if len(ranks) > 1 else f"rank {ranks[0]} sends"
        words = (
            f"what {who} to {end} is not acknowledged: sent again {counted(max(one.times for _, one in lost), 'time')}"
        )
        words += f", on {len(lost)} connections" if len(lost) > 1 else ""
        stated = "TCP unacknowledged", Impact.UNACKNOWLEDGED, words
        return state(self.name, _SOURCE, Component(CheckKind.PEER, end), stated, moment)

    def _cut_off(self, end: str, moment: Moment) -> CheckResult:
        words = (
            f"this machine has no route to {end}, to which its trainers are connected: an interface of its own is down"
        )
        stated = "no route to a peer", Impact.SUSPECTS, words
        return state(self.name, _SOURCE, Component(CheckKind.PEER, end), stated, moment)

    def _look(self, trainers: Mapping[int, Rank], seen: _TcpSeen, moment: Moment) -> _TcpSeen:
        """What a namespace shows now; what it showed before where its table need not, or may not yet, be read."""
        pid = next(iter(trainers))
        net = self._proc / str(pid) / "net"
        count, no_way = counts(text(net / "netstat"), _TIME_OUTS), counts(text(net / "snmp"), _NO_WAY)
        strays = no_way != seen.no_way and moment.now - seen.read_at >= _NO_WAY_S
        due = seen.lost or count is None or count != seen.time_outs or strays
        if not due or self._owed >= _SHARE * self.every_s:
            return seen
        began = time.thread_time()
        lost = tuple(self._owned(trainers, self._unacknowledged(pid)))
        cut_off = without_route({one.end for _, one in lost}, text(net / "route")) if lost else frozenset()
        self._owed += time.thread_time() - began  # of this thread alone: on a busy machine it waits for a core, too
        return _TcpSeen(count, no_way, moment.now, lost, cut_off)

    def _namespaces(self) -> dict[str, dict[int, Rank]]:
        """The training processes of each network namespace; those that are gone are in none."""
        found: dict[str, dict[int, Rank]] = {}
        for pid, rank in self._trainers().items():
            try:
                namespace = os.readlink(self._proc / str(pid) / "ns/net")
            except OSError:
                continue
            if namespace in found or len(found) < _MOST_NAMESPACES:
                found.setdefault(namespace, {})[pid] = rank
        return found

    def _unacknowledged(self, pid: int) -> Iterator[Unacknowledged]:
        for table in ("tcp", "tcp6"):
            read = text(self._proc / str(pid) / "net" / table)
            for one in parse(read) if isinstance(read, str) else ():
                if one.times >= self._resent:
                    yield one

    def _owned(
        self, trainers: Mapping[int, Rank], found: Iterable[Unacknowledged]
    ) -> Iterator[tuple[Rank, Unacknowledged]]:
        """Those connections that one of the processes holds open, each with its rank: others of the machine are not the job's."""
        wanted = {f"socket:[{one.inode}]": one for one in found}
        for pid, rank in trainers.items() if wanted else ():
            folder = self._proc / str(pid) / "fd"
            for name in names(folder)[:_MOST_FILES]:
                try:
                    one = wanted.pop(os.readlink(folder / name), None)
                except OSError:
                    continue
                if one is not None:
                    yield rank, one


def counts(read: str | int, of: tuple[str, Sequence[str]]) -> int | None:
    """What a namespace's `net/netstat` or `net/snmp` counts under some names of a line, together; None where it does not tell."""
    head, wanted = of
    lines = [line.split() for line in read.splitlines() if line.startswith(head)] if isinstance(read, str) else []
    reported = dict(zip(*lines, strict=False)) if len(lines) == 2 else {}
    found = [reported[name] for name in wanted if name in reported]
    return sum(map(int, found)) if found and all(map(_WHOLE.fullmatch, found)) else None


def parse(read: str) -> Iterator[Unacknowledged]:
    """The open connections of a `net/tcp` or `net/tcp6` that wait for an acknowledgement; rows that make no sense are left out."""
    for line in read.splitlines()[1:]:
        words = line.split()
        if len(words) < 10 or words[3] != _ESTABLISHED:
            continue
        timer, inode = words[5].partition(":")[0], words[9]
        # the column that the heading calls a timeout holds the probes that nobody answered
        number, base = {_RETRANSMITS: (words[6], 16), _PROBES: (words[8], 10)}.get(timer, ("", 10))
        try:
            times = int(number, base)
        except ValueError:
            continue
        end = address(words[2].partition(":")[0])
        if end and 0 < times < _MOST_TIMES and inode.isdigit():
            yield Unacknowledged(end, times, inode)


def without_route(ends: Collection[str], read: str | int) -> frozenset[str]:
    """Those of some addresses, of version 4, that no route of a namespace's `net/route` leads to; none where it does not tell."""
    if not isinstance(read, str) or not read.startswith("Iface"):
        return frozenset()
    routes: list[tuple[int, int]] = []
    for row in map(str.split, read.splitlines()[1:]):
        with contextlib.suppress(ValueError, IndexError):
            if not int(row[3], 16) & _REJECTS:
                routes.append((int(row[1], 16), int(row[7], 16)))
    found: set[str] = set()
    for end in ends:
        parsed = ipaddress.ip_address(end)
        number = int.from_bytes(parsed.packed, sys.byteorder)  # as the kernel prints routes
        if parsed.version == 4 and not any(number & mask == network for network, mask in routes):
            found.add(end)
    return frozenset(found)


def address(written: str) -> str:
    """An address as the kernel writes it, words of this machine's byte order in hexadecimal; empty where it is none."""
    try:
        words = [bytes.fromhex(written[at : at + 8]) for at in range(0, len(written), 8)]
        packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
        found = ipaddress.ip_address(packed)
    except ValueError:
        return ""
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
