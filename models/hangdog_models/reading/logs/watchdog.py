"""Reads the lines of PyTorch's NCCL watchdog: which operation timed out, and how far each process group had come.

Three formats are in use: the operation alone with `[Rank 1]` (before torch 2.3), `[PG 1 Rank 1] Timeout at NCCL work`
(2.3, 2.4) and `[PG ID 0 PG GUID 0(default_pg) Rank 1] ... PG status` (since 2.5). The rank in these brackets is that
inside the group; only in the default group it is the job's.
"""

import re
from dataclasses import dataclass, field, replace

from hangdog_models.collectives import UNNAMED, CollectiveRecord
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.logs.log_counters import LogCounters, raise_to

#: The name of the default process group in PyTorch.
DEFAULT_GROUP = "0"
#: The group of counts that no line names, where the log tells of one group only.
ONLY = "without a name"
#: What the watchdog writes of an operation that NCCL reported an error of.
_FAILED = "raised the following async exception"
#: An element count that PyTorch writes where it has none (COALESCED): -1 as an unsigned number.
_NO_COUNT = (1 << 64) - 1
_GROUP = re.compile(
    r"\[PG (?:ID \d{1,9}\s?PG GUID ([^\s(\]]{1,128})|([^\s(\]]{1,128})) ?(?:\(([^)]{0,128})\))? ?Rank (\d{1,7})\]"
)
_WORK = re.compile(r"WorkNCCL\(([^()]{1,400}?),? Timeout\(ms\)=(\d{1,20})\)(?: ran for (\d{1,20}) milliseconds)?")
_FIELD = re.compile(r"(\w{1,20})=([^,\[]{1,64})")
_AT_WORK = re.compile(r"(?:at NCCL work|at work|at work sequence id): (-?\d{1,20})")
#: Whose line it is, before torch 2.3: the number in a group that no line names.
_SPEAKER = re.compile(r"\[Rank (\d{1,7})\]")
_STATUS = re.compile(r"[Ll]ast (enqueued|started|completed) (?:NCCL )?work: (-?\d{1,20})")


@dataclass(frozen=True, slots=True)
class GroupPrefix:
    """What `[PG … Rank …]` says: the group's name, the same on all its members, its description, the rank inside it."""

    name: str
    description: str
    number: int

    @property
    def rank(self) -> Rank | None:
        """The global rank, where the group is the default one."""
        return Rank(self.number) if is_default(self.name, self.description) and self.number <= MAX_RANK else None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """An operation the watchdog gave up: `group` empty where the line does not name it; times in milliseconds.

    `failed`: for an error that NCCL reported, and not because its time was over. `number`: that of the rank in its group.
    """

    group: str
    sequence: int
    operation: str
    sizes: tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
    timeout_ms: int
    ran_ms: int | None
    failed: bool = False
    number: Rank | None = None


@dataclass(slots=True)
class Watched:
    """What the watchdog lines of one process say. Operations without a group wait until a line names it.

    `loose` are the counts of lines that name no group, each line's by its words. `unnumbered` are the operations that each
    speaker gave up, where lines give neither a group nor a number (before torch 1.13). `numbered` are those with a number.
    `given_up` is the operation of each group at which its watchdog gave up, whether or not a line tells which operation that is.
    """

    counted: LogCounters
    timed_out: list[TimedOut] = field(default_factory=list)
    groups: dict[int, str] = field(default_factory=dict)
    loose: set[tuple[tuple[str, int], ...]] = field(default_factory=set)
    unnumbered: dict[Rank, set[str]] = field(default_factory=dict)
    numbered: dict[Rank, set[tuple[str, int]]] = field(default_factory=dict)
    given_up: dict[str, int] = field(default_factory=dict)


#: What the watchdog writes as it gives an operation up.
_GAVE_UP = ("Timeout at NCCL work", "failure detected by watchdog")
#: Timed out operations of one process that are kept: after the first few everything is consequence.
_MOST = 64
#: Counts without a group that are kept; two are as many as tell that there are several groups.
_LOOSE = 2


def is_default(name: str, description: str) -> bool:
    """Whether a group is the default one, in which ranks have their global numbers."""
    return name == DEFAULT_GROUP or description == "default_pg"


def unnamed(operation: str, sequence: int) -> str:
    """The name under which an operation stands whose group no line names."""
    return f"{UNNAMED}{operation} {sequence}"


def group_of(line: str, limits: Limits) -> GroupPrefix | None:
    """The process group a line speaks of, if it does."""
    found = _GROUP.search(line)
    if found is None:
        return None
    description = text_of(found[3] or "", limits)
    name = text_of(found[1] or found[2], limits)
    return GroupPrefix(name, "" if description == "undefined" else description, int(found[4]))


def take(watched: Watched, line: str, group: GroupPrefix | None, limits: Limits) -> None:
    """Notes what a line says."""
    counted = watched.counted
    if group is not None:
        if group.description:
            counted.descriptions[group.name] = group.description
        raise_to(counted.least_sizes, group.name, group.number + 1)
        for kind, number in _STATUS.findall(line):
            raise_to(getattr(counted, kind), group.name, int_of(number))
        if at := _AT_WORK.search(line):
            number = int_of(at[1]) or 0
            watched.groups.setdefault(number, group.name)
            if any(mark in line for mark in _GAVE_UP) and len(watched.given_up) < _MOST:
                watched.given_up.setdefault(group.name, number)
    elif len(watched.loose) < _LOOSE and (counts := _STATUS.findall(line)):
        watched.loose.add(tuple((kind, number) for kind, digits in counts if (number := int_of(digits)) is not None))
    work = _WORK.search(line)
    if work is None or len(watched.timed_out) >= _MOST:
        return
    about = dict(_FIELD.findall(work[1]))
    sequence = int_of(about.get("SeqNum"))
    if group is None and _FAILED not in line and (rank := speaker(line)) is not None:
        operation = operation_of(text_of(about.get("OpType"), limits))
        if sequence is None:
            watched.unnumbered.setdefault(rank, set()).add(operation)
        else:
            watched.numbered.setdefault(rank, set()).add((operation, sequence))
    timed_out = TimedOut(
        group.name if group is not None else "",
        -1 if sequence is None else sequence,
        text_of(about.get("OpType"), limits),
        (_sizes(about.get("NumelIn")), _sizes(about.get("NumelOut"))),
        int_of(work[2]) or 0,
        int_of(work[3]),
        _FAILED in line,
        speaker(line),
    )
    same = (timed_out.sequence, timed_out.operation)
    for place, known in enumerate(watched.timed_out):
        if (known.sequence, known.operation) == same and (known.group == timed_out.group or not known.group):
            watched.timed_out[place] = timed_out
            return
        if (known.sequence, known.operation) == same and not timed_out.group:
            return
    watched.timed_out.append(timed_out)


def speaker(line: str) -> Rank | None:
    """The number of the process in its group, where the line says it and names no group."""
    found = _SPEAKER.search(line) if "[PG " not in line else None
    return Rank(int(found[1])) if found and int(found[1]) <= MAX_RANK else None


def sides(watched: Watched) -> list[tuple[str, tuple[Rank, ...]]]:
    """The operations without numbers that ranks gave up, the one of the fewest ranks first; empty where all gave up one.

    Empty as well where a rank gave up several: its number then stands for members of several groups.
    """
    by_operation: dict[str, list[Rank]] = {}
    for rank, operations in watched.unnumbered.items():
        if len(operations) > 1:
            return []
        by_operation.setdefault(min(operations), []).append(rank)
    if len(by_operation) < 2:
        return []
    found = [(operation, tuple(sorted(ranks))) for operation, ranks in by_operation.items()]
    return sorted(found, key=lambda side: (len(side[1]), side[1]))


def together(watched: Watched) -> dict[Rank, LogCounters]:
    """What each rank counted where several gave up one operation, and no line says whose it is but by the number in a group.

    Empty where they gave up several: these numbers then stand for members of several groups.
    """
    works = {work for works in watched.numbered.values() for work in works}
    if len(works) != 1 or len(watched.numbered) < 2 or any(work.group for work in watched.timed_out):
        return {}
    operation, sequence = works.pop()
    group, least = unnamed(operation.removeprefix("nccl:"), sequence), max(watched.numbered) + 1
    found = {}
    for rank in watched.numbered:
        counted = found[rank] = LogCounters(watched.counted.source, least_sizes={group: least})
        counted.add(CollectiveRecord(group, sequence, operation, False, ()))
        counted.completed[group] = sequence - 1 if sequence > 1 else -1
    return found


def settled(watched: Watched) -> list[TimedOut]:
    """The timed out operations with their groups, noted as enqueued and not completed.

    Where no line names the group, ranks that timed out in the same operation count as one group, and nobody is said to
    lag behind it: sequence numbers of different groups cannot be compared. A log with one status of one group is another matter.
    """
    found = []
    alone = len(watched.loose) == 1 and not watched.counted.enqueued.keys() - {ONLY}
    if alone:
        for kind, number in next(iter(watched.loose)):
            raise_to(getattr(watched.counted, kind), ONLY, number)
    for work in watched.timed_out:
        group = (
            work.group
            or watched.groups.get(work.sequence)
            or (ONLY if alone else unnamed(work.operation, work.sequence))
        )
        found.append(replace(work, group=group))
        if work.sequence < 0:
            continue
        watched.counted.add(
            CollectiveRecord(
                group, work.sequence, operation_of(work.operation), False, work.sizes[0], output_sizes=work.sizes[1]
            )
        )
        if work.number is not None:
            raise_to(watched.counted.least_sizes, group, work.number + 1)
        # The watchdog takes operations in their order: the ones before were done.
        watched.counted.completed.setdefault(group, work.sequence - 1 if work.sequence > 1 else -1)
    return found


def operation_of(kind: str) -> str:
    """`ALLREDUCE` as the flight recorder writes it: `nccl:all_reduce`."""
    return "nccl:" + _OPERATIONS.get(kind.upper(), kind.lower())


_OPERATIONS = {
    "ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "_ALLGATHER_BASE": "_all_gather_base",
    "REDUCESCATTER": "reduce_scatter", "ALLTOALL": "all_to_all", "ALLTOALL_BASE": "all_to_all_single",
    "ALLREDUCE_COALESCED": "allreduce_coalesced",
}  # fmt: skip


def _sizes(count: str | None) -> tuple[tuple[int, ...], ...]:
    number = int_of(count)
    return () if number is None or not 0 <= number < _NO_COUNT else ((number,),)
