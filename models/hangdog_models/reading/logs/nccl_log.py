"""Reads the calls that NCCL writes at level INFO: what a rank enqueued on each communicator. `opCount` is hexadecimal.

A communicator's address means nothing on another rank. Its id does (`commId`, written when it is made); without one,
its size names it, where the log has only one communicator of that size.
"""

import re
from dataclasses import dataclass, field

from hangdog_models.collectives import NCCL_LOG, CollectiveRecord
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.json_document import int_of
from hangdog_models.reading.logs.log_counters import LogCounters
from hangdog_models.reading.logs.watchdog import operation_of

_CALL = re.compile(
    r"NCCL INFO (\w{1,32}): opCount ([0-9a-fA-F]{1,16}) sendbuff \S{1,32} recvbuff \S{1,32} (?:acc \S{1,32} )?"
    r"count (\d{1,20}) datatype (\d{1,4}) op \d{1,4} root (-?\d{1,9}) comm (\S{1,32}) \[nranks=(\d{1,9})\]"
    r"(?:.{0,80}globalrank (\d{1,7}))?"
)
_MADE = re.compile(
    r"NCCL INFO .{0,80}\bcomm (\S{1,32}) rank \d{1,7} n[rR]anks \d{1,7} .{0,200}?commId (0x[0-9a-fA-F]{1,16})"
)
#: Addresses that a process tells of its own machine: of the interface of the bootstrap, and of a RoCE port.
_OWN = re.compile(
    r"NCCL INFO .{0,400}?(?:Bootstrap ?: Using|OOB|NET/Socket ?: Using) (?:\[0\])?[\w.-]{1,32}:([0-9A-Fa-f.:]{2,45}?)(?:%\w{1,32})?<\d{1,5}>"
)
_LOCAL = re.compile(r" localGid (?:::ffff:)?([0-9A-Fa-f.:]{2,45})(?: |$)")
#: ncclDataType_t.
_TYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16", "float8e4m3",
    "float8e5m2",
)  # fmt: skip
_POINT_TO_POINT = ("Send", "Recv")
#: Communicators of one process that are told apart; a rank of the largest jobs has some tens.
_MOST = 4096


@dataclass(slots=True)
class Calls:
    """The calls of one process, by communicator."""

    sizes: dict[str, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    counted: LogCounters = field(default_factory=lambda: LogCounters(NCCL_LOG))


def take(calls: Calls, line: str) -> Rank | None:
    """Notes the call in a line, if there is one; the global rank, where the line tells it (RCCL does)."""
    found = _CALL.search(line)
    if found is None:
        made = _MADE.search(line)
        if made is not None and len(calls.ids) < _MOST:
            calls.ids[made[1]] = made[2]
        return None
    name, count, elements, kind, _root, communicator, size, rank = found.groups()
    if communicator not in calls.sizes and len(calls.sizes) >= _MOST:
        return None
    calls.sizes[communicator] = int(size)
    number = int_of(kind) or 0
    p2p = name in _POINT_TO_POINT
    calls.counted.add(
        CollectiveRecord(
            communicator, int(count, 16), operation_of(_snake(name)), False, ((int(elements),),),
            (_TYPES[number] if number < len(_TYPES) else f"type {number}",), p2p,
        )
    )  # fmt: skip
    return Rank(int(rank)) if rank and int(rank) <= MAX_RANK else None


def own_addresses(line: str) -> list[str]:
    """The addresses of the machine that a line was written on, as far as it tells them."""
    return [found[1] for pattern in (_OWN, _LOCAL) if (found := pattern.search(line))]


def named(calls: Calls) -> LogCounters:
    """The counts with communicators under names that all their members share; those without such a name are left out."""
    sizes = list(calls.sizes.values())
    named = LogCounters(NCCL_LOG)
    for communicator, entries in calls.counted.entries.items():
        size = calls.sizes[communicator]
        if communicator in calls.ids:
            group = f"communicator {calls.ids[communicator]}"
        elif sizes.count(size) == 1:
            group = f"communicator of {size} ranks"
        else:
            continue
        for entry in entries:
            named.add(_renamed(entry, group))
    return named


def _renamed(entry: CollectiveRecord, group: str) -> CollectiveRecord:
    return CollectiveRecord(group, entry.sequence, entry.operation, False, entry.input_sizes, entry.dtypes, entry.p2p)


def _snake(name: str) -> str:
    """`ReduceScatter` as the watchdog writes it: `REDUCESCATTER`."""
    return name.upper()
