"""Which ranks wait for which: group waits (ranks at one call site and the missing members), roots, and joined groups."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from hangdog_models.diagnosis.observe.activity import CHILD, LOCK_FILE, SERVICES, RankState, sites
from hangdog_models.diagnosis.observe.motion import Look, Motion, is_idle
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity

#: From so many unchanged ranks on several machines on, an unknown call site is a wait: one fault is at one call site. A
#: device that is held up stops hosts anywhere (a full launch queue, a value read back). Two may be chance.
CROWD_LEAST = 3

_UNNAMED = (Activity.UNKNOWN, Activity.COMPUTE, Activity.IDLE, Activity.LAUNCH)
#: What a host does for itself: a rank there in every round is stuck there, wherever its device waits.
_OWN_WORK = (
    Activity.DATALOADER, Activity.STORAGE, Activity.NETWORK, Activity.CHECKPOINT, Activity.LOCK, Activity.GIL,
    Activity.GC, Activity.COMPILE, Activity.STOPPED, Activity.DEAD,
)  # fmt: skip
#: Operations that programs call for all ranks.
OF_ALL = (
    "barrier",
    "monitored_barrier",
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
)


@dataclass(frozen=True, slots=True)
class GroupWait:
    """Ranks at one call site of one process group (`inside`), and the members that are elsewhere (`awaited`).

    - `dim`: None where neither frames nor counters show the group. Then `awaited` is empty and any rank may be meant.
    - `inferred`: the group was guessed, because the ranks are all its members.
    - `counted`: it was read off collective counters.
    - `complete`: False if an empty `awaited` does not mean that all have joined. So it is with an operation that some
      members have left, and with neighbour stages of a pipeline. `awaited` are then the stages at both ends.
    - `assumed`: so many members are taken to be inside, for their counters are missing.
    - `lasting`: a watchdog timed out on it, so it is no moment of a healthy step.
    - `group`: the name of the process group that was counted.
    - `begun`: False if hosts have launched it and it is unknown whether devices have begun it.
    """

    dim: str | None
    inside: tuple[Rank, ...]
    awaited: tuple[Rank, ...]
    what: str
    inferred: bool = False
    counted: bool = False
    complete: bool = True
    assumed: int = 0
    lasting: bool = False
    group: str = ""
    begun: bool = True

    @property
    def joined(self) -> bool:
        """All members are inside and nothing completes."""
        return self.dim is not None and not self.awaited and self.complete


@dataclass(frozen=True)
class Waits:
    """Which ranks wait, and for which.

    - `roots`: they wait for none.
    - `waiting`: all that wait.
    - `crowd`: those that wait although no frame says so.
    - `holds`: the group waits.
    """

    roots: tuple[Rank, ...]
    waiting: tuple[Rank, ...]
    crowd: tuple[Rank, ...]
    holds: tuple[GroupWait, ...]
    _awaiting: Mapping[Rank, tuple[GroupWait, ...]] = field(default_factory=dict, repr=False)

    def reached_from(self, roots: Iterable[Rank]) -> frozenset[Rank]:
        """The ranks that wait for one of `roots`, directly or through others, in known groups."""
        reached: set[Rank] = set()
        edge = list(roots)
        while edge:
            for hold in self._awaiting.get(edge.pop(), ()):
                fresh = [rank for rank in hold.inside if rank not in reached]
                reached.update(fresh)
                edge.extend(fresh)
        return frozenset(reached)

    def holds_for(self, rank: Rank) -> tuple[GroupWait, ...]:
        """The group waits in which `rank` is awaited."""
        return self._awaiting.get(rank, ())

    def outside(self, look: Look) -> bool:
        """Whether some captured rank waits for none. Then the others need no fault of their own to be where they are."""
        return any(look[rank].activity is not Activity.MISSING for rank in self.roots)

    @cached_property
    def loose(self) -> frozenset[Rank]:
        """Waiting ranks without a known peer: they may wait for any rank."""
        known = {rank for hold in self.holds if hold.awaited or not hold.complete for rank in hold.inside}
        return frozenset(self.waiting) - known


def crowd_of(look: Look, motion: Motion, topology: Topology) -> frozenset[Rank]:
    """The ranks of one round that wait although no frame says so."""
    return frozenset(_crowd(sites(look), motion, topology))


def find(look: Look, motion: Motion, topology: Topology, counted: Sequence[GroupWait] = ()) -> Waits:
    """The waits of one round. `counted` are exact group waits by collective counters: they override frames."""
    places = sites(look)
    crowd = _crowd(places, motion, topology)
    exact = {rank for hold in counted for rank in hold.inside}
    crowd -= _missed(counted) - exact
    stuck = {
        rank
        for state, ranks in places
        if exact and not state.waits and (state.activity in _OWN_WORK or state.operation == CHILD)
        for rank in ranks
        if rank in exact and rank in motion.still
    }
    holds = list(counted)
    for state, ranks in _waiting_places(places, exact):
        holds.extend(_holds(state, ranks, look, topology))
    if motion.known:  # a rank captured once may be about to launch more
        holds.extend(_queued(places, crowd - exact, topology))
    awaiting: dict[Rank, list[GroupWait]] = {}
    for hold in holds:
        for rank in hold.awaited:
            awaiting.setdefault(rank, []).append(hold)
    blocked = (crowd | exact | _leaving(places)) - stuck
    blocked |= {rank for state, ranks in places if state.waits for rank in ranks}
    blocked -= _served(places, blocked)
    if len(blocked) == len(look) and not motion.moved_on:  # a job in a slow step ends its waits anywhere
        blocked -= _ends(places, holds, topology) - motion.moving - motion.travelling
    return Waits(
        roots=tuple(sorted(rank for rank in look if rank not in blocked)),
        waiting=tuple(sorted(blocked)),
        crowd=tuple(sorted(crowd)),
        holds=tuple(holds),
        _awaiting={rank: tuple(held) for rank, held in awaiting.items()},
    )


def _missed(counted: Sequence[GroupWait]) -> set[Rank]:
    """The few that counters show outside of what most of their group are in: they wait for none, whoever is at their place."""
    return {
        rank for hold in counted if not hold.inferred and len(hold.awaited) < len(hold.inside) for rank in hold.awaited
    }


Site = tuple[RankState, list[Rank]]


def _crowd(sites: Sequence[Site], motion: Motion, topology: Topology) -> set[Rank]:
    """Ranks that wait although no frame says so: many are at one call site, and none of them moves on.

    Many are three on several machines, or a whole process group: what stops one process does not stop others alike.
    Ranks at their call site whose lines changed wait as well, for waits that poll have lines, too.

    Polling for a lock file shows as sleep and now and then as the attempt: both are one call site.
    """
    places: dict[tuple[object, ...], tuple[list[Rank], list[Rank]]] = {}
    for state, ranks in sites:
        if not state.waits and state.activity in _UNNAMED and state.signature is not None:
            launches = state.activity is Activity.LAUNCH
            key: tuple[object, ...] = (
                state.label,
                state.signature.innermost,
                launches,
                state.interpreting and state.activity is not Activity.IDLE,  # what runs there is no part of its wait
                state.astray,
            )
            polls = state.operation == LOCK_FILE
            calm, moving = places.setdefault((state.label, LOCK_FILE) if polls else key, ([], []))
            stirs = (
                frozenset() if is_idle(state) else motion.moving | motion.travelling
            )  # who is idle came from somewhere
            calm.extend(rank for rank in ranks if rank not in stirs)
            moving.extend(rank for rank in ranks if rank in motion.moving or (polls and rank in motion.travelling))
    alone = len(topology.machines) < 2
    unseen = {rank for state, ranks in sites if state.activity is Activity.MISSING for rank in ranks}
    return {
        rank
        for calm, moving in places.values()
        if (len(calm) >= CROWD_LEAST and (alone or len(topology.machines_of(calm)) > 1))
        or (len(calm) > 1 and _joined_dim(set(calm), topology, unseen) not in (None, WORLD))
        for rank in (*calm, *moving)
    }


def _queued(sites: Sequence[Site], crowd: set[Rank], topology: Topology) -> list[GroupWait]:
    """The one process group all of whose hosts are stuck in launches: their devices, in it or before it, hold them up.

    The first hosts have no room left in their launch queue. The others had some, and came to where they read a result
    back. If several groups launch, one holds up the others, and frames do not show which.

    None is returned if other ranks are in a call of all ranks: code led them there, and these wait for them in
    something else.
    """
    if any(state.waits and state.operation in OF_ALL for state, _ in sites):
        return []
    places: dict[str, list[Rank]] = {}
    for state, ranks in sites:
        if state.activity is Activity.LAUNCH and not state.waits and crowd.issuperset(ranks):
            places.setdefault(state.label, []).extend(ranks)
    if len(places) != 1:
        return []
    label, ranks = places.popitem()
    dim = _joined_dim(set(ranks), topology)
    groups, _ = _by_group(ranks, dim, topology) if dim is not None else ([], [])
    if len(groups) != 1 or len(ranks) == topology.world_size:
        return []
    return [GroupWait(dim, tuple(sorted(ranks)), (), f"launches of {label}")]


def _leaving(sites: Sequence[Site]) -> set[Rank]:
    """Ranks in teardown while another is dead or stopped: its loss broke their connections, so they are victims."""
    lost = any(state.activity in (Activity.DEAD, Activity.STOPPED) for state, _ in sites)
    leaving = (ranks for state, ranks in sites if state.activity is Activity.TEARDOWN and not state.waits)
    return {rank for ranks in leaving for rank in ranks} if lost else set()


def _served(sites: Sequence[Site], blocked: set[Rank]) -> set[Rank]:
    """Ranks at the same service call as a rank that waits for none: what holds that one holds them, whatever else they
    await.

    A rank may launch its collectives before it calls the service. By its counters it waits in these, and calls all the
    same.
    """
    at_work = [(state, ranks) for state, ranks in sites if not state.waits and state.activity in SERVICES]
    free = {state.place for state, ranks in at_work if not blocked.issuperset(ranks)}
    return {rank for state, ranks in at_work if state.place in free for rank in ranks}


def _ends(sites: Sequence[Site], holds: Sequence[GroupWait], topology: Topology) -> set[Rank]:
    """The ranks of one machine at which all known waits end, in a wait for their devices; empty if there are none.

    That wait names no other rank. So they are the first that stand, and the others need no fault of their own. They are
    at one place, and no other rank is.
    """
    known = [hold for hold in holds if hold.awaited and hold.dim not in (None, WORLD) and not hold.inferred]
    ends = {rank for hold in known for rank in hold.awaited}.difference(rank for hold in known for rank in hold.inside)
    places = {state.place for state, ranks in sites if not ends.isdisjoint(ranks)}
    there = [(state, ranks) for state, ranks in sites if state.place in places]
    apart = len(places) == 1 and all(state.activity is Activity.DEVICE_SYNC for state, _ in there)
    alone = apart and len(topology.machines_of(ends)) == 1
    return ends if alone and all(ends.issuperset(ranks) for _, ranks in there) else set()


def _waiting_places(sites: Sequence[Site], exact: set[Rank]) -> list[Site]:
    """The ranks that wait by their frames, by call site: states that differ only in line numbers are one."""
    places: dict[tuple[object, ...], Site] = {}
    for state, ranks in sites:
        if state.waits:
            here = [rank for rank in ranks if rank not in exact] if exact else ranks
            if here:
                places.setdefault((state.wait, *state.place), (state, []))[1].extend(here)
    return list(places.values())


def _holds(first: RankState, ranks: list[Rank], look: Look, topology: Topology) -> list[GroupWait]:
    """The group waits of the ranks at one call site: one for each process group that it involves."""
    what = f"{first.operation or first.activity}" + (
        f" of {first.label}" if first.label not in ("", first.operation) else ""
    )
    everybody = tuple(sorted(ranks))
    if first.wait is Wait.SOME:
        return [GroupWait(None, everybody, (), what)]
    if first.wait is Wait.STORE:
        late = tuple(rank for rank in _world(topology) if rank not in look or look[rank].wait is not Wait.STORE)
        return [GroupWait(WORLD, everybody, late, what)]
    if first.wait is Wait.PEER:
        return _peers(everybody, first.dim, topology, what)
    here = set(everybody)
    reported = first.dim is not None and first.dim in topology.groups
    dim = first.dim if reported else WORLD if first.operation in OF_ALL else _joined_dim(here, topology)
    if dim is None:
        return [GroupWait(None, everybody, (), what)]
    groups, without = _by_group(everybody, dim, topology)
    holds = [
        GroupWait(dim, tuple(inside), tuple(rank for rank in group if rank not in here), what, inferred=not reported)
        for group, inside in groups
    ]
    return [*holds, GroupWait(None, tuple(without), (), what)] if without else holds


def _by_group(
    ranks: Sequence[Rank], dim: str, topology: Topology
) -> tuple[list[tuple[tuple[Rank, ...], list[Rank]]], list[Rank]]:
    """The groups along `dim` with any of the ranks, each with those ranks, and the ranks without such a group."""
    found: dict[int, tuple[tuple[Rank, ...], list[Rank]]] = {}
    without: list[Rank] = []
    for rank in ranks:
        group = topology.group(dim, rank)
        if group is None:
            without.append(rank)
        elif id(group) in found:
            found[id(group)][1].append(rank)
        else:
            found[id(group)] = (group, [rank])
    return list(found.values()), without


def _peers(ranks: tuple[Rank, ...], dim: str | None, topology: Topology, what: str) -> list[GroupWait]:
    """A rank in a pipeline operation waits for its neighbour stages; without a known pipeline, for any rank."""
    if dim is None or dim not in topology.groups:
        return [GroupWait(None, ranks, (), what)]
    groups, without = _by_group(ranks, dim, topology)
    holds = [GroupWait(None, tuple(without), (), what)] if without else []
    for group, inside in groups:
        here = set(inside)
        run: list[Rank] = []
        for at, rank in enumerate(group):
            if rank in here:
                run.append(rank)
            if run and (rank not in here or at == len(group) - 1):
                first = group.index(run[0])
                ends = (*group[max(0, first - 1) : first], *((rank,) if rank not in here else ()))
                holds.append(GroupWait(dim, tuple(run), ends, what, complete=False))
                run = []
    return holds


def _joined_dim(here: set[Rank], topology: Topology, unseen: AbstractSet[Rank] = frozenset()) -> str | None:
    """The dimension with the smallest groups of which all members are here, except the `unseen`; else None.

    Ranks that call a collective from one line of code use one kind of group. If in some dimension no member is missing,
    all may have joined. If members are missing in every dimension, the ranks wait, and it is unknown for which.
    """
    complete = []
    for dim, groups in topology.groups.items():
        touched = [group for group in groups if len(group) > 1 and not here.isdisjoint(group)]
        if touched and all(here.issuperset(group) or (here | unseen).issuperset(group) for group in touched):
            complete.append((max(len(group) for group in touched), dim))
    return min(complete)[1] if complete else None


def _world(topology: Topology) -> tuple[Rank, ...]:
    return topology.groups[WORLD][0]
