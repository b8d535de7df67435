"""Joins the dumps of NCCL Inspector of all ranks: who the members of each communicator are, and who alone lacks an operation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdog_models.collectives import INSPECTOR, RankCounters
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.inspector import InspectedRank, Place

#: No member completes one before all have launched it. A broadcast or a send ends on some before others have come.
_OF_ALL = ("allreduce", "allgather", "reducescatter")
#: So many members, one of which alone lacks what the others have, are no pair of which either is early.
_ALONE_AMONG = 4


def world_of(inspected: InspectedRank, world: int | None, alone: bool) -> Rank | None:
    """The job's rank of a process: its number in a communicator that holds the whole job; None where nothing tells.

    `world` is the number of ranks that was declared. Without one, the largest communicator is taken for the whole job where
    it is the same one in all dumps (`alone`).
    """
    whole = inspected.largest.size == world if world is not None else alone
    return Rank(inspected.largest.number) if whole else None


def joined(ranks: Mapping[Rank, InspectedRank]) -> tuple[RankCounters, ...]:
    """The counters of all ranks, with the members of each communicator of which every member left a dump."""
    members: dict[str, dict[int, Rank]] = {}
    for rank, inspected in ranks.items():
        for place in inspected.places.values():
            members.setdefault(place.communicator, {})[place.number] = rank

    def of(place: Place) -> tuple[Rank, ...]:
        known = members[place.communicator]
        return tuple(sorted(known.values())) if len(known) == place.size == len(set(known.values())) else ()

    found = []
    for rank, inspected in sorted(ranks.items()):
        listed = {group: who for group, place in inspected.places.items() if (who := of(place))}
        found.append(replace(inspected.counters, rank=rank, members=listed))
    return tuple(found)


def left_behind(counters: Sequence[RankCounters]) -> dict[Rank, Finding]:
    """The ranks that alone lack an operation which all other members of a communicator completed, and no more than that one.

    To be asked of a job that stands still: in one that goes on, files that were copied one after the other differ as well.
    Its host gave its part, else the others could not have completed it: so its device is behind, or a path to it. Of two
    operations the second cannot be complete anywhere while one member lacks the first: such dumps are of two moments.
    A file system that holds the end of a dump back shows the same, so it makes suspect and no more.
    """
    completed: dict[str, dict[Rank, int]] = {}
    for record in counters:
        for group in record.members:
            if group.rpartition(" ")[2].lower().startswith(_OF_ALL):
                completed.setdefault(group, {})[record.rank] = record.completed[group]
    found: dict[Rank, Finding] = {}
    for group, last in sorted(completed.items()):
        most = max(last.values())
        late = [rank for rank, number in last.items() if number != most]
        if len(late) == 1 and last[late[0]] == most - 1 and len(last) >= _ALONE_AMONG:
            name, _, operation = group.rpartition(" ")
            what = (
                f"alone of {len(last)} ranks it has not completed {operation} {most} of communicator {name}, "
                "to which its host gave its part: its device is behind, or a path to it"
            )
            found.setdefault(late[0], Finding(INSPECTOR, "not completed", Impact.SUSPECTS, what, rank=late[0]))
    return found
