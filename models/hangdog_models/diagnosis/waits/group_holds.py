"""The waits of one process group: who is inside of its oldest operation, who has not come."""

from collections.abc import Container, Iterable, Mapping, Sequence

from hangdog_models.collectives import COALESCED, WATCHDOG
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
    """The holds of one group, oldest operation first, and the ranks whose device has not reached what they launched.

    `whole`: those that used it may be all of it, where nobody lists its members.
    """
    name, listed = group
    members = listed or _members(name, positions, topology)
    dim = _dim(members, topology) or f"group {name}"
    pending = {rank: p for rank, p in positions.items() if p.completed < p.enqueued}
    holds: list[GroupWait] = []
    behind: dict[Rank, str] = {}
    for number in sorted({p.completed + 1 for p in pending.values()}):
        inside = tuple(
            sorted(
                rank
                for rank, p in pending.items()
                if p.completed + 1 == number and (p.started is None or p.started >= number)
            )
        )
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
            continue  # they came to it all the same: what says so is younger than their own records
        for rank in awaited:
            position = positions.get(rank)
            if position is not None and position.enqueued >= number:
                behind.setdefault(rank, what)
        lasting = all(positions[rank].record.source == WATCHDOG for rank in inside)
        complete = len(inside) + len(assumed) == len(members) and (
            bool(listed) or (whole and not _may_be_more(members, unrecorded, look, with_them))
        )
        guessed = assumed if complete else ()
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
    """Its stack is known, and no rank that is inside stands where it does."""
    return state is not None and bool(state.frames) and state.place not in with_them


def one_of_several(group: Group, groups: Mapping[Group, Mapping[Rank, Position]], topology: Topology) -> bool:
    """Whether the users of a group are all of it: as a group of the layout, or beside another one of other ranks.

    A program parts its ranks among groups. Where the others have used none that these have not, theirs is not known to be apart.
    """
    users = frozenset(groups[group])
    if _dim(tuple(sorted(users)), topology) is not None or 2 * len(users) > topology.world_size:
        return True
    others = [ranks for ranks in groups.values() if not users.issuperset(ranks)]
    return not others or any(users.isdisjoint(ranks) for ranks in others)


def _may_be_more(
    members: Sequence[Rank], unrecorded: Container[Rank], look: Look, with_them: Container[object]
) -> bool:
    """Whether the members of a group that nobody lists may be more: one rank alone waits for nobody, and others stand
    where these do without a record of theirs."""
    known = frozenset(members)
    return len(known) < 2 or any(
        rank in unrecorded and rank not in known and state.place in with_them for rank, state in look.items()
    )


def _late(position: Position | None, number: int) -> bool:
    """Not yet in operation `number`: never launched it, or launched it and the device is not there."""
    if position is None or position.enqueued < number:
        return True
    return position.completed < number and (
        position.completed + 1 < number or (position.started is not None and position.started < number)
    )


def _ended_without(awaited: Iterable[Rank], positions: Mapping[Rank, Position], number: int) -> bool:
    """Whether an operation has ended on somebody that one of these never launched, by its own record."""
    known = (positions[rank] for rank in awaited if rank in positions)
    ended = any(position.counts_done and position.completed >= number for position in positions.values())
    return ended and any(position.enqueued < number for position in known)


def _members(name: str, positions: Mapping[Rank, Position], topology: Topology) -> tuple[Rank, ...]:
    """The members of a group whose recorder lists none: by its description, else by who used it."""
    world = topology.groups[WORLD][0]
    if any(position.record.descriptions.get(name) == DEFAULT_GROUP for position in positions.values()):
        return world
    users = set(positions)
    for dim_groups in topology.groups.values():
        for ranks in dim_groups:
            if len(ranks) > 1 and len(users) == len(ranks) and users.issuperset(ranks):
                return ranks
    # More than half of the world used it: then it is the world's, and who kept no record is a member too.
    return world if 2 * len(users) > len(world) else tuple(sorted(users))


def _dim(members: tuple[Rank, ...], topology: Topology) -> str | None:
    """The dimension that has exactly these members as a group: a group of a rank is looked up, never searched for."""
    if members:
        for dim in topology.dims:
            if topology.group(dim, members[0]) == members:
                return dim
    return None
