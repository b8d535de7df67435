"""Who waits for whom: holds (a group at one place and the members it lacks), roots, and groups in which all have joined."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hangdog_models.diagnosis.activity import Standing
from hangdog_models.diagnosis.motion import Look, Motion
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity

#: From this share of the ranks seen, an unknown place on several machines is a crowd: no machine's fault reaches so far.
CROWD_SHARE = 0.5
#: A crowd has at least so many ranks: below, "most of the job" is one or two processes.
CROWD_LEAST = 3

_UNNAMED = (Activity.UNKNOWN, Activity.COMPUTE, Activity.IDLE)


@dataclass(frozen=True, slots=True)
class Hold:
    """Ranks at one place of one process group (`inside`), and the members that are elsewhere (`awaited`).

    `dim` is None where neither frames nor counters tell the group: then `awaited` is empty and any rank may be meant.
    `inferred`: the group was guessed from the ranks being complete in it; `counted`: read off collective counters.
    """

    dim: str | None
    inside: tuple[Rank, ...]
    awaited: tuple[Rank, ...]
    what: str
    inferred: bool = False
    counted: bool = False

    @property
    def joined(self) -> bool:
        """All members are there and nothing completes."""
        return self.dim is not None and not self.awaited


@dataclass(frozen=True)
class Waits:
    """`roots` wait for nobody; `waiting` wait; `crowd` wait although no frame says so; `holds` say for whom."""

    roots: tuple[Rank, ...]
    waiting: tuple[Rank, ...]
    crowd: tuple[Rank, ...]
    holds: tuple[Hold, ...]
    _awaiting: Mapping[Rank, tuple[Hold, ...]] = field(default_factory=dict, repr=False)

    def reached_from(self, roots: Iterable[Rank]) -> frozenset[Rank]:
        """The ranks that wait for one of `roots`, directly or through others, in groups that are known."""
        reached: set[Rank] = set()
        edge = list(roots)
        while edge:
            for hold in self._awaiting.get(edge.pop(), ()):
                fresh = [rank for rank in hold.inside if rank not in reached]
                reached.update(fresh)
                edge.extend(fresh)
        return frozenset(reached)

    def holds_for(self, rank: Rank) -> tuple[Hold, ...]:
        """The holds in which `rank` is awaited."""
        return self._awaiting.get(rank, ())

    def outside(self, look: Look) -> bool:
        """Some captured rank waits for nobody: then the others need no fault of their own to be where they are."""
        return any(look[rank].activity is not Activity.MISSING for rank in self.roots)

    @cached_property
    def loose(self) -> frozenset[Rank]:
        """Waiting ranks of which it is not known for whom: they may wait for anybody."""
        known = {rank for hold in self.holds if hold.awaited for rank in hold.inside}
        return frozenset(self.waiting) - known


def find(look: Look, motion: Motion, topology: Topology, counted: Sequence[Hold] = ()) -> Waits:
    """The waits of one look. `counted` are holds known exactly from collective counters: they win over frames."""
    crowd = _crowd(look, motion.moving | motion.travelling, topology)
    waiting = [rank for rank, standing in look.items() if standing.waits or rank in crowd]
    exact = {rank for hold in counted for rank in hold.inside}
    holds = list(counted)
    for place in _places(look, exact):
        holds.extend(_holds(place, look, topology))
    awaiting: dict[Rank, list[Hold]] = {}
    for hold in holds:
        for rank in hold.awaited:
            awaiting.setdefault(rank, []).append(hold)
    blocked = set(waiting) | exact | _leaving(look)
    return Waits(
        roots=tuple(sorted(rank for rank in look if rank not in blocked)),
        waiting=tuple(sorted(blocked)),
        crowd=tuple(sorted(crowd)),
        holds=tuple(holds),
        _awaiting={rank: tuple(held) for rank, held in awaiting.items()},
    )


def _crowd(look: Look, restless: frozenset[Rank], topology: Topology) -> frozenset[Rank]:
    places: dict[tuple[object, ...], list[Rank]] = {}
    for rank, standing in look.items():
        unnamed = not standing.waits and standing.activity in _UNNAMED and standing.signature is not None
        if unnamed and rank not in restless:
            places.setdefault((standing.label, standing.signature and standing.signature.digest), []).append(rank)
    several = len(topology.machines) < 2
    for ranks in places.values():
        wide = several or len(topology.machines_of(ranks)) > 1
        if len(ranks) >= CROWD_LEAST and len(ranks) > CROWD_SHARE * len(look) and wide:
            return frozenset(ranks)
    return frozenset()


def _leaving(look: Look) -> frozenset[Rank]:
    """Ranks on their way out, where another one is dead or stopped: its loss broke their connections, so they are victims."""
    lost = any(standing.activity in (Activity.DEAD, Activity.STOPPED) for standing in look.values())
    return (
        frozenset(r for r, s in look.items() if s.activity is Activity.TEARDOWN and not s.waits)
        if lost
        else frozenset()
    )


def _places(look: Look, exact: set[Rank]) -> list[list[Standing]]:
    places: dict[tuple[object, ...], list[Standing]] = {}
    for rank in sorted(look):
        standing = look[rank]
        if standing.waits and rank not in exact:
            places.setdefault((standing.wait, *standing.place), []).append(standing)
    return list(places.values())


def _holds(place: list[Standing], look: Look, topology: Topology) -> list[Hold]:
    """The holds of the ranks at one place: one for each process group that it touches."""
    first = place[0]
    here = {standing.rank for standing in place}
    what = f"{first.operation or first.activity}" + (f" of {first.label}" if first.label else "")
    everybody = tuple(sorted(here))
    if first.wait is Wait.SOME:
        return [Hold(None, everybody, (), what)]
    if first.wait is Wait.STORE:
        late = tuple(rank for rank in _world(topology) if rank not in look or look[rank].wait is not Wait.STORE)
        return [Hold(WORLD, everybody, late, what)]
    if first.wait is Wait.PEER:
        return _peers(everybody, first.dim, topology, what)
    told = first.dim is not None and first.dim in topology.groups
    dim = first.dim if told else _joined_dim(here, topology)
    if dim is None:
        return [Hold(None, everybody, (), what)]
    groups: dict[tuple[Rank, ...], list[Rank]] = {}
    without: list[Rank] = []
    for rank in everybody:
        group = topology.group(dim, rank)
        if group is None:
            without.append(rank)
        else:
            groups.setdefault(group, []).append(rank)
    holds = [
        Hold(dim, tuple(inside), tuple(rank for rank in group if rank not in here), what, inferred=not told)
        for group, inside in groups.items()
    ]
    return [*holds, Hold(None, tuple(without), (), what)] if without else holds


def _peers(ranks: tuple[Rank, ...], dim: str | None, topology: Topology, what: str) -> list[Hold]:
    """A rank in a pipeline operation waits for its neighbour stages; without a known pipeline, for anybody."""
    if dim is None or dim not in topology.groups:
        return [Hold(None, ranks, (), what)]
    holds = []
    for rank in ranks:
        group = topology.group(dim, rank) or (rank,)
        at = group.index(rank)
        neighbours = (*group[max(0, at - 1) : at], *group[at + 1 : at + 2])
        holds.append(Hold(dim, (rank,), neighbours, what) if neighbours else Hold(None, (rank,), (), what))
    return holds


def _joined_dim(here: set[Rank], topology: Topology) -> str | None:
    """The dimension with the smallest groups in which the ranks here are complete, if there is one.

    Ranks that call a collective from one line of code use one kind of group: if in some dimension nobody is lacking,
    they may all have joined; if somebody is lacking in every dimension, they wait, and nobody knows yet for whom.
    """
    complete = []
    for dim, groups in topology.groups.items():
        touched = [group for group in groups if len(group) > 1 and not here.isdisjoint(group)]
        if touched and all(here.issuperset(group) for group in touched):
            complete.append((max(len(group) for group in touched), dim))
    return min(complete)[1] if complete else None


def _world(topology: Topology) -> tuple[Rank, ...]:
    return topology.groups[WORLD][0]
