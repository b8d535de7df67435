"""Exact waits from collective counters: who is inside which operation of a process group, and who has not reached it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.activity import Standing
from hangdog_models.diagnosis.motion import Look
from hangdog_models.diagnosis.waits import Hold
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity


@dataclass(frozen=True, slots=True)
class Counted:
    """`holds`: one for each process group in which somebody waits. `standings`: of ranks known by counters only."""

    holds: tuple[Hold, ...]
    standings: Mapping[Rank, Standing]


def count(records: Sequence[RankCounters], look: Look, topology: Topology) -> Counted:
    """Reads the flight recorders of one moment, at most one a rank.

    A rank waits in a group when it enqueued more operations there than it completed. Members that enqueued fewer are
    awaited. Where a recorder does not list a group's members (gloo's does not), the ranks that used the group count,
    and for the group that everybody used, the ranks without a recorder as well.
    """
    by_rank = {record.rank: record for record in records}
    holds: list[Hold] = []
    inside_of: dict[Rank, str] = {}
    for group in sorted({group for record in records for group in record.enqueued}):
        users = {rank: record for rank, record in by_rank.items() if record.enqueued.get(group, -1) >= 0}
        pending = {
            r: rec.enqueued[group] for r, rec in users.items() if rec.completed.get(group, -1) < rec.enqueued[group]
        }
        if not pending:
            continue
        front = max(pending.values())
        members = _members(group, users, topology)
        inside = tuple(sorted(rank for rank, number in pending.items() if number == front))
        awaited = tuple(
            rank
            for rank in members
            if rank not in inside and (rank not in users or users[rank].enqueued[group] < front)
        )
        operation = next(
            (e.operation for e in users[inside[0]].entries if e.group == group and e.sequence == front and not e.p2p),
            "",
        )
        what = f"{operation or 'operation'} {front} of process group {group}"
        holds.append(Hold(_dim(members, topology) or f"group {group}", inside, awaited, what, counted=True))
        inside_of.update(dict.fromkeys(inside, what))
    known = {rank: _standing(inside_of.get(rank)) for rank in by_rank if rank not in look}
    return Counted(tuple(holds), known)


def _standing(inside: str | None) -> Standing:
    if inside is None:
        return Standing(Activity.UNKNOWN, Wait.NONE, label="outside of any collective", rule="flight recorder")
    return Standing(Activity.COLLECTIVE, Wait.GROUP, operation=inside, rule="flight recorder")


def _members(group: str, users: Mapping[Rank, RankCounters], topology: Topology) -> tuple[Rank, ...]:
    listed = next((record.members[group] for record in users.values() if record.members.get(group)), ())
    if listed:
        return listed
    world = topology.groups[WORLD][0]
    recorded = set(users)
    for dim_groups in topology.groups.values():
        for ranks in dim_groups:
            if len(ranks) > 1 and recorded.issuperset(ranks) and len(recorded) == len(ranks):
                return ranks
    # More than half of the world used it: then it is the world's, and who kept no record is a member too.
    return world if 2 * len(users) > len(world) else tuple(sorted(users))


def _dim(members: tuple[Rank, ...], topology: Topology) -> str | None:
    for dim, groups in topology.groups.items():
        if members in groups:
            return dim
    return None
