"""How far each process group, or communicator of NCCL, got in its collectives, by what PyTorch and NCCL counted."""

from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.collectives import RasCommunicator
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.waits.positions import Position, by_group, ordered
from hangdog_models.diagnosis.waits.profiled import believed, count
from hangdog_models.ranks import Rank, Runs, runs_of

#: Groups shown, the most uneven first; a wide job has thousands that are all alike.
GROUPS = 24
#: Positions shown of one group.
POSITIONS = 12


@dataclass(frozen=True, slots=True)
class At:
    """Ranks at one position: the last operation launched, begun on the device and completed (None: not known)."""

    ranks: Runs
    enqueued: int
    started: int | None
    completed: int | None
    operation: str


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """One group, the least progressed of its ranks first; `stuck`: somebody launched what is not completed."""

    name: str
    description: str
    ranks: Runs
    at: tuple[At, ...]
    stuck: bool
    further: int


@dataclass(frozen=True, slots=True)
class Launches:
    """A communicator as NCCL RAS counts it: how many of its members launched how many operations."""

    name: str
    size: int
    classes: tuple[tuple[int, int], ...]
    odd: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What was counted; `groups_in_all` before the less telling ones were left out."""

    groups: tuple[GroupProgress, ...] = ()
    groups_in_all: int = 0
    communicators: tuple[Launches, ...] = ()


def of(case: Case) -> JobProgress:
    """The progress of each group, those first that are stuck and whose ranks are furthest apart."""
    snapshot = case.snapshot
    records = believed(ordered(snapshot.counters), count(snapshot.progress, case.look, case.topology))
    groups = [_group(name, at) for (name, _), at in by_group(records).items()]
    groups.sort(key=lambda one: (not one.stuck, -_spread(one), -len(one.at), one.name, one.ranks))
    last = snapshot.ras[-1].communicators if snapshot.ras else ()
    launches = sorted(map(_launches, last), key=lambda one: (-len(one.classes), not one.odd, one.name))
    return JobProgress(tuple(groups[:GROUPS]), len(groups), tuple(launches[:GROUPS]))


def _group(name: str, positions: Mapping[Rank, Position]) -> GroupProgress:
    found: dict[tuple[int, int, int], list[Rank]] = {}
    for rank, one in positions.items():
        found.setdefault((one.completed, one.enqueued, -1 if one.started is None else one.started), []).append(rank)
    at = []
    for _, ranks in sorted(found.items(), key=lambda one: (one[0], one[1][0])):
        one = positions[ranks[0]]
        completed = one.completed if name in one.record.completed else None
        at.append(At(runs_of(ranks), one.enqueued, one.started, completed, _operation(one, name)))
    description = next(iter(positions.values())).record.descriptions.get(name, "")
    stuck = any(one.completed is not None and one.completed < one.enqueued for one in at)
    return GroupProgress(name, description, runs_of(positions), tuple(at[:POSITIONS]), stuck, len(at[POSITIONS:]))


def _operation(position: Position, name: str) -> str:
    """The operation the rank is waiting in, or launched last; empty where its entries no longer hold it."""
    wanted = min(position.completed + 1, position.enqueued)
    entries = (e for e in position.record.entries if e.group == name and e.sequence == wanted and not e.p2p)
    return next((entry.operation for entry in entries), "")


def _spread(group: GroupProgress) -> int:
    """Between who launched the most and who is furthest behind."""
    reached = [one.enqueued if one.completed is None else one.completed for one in group.at]
    return max(one.enqueued for one in group.at) - min(reached)


def _launches(communicator: RasCommunicator) -> Launches:
    counted: dict[int, int] = dict(communicator.classes)
    for member in communicator.members if not counted else ():
        launched = sum(member.launched.values())
        counted[launched] = counted.get(launched, 0) + 1
    odd = (
        f"member {one.number}{f' on {one.host}' if one.host else ''}: {one.error or one.status}"
        for one in communicator.members
        if one.error or one.status != "running"
    )
    return Launches(communicator.name, communicator.size, tuple(sorted(counted.items())), tuple(odd)[:POSITIONS])
