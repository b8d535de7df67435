"""How far each rank got in each process group, by all sources that counted it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hangdog_models.collectives import (
    FLIGHT_RECORDER,
    INSPECTOR,
    NCCL_LOG,
    PROFILER,
    WATCHDOG,
    RankCounters,
    counts_of,
)
from hangdog_models.ranks import Rank

#: Trusted in this order, where several sources report on one rank.
SOURCES = (PROFILER, FLIGHT_RECORDER, INSPECTOR, WATCHDOG, NCCL_LOG)
#: How PyTorch (2.2 and later) describes the group of all ranks that init_process_group makes.
DEFAULT_GROUP = "default_pg"


class Position(NamedTuple):
    """How far one rank got in one group, in sequence numbers.

    - `started`: None where the recorder does not know (gloo's).
    - `counts_done`: False if the source records no completions (NCCL's log); `completed` is -1 then.
    """

    enqueued: int
    started: int | None
    completed: int
    record: RankCounters
    counts_done: bool = True


Group = tuple[str, tuple[Rank, ...]]


def operation(position: Position, group: str, number: int) -> str:
    """The name of an operation as this rank recorded it."""
    for entry in position.record.entries:
        if entry.group == group and entry.sequence == number and not entry.p2p:
            return entry.operation.rpartition(":")[2] or "operation"
    return "operation"


def called(name: str, positions: Mapping[Rank, Position]) -> str:
    """A process group as people know it: with the program's own name, where it has one."""
    if any(p.record.source == PROFILER and name not in p.record.descriptions for p in positions.values()):
        return f"communicator {name}"
    described = next((text for p in positions.values() if (text := p.record.descriptions.get(name))), "")
    named = described not in ("", name, DEFAULT_GROUP, "undefined")
    return f"process group {name} ({described})" if named else f"process group {name}"


def ordered(records: Iterable[RankCounters]) -> list[RankCounters]:
    """The records, the most trusted source first, whatever order they came in."""
    return sorted(records, key=lambda record: (SOURCES.index(record.source), record.rank))


def comparable(positions: Mapping[Rank, Position]) -> dict[Rank, Position]:
    """The positions, with completions inferred for sources that record none.

    The furthest rank's last launch counts as under way wherever it was launched, if some rank has not launched it. If
    all have, nothing is inferred.
    """
    furthest = max((position.enqueued for position in positions.values()), default=-1)
    late = any(position.enqueued < furthest for position in positions.values())
    return {
        rank: p if p.counts_done else p._replace(completed=p.enqueued - (late and p.enqueued == furthest))
        for rank, p in positions.items()
    }


def by_group(records: Iterable[RankCounters]) -> dict[Group, dict[Rank, Position]]:
    """The positions of all ranks in each group, by its name and listed members. Of several sources the first counts.

    PyTorch keeps one count for a group's collectives and messages, which have numbers of their own. So if any rank
    sends or receives in a group, only its recorded operations count: pipeline stages differ in a sound job.
    """
    records = list(records)
    messages = {e.group for record in records if record.source != PROFILER for e in record.entries if e.p2p}
    found: dict[Group, dict[Rank, Position]] = {}
    for record in records:
        recorded = counts_of(entry for entry in record.entries if entry.group in messages) if messages else ({}, {})
        for name, counted in record.enqueued.items():
            enqueued = recorded[0].get(name, -1) if name in messages else counted
            if enqueued < 0:
                continue
            completed = (recorded[1] if name in messages else record.completed).get(name, -1)
            started = record.started.get(name)
            if started is not None and started < completed:
                started = None  # gloo never fills it in
            members = record.members.get(name, ())
            counts = Position(enqueued, started, completed, record, name in messages or name in record.completed)
            found.setdefault((name, members), {}).setdefault(record.rank, counts)
    return found
