"""Operations that a rank skipped, or launched second, while its peers wait for it there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.waits.positions import Group, Position
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank


class LaunchOrder(Enum):
    """How the records of two sides show that each waits for the other."""

    NEVER = auto()  # one side skipped the operation, and launched what the other launched after it
    SECOND = auto()  # one side launched both in the opposite order
    MUTUAL = auto()  # neither side launched what the other is in


@dataclass(frozen=True, slots=True)
class LeftOut:
    """`ranks` are awaited in `hold` by those `inside`, and launched number `then` of group `other` instead."""

    hold: GroupWait
    ranks: tuple[Rank, ...]
    inside: tuple[Rank, ...]
    other: str
    then: int
    way: LaunchOrder


Positions = Mapping[str, Mapping[Rank, Position]]


def find(holds: Sequence[GroupWait], groups: Mapping[Group, Mapping[Rank, Position]]) -> list[LeftOut]:
    """The operations that a rank skipped or launched second.

    A host launches in program order, so a rank that is merely behind has launched neither operation.

    Several threads, such as a saving one, may enter groups independently. Then the later operation does not wait for
    the earlier one. So the records have to show that it does.
    """
    positions: dict[str, dict[Rank, Position]] = {}
    for (name, _), users in groups.items():
        positions.setdefault(name, {}).update(users)
    running = [hold for hold in holds if hold.counted and hold.group and hold.awaited and hold.begun]
    waits_in: dict[Rank, list[GroupWait]] = {}
    for hold in running:
        for rank in hold.inside:
            waits_in.setdefault(rank, []).append(hold)
    return [one for hold in running for one in _of(hold, positions, waits_in)]


def _of(hold: GroupWait, positions: Positions, waits_in: Mapping[Rank, Sequence[GroupWait]]) -> Iterator[LeftOut]:
    """At most one, by the first operation that shows it."""
    here = positions.get(hold.group, {})
    inside = [rank for rank in hold.inside if rank in here]
    number = max((here[rank].completed + 1 for rank in inside), default=-1)
    late = [rank for rank in hold.awaited if rank in here]
    missed = [rank for rank in late if here[rank].enqueued < number]
    behind: dict[tuple[str, int], list[Rank]] = {}
    for rank in inside if late else ():
        for operation in _behind(here[rank].record, hold.group, number):
            behind.setdefault(operation, []).append(rank)
    for (name, then), them in behind.items():
        there = positions.get(name, {})
        never = tuple(rank for rank in missed if rank in there and there[rank].enqueued >= then)
        crossed = (rank for rank in late if (hold.group, number) in _behind(here[rank].record, name, then))
        if found := never or tuple(crossed):
            yield LeftOut(hold, found, tuple(them), name, then, LaunchOrder.NEVER if never else LaunchOrder.SECOND)
            return
    for rank in missed:
        for other in waits_in.get(rank, ()):
            there = positions[other.group]
            then = there[rank].completed + 1 if rank in there else -1
            if inside and all(one in other.awaited and one in there and there[one].enqueued < then for one in inside):
                yield LeftOut(hold, (rank,), tuple(inside), other.group, then, LaunchOrder.MUTUAL)
                return


def _behind(record: RankCounters, group: str, number: int) -> Iterable[tuple[str, int]]:
    """What a rank launched in other groups after an operation that runs, and has not begun: the first of each group."""
    found: dict[str, int] = {}
    runs = False
    for entry in record.entries:
        if entry.group == group and entry.sequence == number and not entry.p2p:
            runs = entry.started is True
        elif runs and entry.group != group and not (entry.p2p or entry.done or entry.started):
            found.setdefault(entry.group, entry.sequence)
    return found.items()
