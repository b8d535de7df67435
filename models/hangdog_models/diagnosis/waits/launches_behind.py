"""The one rank whose device is behind its peers', by launches and call sites, where completions are not counted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.waits.collective_counters import spins_in_c
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity

#: The rule of the rank states made here.
BY_LAUNCHES = "launches behind"
#: The rank that reads losses back where one rank logs for all, in every framework.
LOGS_FOR_ALL = Rank(0)
#: Calls that wait for room in the device's queue, too.
QUEUED = ("cudaMemcpyAsync",)


def find(holds: Sequence[GroupWait], look: Look, topology: Topology, motion: Motion) -> Mapping[Rank, RankState]:
    """The only rank that is behind, if it waits for its own device at a call site that all others are past.

    A rank past such a call site has completed all earlier operations, collectives included. So no collective that they
    share holds this device up. Others might, so the rank must be in no other group.

    Two call sites do not count. At a full launch queue the room left differs by rank. A call site that only one rank
    reaches logs for all.
    """
    if len(holds) != 1:
        return {}
    hold, rank = holds[0], holds[0].awaited[0]  # of several awaited ranks none is alone in its group, as required below
    mine, others = look.get(rank), [look.get(other) for other in hold.inside]
    if rank == LOGS_FOR_ALL or rank in motion.moving or rank in motion.travelling:
        return {}
    if mine is None or not _may_await_device(mine, others):
        return {}
    members = {*hold.inside, rank}
    alone = all(set(topology.group(dim, rank) or (rank,)) in ({rank}, members) for dim in topology.dims)
    past = all(other is not None and other.frames and other.waits and other.label != mine.label for other in others)
    held = replace(mine, activity=Activity.DEVICE_SYNC, wait=Wait.NONE, operation=hold.what, rule=BY_LAUNCHES)
    return {rank: held} if alone and past else {}


def _may_await_device(mine: RankState, others: Sequence[RankState | None]) -> bool:
    """Whether the host waits for its device by its frames, or runs in C while the frames of all others wait for theirs.

    If the others are in a call of the program, they may let one work in C.
    """
    if mine.activity is Activity.DEVICE_SYNC:
        return mine.waits and mine.operation not in QUEUED
    devices = all(other is not None and other.activity is Activity.DEVICE_SYNC for other in others)
    return devices and spins_in_c(mine)
