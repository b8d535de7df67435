"""Exact waits from collective counters: which operation each process group is stuck in, who is inside, who has not come."""

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hangdog_models.collectives import COALESCED, WATCHDOG, RankCounters
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.observe.silence import silent_ranks
from hangdog_models.diagnosis.waits import left_out
from hangdog_models.diagnosis.waits.laggards import ends_together, freed, laggards, left_behind, without_doubtful
from hangdog_models.diagnosis.waits.positions import (
    DEFAULT_GROUP,
    Group,
    Position,
    by_group,
    called,
    comparable,
    operation,
)
from hangdog_models.diagnosis.waits.transfers import transfers
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.stack import MERELY_FAILED
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity

#: The rules that standings made here go by.
BY_COUNTERS, BY_DEVICE, BY_COMPLETION = "counters", "device behind", "not complete"
#: What the host of a rank waits for whose device is behind, where no collective is under way on it.
LAUNCHED_BEFORE = "what was launched before"
#: Those of ranks of which counters alone are known.
COUNTED = (BY_COUNTERS, BY_COMPLETION)
#: What is said of a rank whose counters show it in no operation that others wait in.
OUTSIDE = "outside of any collective"


@dataclass(frozen=True, slots=True)
class CounterWaits:
    """`holds`: one for each operation that some rank is inside of. `standings`: what counters say of a rank better than
    its stack does: of ranks without one, and of ranks whose device is behind what the host has launched.
    """

    holds: tuple[GroupWait, ...] = ()
    states: Mapping[Rank, RankState] = field(default_factory=dict)


#: One rank that left no evidence at all may be the culprit; several were lost by the collector, unless they are too many.
SEVERAL_ABSENT, FEW_ABSENT = 2, 0.1


def count(
    records: Sequence[RankCounters],
    look: Look,
    topology: Topology,
    crowd: Container[Rank] = frozenset(),
    getting_on: Container[Rank] = frozenset(),
) -> CounterWaits:
    """Reads the counters of one moment.

    Launches run ahead of the device, so a group is stuck in the *oldest* operation that somebody has not completed
    (field.md 10.2): inside are those whose device has started it. Awaited are the members that never launched it, and
    those whose device has not got there. Where a recorder does not list a group's members (gloo's does not), the ranks
    that used the group count, and for the group that everybody used, the ranks without a recorder as well. A rank whose
    dump was lost and whose stack waits (or who stands in a `crowd` of such) is taken to be inside: what is not known of
    it is no reason to blame it, unless no rank of its machine answers. Hosts `getting_on` were met at several places or lines.
    """
    if not records:
        return CounterWaits((), {})
    holds: list[GroupWait] = []
    behind: dict[Rank, str] = {}
    recorded = {record.rank for record in records}
    silent = silent_ranks(look, topology)
    absent = [Rank(rank) for rank in range(topology.world_size) if rank not in look and rank not in recorded]
    unrecorded = {
        rank
        for rank, state in look.items()
        if rank not in recorded and rank not in silent and (rank in crowd or _lost(state))
    }
    unrecorded.update(absent if SEVERAL_ABSENT <= len(absent) <= FEW_ABSENT * topology.world_size else ())
    groups = {group: comparable(positions) for group, positions in by_group(records).items()}
    for group, positions in sorted(groups.items()):
        if any(position.completed < position.enqueued for position in positions.values()):
            whole = _one_of_several(group, groups, topology)
            found, late = _stuck(group, positions, unrecorded, look, topology, whole)
            holds += found
            behind.update(late)
    holds = _assumed_once(holds, recorded)
    pairs, late = transfers(records, joined=any(hold.joined for hold in holds))
    holds = [*_assumed_in_the_first(holds, pairs, recorded), *pairs]
    behind.update(late)
    left = left_behind(groups)
    by_the_program = {rank for one in left_out.find(holds, groups) for rank in (*one.ranks, *one.inside)}
    guilty = {rank for rank in laggards(holds, left) if rank not in look or look[rank].wait is Wait.SOME}
    guilty -= by_the_program  # no device is behind: one host left an operation out, and the others wait for it there
    holds = without_doubtful(freed(holds, guilty), {record.rank: _turns(record) for record in records})
    inside = {rank: hold.what for hold in holds for rank in hold.inside}
    awaited = {rank for hold in holds for rank in hold.awaited}
    states: dict[Rank, RankState] = {}
    for record in records:
        rank = record.rank
        seen = look.get(rank)
        if rank in inside:
            if seen is None:
                states[rank] = RankState(Activity.COLLECTIVE, Wait.GROUP, operation=inside[rank], rule=BY_COUNTERS)
        elif rank in guilty and rank in left:
            device = seen or RankState(Activity.DEVICE_SYNC, Wait.NONE)
            what = _oldest(record, left[rank])
            states[rank] = replace(
                device, activity=Activity.DEVICE_SYNC, wait=Wait.NONE, operation=what, rule=BY_COMPLETION
            )
        elif rank in awaited and (what := _under_way(record)):
            if seen is None:
                states[rank] = RankState(Activity.COLLECTIVE, Wait.SOME, operation=what, rule=BY_COUNTERS)
        elif rank in awaited and (
            what := behind.get(rank) or _own_device(record, seen, rank in crowd, rank in getting_on)
        ):
            device = seen or RankState(Activity.DEVICE_SYNC, Wait.NONE)
            states[rank] = replace(
                device, activity=Activity.DEVICE_SYNC, wait=Wait.NONE, operation=what, rule=BY_DEVICE
            )
        elif seen is None:
            states[rank] = RankState(Activity.UNKNOWN, Wait.NONE, label=OUTSIDE, rule=BY_COUNTERS)
    return CounterWaits(tuple(holds), states)


def _oldest(record: RankCounters, left: Mapping[str, str]) -> str:
    """Of what is not complete on a rank, though it is on its peers, that which was launched first."""
    launched = (entry.group for entry in record.entries if entry.group in left and not (entry.done or entry.p2p))
    return left[next(launched, min(left))]


def _turns(record: RankCounters) -> dict[str, int]:
    """The groups in which a rank has operations under way, in the order in which it launched the oldest ones."""
    turns: dict[str, int] = {}
    for entry in record.entries:
        if not entry.done and not entry.p2p:
            turns.setdefault(entry.group, len(turns))
    return turns


def _lost(state: RankState) -> bool:
    """Nothing is known of it that speaks against it: its stack waits, or the capture failed as captures do."""
    failed = state.missing is not None and state.missing.reason in MERELY_FAILED and not state.frames
    return state.waits or (failed and state.activity is Activity.MISSING)


def _stuck(
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
            continue  # a batch of sends counts as a collective before torch 2.7, so stages differ: see _pairs
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


def _assumed_once(holds: Sequence[GroupWait], recorded: Container[Rank]) -> list[GroupWait]:
    """A rank whose dump was lost is inside of one operation only: of that of which most others tell; in the rest it is late."""
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


def _assumed_in_the_first(
    holds: Sequence[GroupWait], pairs: Sequence[GroupWait], recorded: Container[Rank]
) -> list[GroupWait]:
    """A rank whose dump was lost is assumed in no operation that comes after a message for which another one waits."""
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
    """Who is awaited in some operation of each kind of group."""
    found: dict[str | None, set[Rank]] = {}
    for hold in holds:
        found.setdefault(hold.dim, set()).update(hold.awaited)
    return found


def follows(hold: GroupWait, other: GroupWait, late_in: Mapping[str | None, Container[Rank]]) -> bool:
    """Whether the operation of `hold` comes after the `other` one, for whoever takes part in both.

    Replicas run the same operations in the same order, and somebody in the other one is awaited in one of this kind.
    """
    late = late_in.get(hold.dim, ())
    return hold.dim != other.dim and any(rank in late for rank in other.inside)


def _elsewhere(state: RankState | None, with_them: Container[object]) -> bool:
    """Its stack is known, and no rank that is inside stands where it does."""
    return state is not None and bool(state.frames) and state.place not in with_them


def _one_of_several(group: Group, groups: Mapping[Group, Mapping[Rank, Position]], topology: Topology) -> bool:
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


def _under_way(record: RankCounters) -> str:
    """The operation that its device is in with others, as a message whose sender never came; empty where there is none.

    What comes after it does not show that its own device is at fault.
    """
    return next((entry.operation for entry in record.entries if entry.started and not entry.done), "")


def _own_device(record: RankCounters, seen: RankState | None, crowd: bool, gets_on: bool) -> str:
    """What the host waits for where it waits for its own device, on which no operation is under way; empty otherwise.

    Who waits for a device spins in one call of C. So does who hashes or compresses: it gets on, or is in a module of Python's own.
    """
    spins = seen is not None and seen.activity is Activity.COMPUTE and bool(seen.busy) and not seen.interpreting
    spins = spins and seen is not None and not gets_on and not _in_pythons_own(seen)
    # asleep in a launch: the queue of its device is full, and no collective is what fills it
    launches = seen is not None and seen.activity is Activity.LAUNCH and seen.busy is False
    waits = crowd or spins or launches or (seen is not None and seen.wait is Wait.SOME)
    under_way = any(count > record.completed.get(group, -1) for group, count in record.enqueued.items())
    known = any(started >= 0 for started in record.started.values())
    return LAUNCHED_BEFORE if waits and known and not under_way else ""


def _in_pythons_own(state: RankState) -> bool:
    """Whether the innermost function of Python is one of its standard library, which has nothing to do with any device."""
    innermost = next((frame.file for frame in reversed(state.frames) if not frame.native), "")
    return innermost.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names


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
