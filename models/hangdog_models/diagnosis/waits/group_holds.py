"""The waits of one process group: which members are inside its oldest operation, and which have not come."""

from collections.abc import Container, Iterable, Mapping, Sequence

from hangdog_models.collectives import COALESCED, UNNAMED, WATCHDOG
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.waits.laggards import ends_together
from hangdog_models.diagnosis.waits.positions import DEFAULT_GROUP, Group, Position, called, operation
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank
from hangdog_models.topology import WORLD, Topology


def stuck(
    group: Group,
    positions: Mapping[Rank, Position],
    unrecorded: set[Rank],
    look: Look,
    topology: Topology,
    whole: bool,
) -> tuple[list[GroupWait], dict[Rank, str]]:
    """The waits of one group, oldest operation first, and the ranks whose device has not reached what they launched.

    `whole`: the ranks that used the group may be all its members, where no recorder lists them.
    """
    name, listed = group
    members = listed or _members(name, positions, topology)
    dim = _dim(members, topology) or f"group {name}"
    pending = {rank: p for rank, p in positions.items() if p.completed < p.enqueued}
    holds: list[GroupWait] = []
    behind: dict[Rank, str] = {}
    for number in sorted({p.completed + 1 for p in pending.values()}):
        at_it = sorted(rank for rank, p in pending.items() if p.completed + 1 == number)
        inside = tuple(rank for rank in at_it if (begun := pending[rank].started) is None or begun >= number)
        # where no device has begun and a member has not launched it, that member is who they wait for
        if not inside and any(p.enqueued < number for p in positions.values()):
            inside = tuple(at_it)
        if not inside or operation(positions[inside[0]], name, number) == COALESCED:
            continue  # a batch of sends counts as a collective before torch 2.7, so stages differ: see transfers
        running = operation(positions[inside[0]], name, number)
        what = f"{running} {number} of {called(name, positions)}"
        with_them = {look[rank].place for rank in inside if rank in look}
        assumed = tuple(
            rank
            for rank in members
            if rank in unrecorded and rank not in positions and not _elsewhere(look.get(rank), with_them)
        )
        awaited = tuple(
            rank
            for rank in members
            if rank not in inside and rank not in assumed and _late(positions.get(rank), number)
        )
        if ends_together(running) and _ended_without(awaited, positions, number):
            continue  # they came all the same: the completion is newer than their own records
        for rank in awaited:
            position = positions.get(rank)
            if position is not None and position.enqueued >= number:
                behind.setdefault(rank, what)
        lasting = all(positions[rank].record.source == WATCHDOG for rank in inside)
        complete = len(inside) + len(assumed) == len(members) and (
            bool(listed) or (whole and not _may_be_more(members, unrecorded, look, with_them))
        )
        # where others are late, who left no dump waits for them as well if its stack is where those inside are
        alike = tuple(rank for rank in assumed if awaited and rank in look and look[rank].frames)
        guessed = assumed if complete else alike
        inside = tuple(sorted((*inside, *guessed)))
        begun = lasting or any(positions[rank].started is not None for rank in inside if rank in positions)
        holds.append(
            GroupWait(
                dim,
                inside,
                awaited,
                what,
                counted=True,
                complete=complete,
                lasting=lasting,
                assumed=len(guessed),
                group=name,
                begun=begun,
            )
        )
    return holds, behind


def _elsewhere(state: RankState | None, with_them: Container[object]) -> bool:
    """Whether its stack is known, and no rank inside is at its call site."""
    return state is not None and bool(state.frames) and state.place not in with_them


def one_of_several(
    group: Group, groups: Mapping[Group, Mapping[Rank, Position]], topology: Topology, absent: Container[Rank]
) -> bool:
    """Whether the ranks that used a group are all its members.

    They are not if it has more members, by the number of one of them in it. Else they are if they are a group of the layout, or most of the job. They are if another group was used by other ranks
    only: a program divides its ranks among groups. If every other group overlaps theirs, they may be only a part. So they may
    where a rank's lines name no group: it may have used this one. So may ranks of which there is nothing at all (`absent`), where
    only logs tell who used the group.
    """
    users = frozenset(groups[group])
    if any(position.record.least_sizes.get(group[0], 0) > len(users) for position in groups[group].values()):
        return False
    if _dim(tuple(sorted(users)), topology) is not None:
        return True
    if any(name.startswith(UNNAMED) and not users.issuperset(ranks) for (name, _), ranks in groups.items()):
        return False
    if 2 * len(users) > topology.world_size:
        return True
    logged = all(position.record.source == WATCHDOG for position in groups[group].values())
    if logged and any(rank in absent for rank in topology.groups[WORLD][0]):
        return False
    others = [ranks for ranks in groups.values() if not users.issuperset(ranks)]
    return not others or any(users.isdisjoint(ranks) for ranks in others)


def _may_be_more(
    members: Sequence[Rank], unrecorded: Container[Rank], look: Look, with_them: Container[object]
) -> bool:
    """Whether an unlisted group may have more members: it has one only, or unrecorded ranks are at its call sites."""
    known = frozenset(members)
    return len(known) < 2 or any(
        rank in unrecorded and rank not in known and state.place in with_them for rank, state in look.items()
    )


def _late(position: Position | None, number: int) -> bool:
    """Whether it is not yet in operation `number`: it never launched it, or its device has not got there."""
    if position is None or position.enqueued < number:
        return True
    return position.completed < number and (
        position.completed + 1 < number or (position.started is not None and position.started < number)
    )


def _ended_without(awaited: Iterable[Rank], positions: Mapping[Rank, Position], number: int) -> bool:
    """Whether an operation has ended on some rank although one of these never launched it, by its own record."""
    known = (positions[rank] for rank in awaited if rank in positions)
    ended = any(position.counts_done and position.completed >= number for position in positions.values())
    return ended and any(position.enqueued < number for position in known)


def _members(name: str, positions: Mapping[Rank, Position], topology: Topology) -> tuple[Rank, ...]:
    """The members of a group without a list.

    All ranks, if it is described as the default group. Else the group of the layout that is exactly its users. Else all
    ranks if more than half used it, or only its users.
    """
    world = topology.groups[WORLD][0]
    if any(position.record.descriptions.get(name) == DEFAULT_GROUP for position in positions.values()):
        return world
    users = set(positions)
    for dim_groups in topology.groups.values():
        for ranks in dim_groups:
            if len(ranks) > 1 and len(users) == len(ranks) and users.issuperset(ranks):
                return ranks
    # More than half of the job used it, so it is the whole job's, and ranks without a record are members too.
    return world if 2 * len(users) > len(world) else tuple(sorted(users))


def _dim(members: tuple[Rank, ...], topology: Topology) -> str | None:
    """The dimension that has exactly these members as a group.

    The first member's groups are looked up, which needs no search.
    """
    if members:
        for dim in topology.dims:
            if topology.group(dim, members[0]) == members:
                return dim
    return None
