"""Which ranks are late in each round of a moving job, judged among their peers: as ranks, machines and parallel groups."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from hangdog_models.diagnosis.observe.activity import NO_RULE, SERVICES, RankState, sites, spins
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.waits.waits import CROWD_LEAST
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity

#: The votes of a round on a candidate. It is late if more than half of its captured ranks are.
IN_TIME, LATE, UNSEEN = 0, 1, 2

SERVICE_WIDESPREAD = likelihood("service_widespread")
TOGETHER_SHARE = likelihood("together_share")
#: So many ranks must have left a wait for a round to show a new moment. One alone may be a torn read of its stack.
FREED_AT_LEAST = 2
#: From so many late ranks that wait for a service on, it is to blame.
SERVED_AT_LEAST = 2
#: Of so many ranks of a stage one at most is an outlier. When many move on at once, more are elsewhere.
APART_SHARE = 8
#: The speed of these is unknown: they have left, cannot be captured, or compile, which depends on caches.
_UNSEEN = (Activity.MISSING, Activity.DEAD, Activity.STOPPED, Activity.TEARDOWN, Activity.COMPILE)


@dataclass(frozen=True, slots=True)
class Ballot:
    """The votes on the candidates of one sort: `votes[round][at]` is the one on candidate `at`.

    - `dim`: "rank", "machine" or a parallel dimension.
    - `members[at]`: the candidate's ranks. For ranks, whose number is their index, it is empty.
    - `kinds`: only candidates of one kind are compared, those with the same pipeline stages.
    """

    dim: str
    kinds: Sequence[object]
    votes: Sequence[bytes]
    members: Sequence[tuple[Rank, ...]] = ()

    def ranks(self, at: int) -> tuple[Rank, ...]:
        return self.members[at] if self.members else (Rank(at),)

    def pattern(self, at: int, looks: int) -> tuple[object, ...]:
        """The kind of a candidate and its votes in the first `looks` rounds."""
        return (self.kinds[at], *(votes[at] for votes in self.votes[:looks]))


def moments(looks: Sequence[Look], topology: Topology, stepped: Sequence[bool] = ()) -> list[Look]:
    """The rounds, without those that show the same moment again: a stall captured five times is still one stall.

    So is one checkpoint: while its last writers end one by one, no rank has left the wait for them. `stepped` as in `until_still`.
    """
    kept: list[Look] = []
    fresh = False
    for at, look in enumerate(looks):
        fresh = fresh or any(stepped[max(0, at - 1) : at])
        if not kept or fresh or _freed(kept[-1], look, topology):
            kept.append(look)
            fresh = False
    return kept


def until_still(looks: Sequence[Look], topology: Topology, stepped: Sequence[bool] = ()) -> Sequence[Look]:
    """The rounds up to the last one that shows a new moment. Whether a later stall goes on is open.

    `stepped`: whether the job's own progress advanced before each of them but the first.
    """
    moved = [
        at for at in range(1, len(looks)) if any(stepped[at - 1 : at]) or _freed(looks[at - 1], looks[at], topology)
    ]
    return looks[: moved[-1] + 1 if moved else 1]


def ballots(looks: Sequence[Look], topology: Topology) -> list[Ballot]:
    """The votes on every rank, every machine of several ranks, and every parallel group that spans several machines."""
    stages, world = _stages(topology), topology.world_size
    ranks = Ballot("rank", stages, _votes(looks, stages, topology))
    sets = {"machine": [ranks for ranks in topology.machines.values() if len(ranks) > 1]}
    for dim, groups in topology.groups.items():
        if dim != WORLD and not dim.startswith("dp"):  # what a data-parallel group has in common is its work
            sets[dim] = [group for group in groups if len(hosts(group, topology)) > 1]
    found = [ranks]
    for dim, members in sets.items():
        members = [them for them in members if max(them) < world]
        if len(members) > 1:
            kinds = [frozenset(stages[rank] for rank in them) for them in members]
            found.append(Ballot(dim, kinds, _majorities(members, ranks.votes), members))
    return found


def served(look: Look, topology: Topology) -> tuple[Rank, ...]:
    """The late ranks that wait for a service outside of the job.

    They count if they are most of the late ranks and on most machines; else empty.
    """
    seen = [rank for rank, state in look.items() if state.activity not in _UNSEEN]
    late = [rank for rank in seen if not look[rank].waits]
    waiting = [rank for rank in late if look[rank].activity in SERVICES]
    if len(waiting) < SERVED_AT_LEAST or len(waiting) < SERVICE_WIDESPREAD * len(late):
        return ()
    machines = len(hosts(seen, topology))
    if machines > 1:
        there = len(hosts(waiting, topology))
        return tuple(sorted(waiting)) if there > 1 and there >= SERVICE_WIDESPREAD * machines else ()
    return tuple(sorted(waiting)) if len(waiting) >= SERVICE_WIDESPREAD * len(seen) else ()


def guessed(looks: Sequence[Look], topology: Topology) -> bool:
    """Whether in most of these rounds no rule matches where most ranks wait."""
    return 2 * sum(bool(_crowds(look, topology)) for look in looks) > len(looks)


def hosts(ranks: Iterable[Rank], topology: Topology) -> tuple[str, ...]:
    """The known machines of some ranks, in their order. The cost does not depend on the size of the job."""
    return tuple(dict.fromkeys(machine for rank in ranks if (machine := topology.machine(rank)) is not None))


def _freed(before: Look, after: Look, topology: Topology) -> bool:
    """Whether some ranks have left their wait. A rank that was not captured again may still be there."""
    freed, crowds = 0, _crowds(before, topology)
    guess = bool(crowds)  # the innermost frame of an unknown stack is often a library's, in which all waits end
    for rank, now in after.items():
        then = before.get(rank)
        if then is None or then is now or now.activity is Activity.MISSING:
            continue
        left = then.place != now.place or (guess and then.signature != now.signature)
        if left and _waits(then, crowds):
            freed += 1
            if freed >= FREED_AT_LEAST:
                return True
    return False


def _votes(looks: Sequence[Look], stages: Sequence[int], topology: Topology) -> list[bytes]:
    """For each round, a vote on each rank.

    - A rank with many others at a call site that no rule matches is in time.
    - A rank that waits for its own device is late, if nearly all of its stage are together at another call site, or most
      of them where nobody is seen at work. They are past what its device is at.
    - If no rank is late, what holds the job up does not show, and the round says nothing about any rank.
    - The first and the last rank have duties of their own (logs, checkpoints, the loss), without peers to compare with.
      At a call site where no other rank is ever late they count as not captured. Their devices have no such duties, and
      batches are no duty: who reads them for all holds all up as well.
    """
    world = len(stages)
    duties = {Rank(0), Rank(world - 1)}
    common = {
        state.place
        for look in looks
        for state in {id(s): s for rank, s in look.items() if rank not in duties}.values()
        if not state.waits
    }
    cast = []
    for look in looks:
        votes = bytearray([UNSEEN]) * world
        crowds = _crowds(look, topology)
        working = {rank for state, ranks in sites(look) if _vote(state, crowds) == LATE for rank in ranks}
        apart = _apart(look, stages, working)
        of_state: dict[int, int] = {}
        for rank, state in look.items():
            if rank < world:
                vote = of_state.get(id(state))
                if vote is None:
                    vote = of_state[id(state)] = _vote(state, crowds)
                votes[rank] = LATE if rank in apart and state.device_late is None else vote
        for rank in duties if world > len(duties) else ():
            if votes[rank] == LATE and look[rank].place not in common and not _holds_all_up(look[rank]):
                votes[rank] = UNSEEN
        cast.append(bytes(votes) if LATE in votes else bytes([UNSEEN]) * world)
    return cast


def _holds_all_up(state: RankState) -> bool:
    """Whether it is late at what no first or last rank has for a duty of its own."""
    return bool(state.device_late) or state.activity is Activity.DATALOADER


def _vote(state: RankState, crowds: Container[str]) -> int:
    """What its device was seen to do decides; its host often waits for that all the time."""
    if state.activity in _UNSEEN:
        return UNSEEN
    late = state.device_late if state.device_late is not None else not _waits(state, crowds)
    return LATE if late else IN_TIME


def _waits(state: RankState, crowds: Container[str]) -> bool:
    return state.waits or ((_unnamed(state) or spins(state)) and state.label in crowds)


def _unnamed(state: RankState) -> bool:
    """Whether neither a rule nor the kernel shows what it does: it may wait."""
    return not state.waits and state.rule == NO_RULE and state.activity in (Activity.UNKNOWN, Activity.COMPUTE)


def _apart(look: Look, stages: Sequence[int], working: Iterable[Rank]) -> frozenset[Rank]:
    """Those that wait for their own devices elsewhere than their stage, and are late for that.

    - Most of the stage are together at one call site, and no rank of it is seen at work (`working`). Beside one that is,
      some role may have its own place to wait for it.
    - Or a few are alone at theirs. The rest may be in several operations, one for each group. If many are alone, it is
      a moment in which all move on.
    """
    seen = [(stages[rank], rank, state) for rank, state in look.items() if rank < len(stages)]
    at = Counter((stage, state.place) for stage, _, state in seen)
    of_stage = Counter(stage for stage, _, _ in seen)
    busy = {stages[rank] for rank in working if rank < len(stages)}
    most = {stage: place for (stage, place), ranks in at.items() if 2 * ranks > of_stage[stage] and stage not in busy}
    room = {stage: max(1, ranks // APART_SHARE) for stage, ranks in of_stage.items()}
    few = {
        (stage, place) for (stage, place), ranks in at.items() if ranks <= room[stage] and 2 * ranks < of_stage[stage]
    }
    off = Counter(
        stage
        for stage, _, state in seen
        if (stage, state.place) in few and state.activity not in _UNSEEN and (_at_device(state) or not state.waits)
    )
    return frozenset(
        rank
        for stage, rank, state in seen
        if _at_device(state)
        and (most.get(stage, state.place) != state.place or ((stage, state.place) in few and off[stage] <= room[stage]))
    )


def _at_device(state: RankState) -> bool:
    return state.waits and state.activity is Activity.DEVICE_SYNC


def _crowds(look: Look, topology: Topology) -> frozenset[str]:
    """The call sites at which many ranks are for no known wait: there they wait. Empty if most ranks wait by the rules.

    These are call sites that no rule knows, and one call of C in which nearly all ranks are at once. The cause of slowness is
    on one machine, and the ranks that wait for it are on all.
    """
    seen = [(state, ranks) for state, ranks in sites(look) if state.activity not in _UNSEEN]
    if 2 * sum(len(ranks) for state, ranks in seen if state.waits) > sum(len(ranks) for _, ranks in seen):
        return frozenset()
    places: dict[str, list[Rank]] = {}
    together: dict[str, list[Rank]] = {}
    for state, ranks in seen:
        if _unnamed(state):
            places.setdefault(state.label, []).extend(ranks)
        elif spins(state):
            together.setdefault(state.label, []).extend(ranks)
    most = max(CROWD_LEAST, TOGETHER_SHARE * sum(len(ranks) for _, ranks in seen))
    crowds = [
        label for label, ranks in places.items() if len(ranks) >= CROWD_LEAST and len(hosts(ranks, topology)) != 1
    ]
    crowds += [label for label, ranks in together.items() if len(ranks) >= most and len(hosts(ranks, topology)) != 1]
    return frozenset(crowds)


def _majorities(members: Sequence[tuple[Rank, ...]], cast: Sequence[bytes]) -> list[bytes]:
    """For each round, the vote on every set of ranks: that of more than half of those captured."""
    pick = [itemgetter(*ranks) for ranks in members]
    found = []
    for votes in cast:
        outcome = bytearray()
        for ranks in pick:
            theirs = bytes(ranks(votes))
            late = theirs.count(LATE)
            seen = late + theirs.count(IN_TIME)
            outcome.append(UNSEEN if not seen else LATE if 2 * late > seen else IN_TIME)
        found.append(bytes(outcome))
    return found


def _stages(topology: Topology) -> list[int]:
    stages = [0] * topology.world_size
    for group in topology.groups.get("pp", ()):
        for stage, rank in enumerate(group):
            if rank < len(stages):
                stages[rank] = stage
    return stages
