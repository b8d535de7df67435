"""Finds ranks that carry no rank: children of one parent that meet at a port, as `mp.spawn` and JAX have them.

Who meets is known (meetings.py), and that the one that listens is rank 0. Which rank each of the others has, is presumed: it is
the number that tells their command lines apart, else they were started in the order of their ranks, as mp.spawn does.

Nothing is read of processes that have no sibling of the same program, and little of those that are no trainers: their open
files and the names of one's threads, again after 4, 8, 16 … seconds, and all of that within a share of the time.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePath
from typing import Protocol

from hangdog_agent.discovery.announced import Announced
from hangdog_agent.discovery.command_line import CommandLine, number
from hangdog_agent.discovery.launchers import launches
from hangdog_agent.discovery.meetings import Meeting, Socket, elsewhere, meeting, parse
from hangdog_agent.procfs import Proc
from hangdog_models.ranks import MAX_RANK, Rank

Key = tuple[int, int]

#: What a child of multiprocessing ends with where it was not forked; its command line tells nothing else.
_SPAWNED = "--multiprocessing-fork"
#: How torch and JAX call their threads from within the first collective on, and torch the one that serves the rendezvous.
_THREADS = re.compile(r"pt_(?:gloo|nccl|tcpstore|autograd|elastic|xccl|hccl)\w*|gloo_\w+|tf_XLA\w*|tf_pjrt\w*|tsl_\w+")
#: Devices that a trainer has open: NVIDIA, AMD, Google, Intel, AWS.
_DEVICES = re.compile(r"/dev/(?:nvidia\d+|kfd|accel\d+|vfio/\d+|hl\d+|neuron\d+)")
_SOCKET = re.compile(r"socket:\[(\d{1,20})\]")
#: Members of one family that are looked at, their open files in all, and threads of one: a machine has some sixteen trainers of
#: a thousand files.
_MEMBERS, _FILES, _TASKS = 256, 1 << 16, 64
#: Most rows of a table of connections that are read, a fifth of a second.
_ROWS = 100_000
#: Seconds until a family is looked at again: doubled each time, up to nine minutes.
_AGAIN_S, _SELDOM_S = 4.0, 540.0
#: Share of a core that all of this takes at most, and seconds of it that may be taken at once.
_SHARE, _AT_ONCE_S = 0.01, 0.1
#: Where a program that was started once a node says which node it is, and of how many.
_NODES = (("NODE_RANK", "NNODES"), ("GROUP_RANK", ""), ("SLURM_PROCID", "SLURM_NTASKS"))
_TRAILING_NUMBER = re.compile(r"(.*?)(\d{1,7})")


class Row(Protocol):
    """What is known of a process already."""

    @property
    def pid(self) -> int: ...
    @property
    def key(self) -> Key: ...
    @property
    def parent(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def comm(self) -> str: ...
    @property
    def python(self) -> bool: ...
    @property
    def arguments(self) -> tuple[str, ...]: ...
    @property
    def environ(self) -> Mapping[str, str] | None: ...
    @property
    def options(self) -> CommandLine: ...


@dataclass(slots=True)
class _Family:
    """Children of one parent that run the same program, and when they are looked at again."""

    members: frozenset[Key] = frozenset()
    wait_s: float = _AGAIN_S
    due: float = 0.0
    met: frozenset[int] = frozenset()
    rows: list[Row] = field(default_factory=list)


class Siblings:
    """Looks at families of processes again and again, and remembers the ranks it has found."""

    def __init__(self, proc: Proc, ranks: frozenset[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._ranks = ranks
        self._clock = clock
        self._families: dict[tuple[int, str], _Family] = {}
        self._found: dict[Key, Announced] = {}
        #: Seconds taken and not yet paid for, and when that was reckoned.
        self._owed, self._at = 0.0, clock()

    def look(self, table: Iterable[Row]) -> Mapping[Key, Announced]:
        """The ranks known by now of the processes in the table."""
        rows = [row for row in table if row.python and row.state not in "ZX"]
        by_pid = {row.pid: row for row in rows}
        living = {row.key for row in rows}
        self._found = {key: announced for key, announced in self._found.items() if key in living}
        now = self._clock()
        self._owed, self._at = max(0.0, self._owed - _SHARE * (now - self._at)), now
        self._families = self._sorted(rows, by_pid, now)
        for family in sorted(self._families.values(), key=lambda family: family.due):
            if family.due > now or self._owed > _AT_ONCE_S:
                break
            began = time.thread_time()
            waits_s, family.wait_s = family.wait_s, min(2 * family.wait_s, _SELDOM_S)
            family.due = now + waits_s
            self._found |= self._ranks_of(family, by_pid.get(family.rows[0].parent))
            self._owed += time.thread_time() - began
        return self._found

    def _sorted(self, rows: Sequence[Row], by_pid: Mapping[int, Row], now: float) -> dict[tuple[int, str], _Family]:
        """The families there are, those that were there with what is known of them."""
        children: dict[tuple[int, str], list[Row]] = {}
        for row in rows:
            if row.key not in self._found and self._may_be(row, by_pid.get(row.parent)):
                children.setdefault((row.parent, _program(row)), []).append(row)
        families: dict[tuple[int, str], _Family] = {}
        for name, members in children.items():
            if not 2 <= len(members) <= _MEMBERS:
                continue
            keys = frozenset(row.key for row in members)
            family = self._families.get(name, _Family(due=now))
            if family.members != keys:
                family = _Family(keys, due=max(now, family.due - family.wait_s) if family.members & keys else now)
            family.rows = sorted(members, key=lambda row: row.key[::-1])
            families[name] = family
        return families

    def _may_be(self, row: Row, above: Row | None) -> bool:
        """Whether a process may be a rank and says none itself; it may have inherited the number of its node from its parent."""
        environ = row.environ
        if (
            environ is None
            or row.options.rank is not None
            or row.comm == "pt_data_worker"
            or row.comm.startswith("ray::")
        ):
            return False
        if launches(row.comm, row.arguments) or (above is not None and above.key in self._found):
            return False
        own = self._ranks & environ.keys()
        lent = above.environ if above is not None and above.environ is not None else {}
        return own <= {"SLURM_PROCID"} and all(
            environ[name] == lent.get(name) or "SLURM_STEP_ID" not in environ for name in own
        )

    def _ranks_of(self, family: _Family, above: Row | None) -> dict[Key, Announced]:
        sockets, devices = self._files(family.rows)
        owners = _sole_owners(sockets)
        with_sockets = [row for row in family.rows if row.pid in set(owners.values())]
        if len(with_sockets) < 2 or not (devices or self._trains(with_sockets)):
            return {}
        table = list(self._table(with_sockets[0].pid, owners))
        met = meeting(table, owners)
        if met is None:
            node, nodes = _node(family.rows[0], above)
            port = elsewhere(self._table(with_sockets[0].pid), owners) if node else 0
            return _of_node(with_sockets, node or 0, nodes, port) if port else {}
        # until all are there, or nobody has come since: who is numbered too early is numbered wrongly
        before, family.met = family.met, met.members
        if met.members not in (before, frozenset(row.pid for row in family.rows)):
            family.due = 0.0
            return {}
        return _numbered([row for row in family.rows if row.pid in met.members], met, above)

    def _files(self, rows: Sequence[Row]) -> tuple[dict[int, set[str]], bool]:
        """The sockets of each process, by inode, and whether one of them has a device open."""
        found: dict[int, set[str]] = {}
        left, devices = _FILES, False
        for row in rows:
            folder = f"{self._proc.root}/{row.pid}/fd"
            try:
                names = os.listdir(folder)[:left]
            except OSError:
                continue
            left -= len(names)
            for name in names:
                try:
                    target = os.readlink(f"{folder}/{name}")
                except OSError:
                    continue
                if socket := _SOCKET.fullmatch(target):
                    found.setdefault(row.pid, set()).add(socket[1])
                devices = devices or _DEVICES.fullmatch(target) is not None
        return found, devices

    def _trains(self, rows: Sequence[Row]) -> bool:
        """Whether the first of them has threads of a framework."""
        pid = rows[0].pid
        comms = (self._proc.stat(pid, tid) for tid in self._proc.tids(pid)[:_TASKS])
        return any(stat is not None and _THREADS.fullmatch(stat.comm) for stat in comms)

    def _table(self, pid: int, inodes: Mapping[str, int] | None = None) -> Iterator[Socket]:
        for name in ("tcp", "tcp6"):
            try:
                with (self._proc.root / str(pid) / "net" / name).open(encoding="ascii", errors="replace") as file:
                    found = parse(islice(file, _ROWS))
                    yield from (one for one in found if inodes is None or one.inode in inodes)
            except OSError:
                continue


def _sole_owners(sockets: Mapping[int, set[str]]) -> dict[str, int]:
    """Who has each socket; what was inherited from a parent, several have, and it tells nothing of any."""
    owners: dict[str, int] = {}
    shared: set[str] = set()
    for pid, inodes in sockets.items():
        shared |= owners.keys() & inodes
        owners |= dict.fromkeys(inodes, pid)
    return {inode: pid for inode, pid in owners.items() if inode not in shared}


def _program(row: Row) -> str:
    """What a process runs, of its command line: the same for all ranks of a job."""
    if row.arguments[-1:] == (_SPAWNED,):
        return _SPAWNED
    script = next((argument for argument in row.arguments[1:] if not argument.startswith("-")), "")
    return f"{PurePath(row.arguments[0]).name if row.arguments else ''} {script}"


def _numbered(rows: Sequence[Row], met: Meeting, above: Row | None) -> dict[Key, Announced]:
    """Ranks of processes of which one listens; none where others elsewhere belong to the job, and no node is numbered."""
    node, nodes = _node(rows[0], above)
    order = sorted(rows, key=lambda row: row.pid != met.first)
    if met.strangers or (nodes or 1) > 1:
        return _of_node(order, 0, nodes, met.port) if node == 0 else {}
    world = len(rows)
    counted = _counted([row.arguments for row in rows])
    first = [row.pid for row in rows].index(met.first)
    if counted is not None and counted[first] == 0:
        source = "the number that tells the command lines of its processes apart"
        return {
            row.key: Announced(Rank(rank), world, "", source, True, met.port)
            for row, rank in zip(rows, counted, strict=True)
        }
    return _in_order(order, 0, world, met.port)


def _of_node(rows: Sequence[Row], node: int, nodes: int, port: int) -> dict[Key, Announced]:
    """Ranks of a node's processes: as many on each node, and counted on from node to node."""
    if (node + 1) * len(rows) > MAX_RANK or (nodes and node >= nodes):
        return {}
    return _in_order(rows, node * len(rows), nodes * len(rows), port)


def _in_order(rows: Sequence[Row], base: int, world: int, port: int) -> dict[Key, Announced]:
    source = "the order in which its processes began"
    found = {row.key: Announced(Rank(base + at), world, "", source, True, port) for at, row in enumerate(rows)}
    if not base:
        sure = replace(found[rows[0].key], source="it listens where the ranks meet", presumed=False)
        found[rows[0].key] = sure
    return found


def _counted(lines: Sequence[tuple[str, ...]]) -> list[int] | None:
    """The number in which command lines differ, if that is all and it counts them: 0, 1, 2 … in any order."""
    if len({len(line) for line in lines}) != 1:
        return None
    differing = [words for words in zip(*lines, strict=True) if len(set(words)) > 1]
    found = [_TRAILING_NUMBER.fullmatch(word[:200]) for word in differing[0]] if len(differing) == 1 else [None]
    if None in found or len({one[1] for one in found if one is not None}) != 1:
        return None
    numbers = [int(one[2]) for one in found if one is not None]
    return numbers if sorted(numbers) == list(range(len(lines))) else None


def _node(row: Row, above: Row | None) -> tuple[int | None, int]:
    """Which node of how many it is, as far as that is told: by the program above, or by the environment both have."""
    for one in (above, row):
        if one is None:
            continue
        if one.options.node is not None:
            return one.options.node, one.options.nodes
        environ = one.environ or {}
        for name, count in _NODES:
            node = number(environ.get(name, ""))
            if node is not None and (name != "SLURM_PROCID" or "SLURM_STEP_ID" in environ):
                return node, number(environ.get(count, "")) or 0
    return None, 0
