"""Where a rank without a dump is assumed: inside one operation only, and none that follows one it is late for."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank


def assumed_once(holds: Sequence[GroupWait], recorded: Container[Rank]) -> list[GroupWait]:
    """The group waits, with each rank without a dump inside one operation only.

    It is the operation with the most recorded members. In the others the rank is late.
    """
    best: dict[Rank, tuple[int, GroupWait]] = {}
    for hold in holds:
        if hold.assumed:
            lost = [rank for rank in hold.inside if rank not in recorded]
            for rank in lost:
                best[rank] = max(
                    best.get(rank, (0, hold)), (len(hold.inside) - len(lost), hold), key=lambda one: one[0]
                )
    found = []
    for hold in holds:
        late = tuple(rank for rank in hold.inside if hold.assumed and rank in best and best[rank][1] is not hold)
        inside = tuple(rank for rank in hold.inside if rank not in late)
        found.append(replace(hold, inside=inside, awaited=late, assumed=0) if late else hold)
    return found


def assumed_in_the_first(
    holds: Sequence[GroupWait], pairs: Sequence[GroupWait], recorded: Container[Rank]
) -> list[GroupWait]:
    """The group waits, with no rank without a dump inside operations that follow a message awaited from it."""
    for_messages: dict[Rank, list[GroupWait]] = {}
    for pair in pairs:
        for rank in pair.awaited:
            if rank not in recorded:
                for_messages.setdefault(rank, []).append(pair)
    late_in = awaited_by_dim(holds) if for_messages else {}
    found = []
    for hold in holds:
        asked = [rank for rank in hold.inside if rank in for_messages] if hold.assumed else []
        late = tuple(rank for rank in asked if any(follows(hold, pair, late_in) for pair in for_messages[rank]))
        inside = tuple(rank for rank in hold.inside if rank not in late)
        found.append(replace(hold, inside=inside, awaited=late, assumed=0, complete=False) if late else hold)
    return found


def awaited_by_dim(holds: Iterable[GroupWait]) -> dict[str | None, set[Rank]]:
    """The ranks awaited in some operation of each kind of group."""
    found: dict[str | None, set[Rank]] = {}
    for hold in holds:
        found.setdefault(hold.dim, set()).update(hold.awaited)
    return found


def follows(hold: GroupWait, other: GroupWait, late_in: Mapping[str | None, Container[Rank]]) -> bool:
    """Whether the operation of `hold` comes after the `other` one, for a rank that takes part in both.

    Replicas run the same operations in the same order, and a rank in the other one is awaited in one of this kind.
    """
    late = late_in.get(hold.dim, ())
    return hold.dim != other.dim and any(rank in late for rank in other.inside)
