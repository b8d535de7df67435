"""Where to keep the backup of each rank's checkpoint shard, so that no one eviction takes both copies.

In ByteRobust (SOSP 2025, section 6.3) a rank backs up to one that shares none of its groups. Here machines are evicted,
so a group stands for all machines it involves, and machine and leaf count like groups.

Half a turn along data and pipeline parallelism is enough for most layouts (in pairs if both are even). Else other
shifts are tried, and then a perfect matching. The matching finds a placement wherever one exists that gives each
machine the copies of one other. If none exists, as few kinds of eviction as possible are given up, and the result says
so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product

import numpy
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from hangdog_models.errors import WrongUse
from hangdog_models.planning.domains import LEAF, MACHINE, Domain, EvictionDomain, domains, places
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology

#: Places whose conflicts are held as a table: 16 MiB of it, 32,768 GPUs in machines of 8.
MOST_PLACES = 4096
#: Shifts tried before the matching, which takes longer and gives no recognisable pattern.
_SHIFTS = 512
#: What is given up first if not all can be had: the rarest eviction. A leaf is evicted on less than 1 % of days, a
#: data-parallel group hardly ever (it is all of a stage), a pipeline group by each over-eviction.
_GIVEN_UP = (LEAF, "ep", "cp", "dp", "tp", "pp")

Conflicts = NDArray[numpy.bool_]


@dataclass(frozen=True, slots=True)
class BackupPlacement:
    """`holder[rank]` keeps the backup of that rank's shard, besides the rank itself; empty if there is only one
    machine.

    - `survives`: the kinds of eviction after which a copy of every shard is left, whichever one it is.
    - `lost`: single evictions that no placement survives, or that this one does not.
    - `reasons`: why.
    """

    holder: tuple[Rank, ...]
    survives: tuple[str, ...]
    lost: tuple[Domain, ...]
    reasons: tuple[str, ...]


def place(topology: Topology) -> BackupPlacement:
    """Finds a placement. Raises WrongUse for more machines than MOST_PLACES."""
    where = places(topology)
    if len(where) > MOST_PLACES:
        raise WrongUse(
            f"{len(where)} machines are too many to place backups on",
            f"{MOST_PLACES} at most: say which ranks share a machine",
            code="too-many",
        )
    every = domains(topology, where)
    kinds = tuple(dict.fromkeys(domain.kind for domain in every))
    if len(where) < 2:
        return BackupPlacement((), (), every, ("there is one machine only: nobody else can hold a copy",))
    whole = [domain for domain in every if len(domain.places) == len(where)]
    because = [
        f"{domain.name} is on every machine: nothing but a checkpoint outside survives it" for domain in whole[:1]
    ]
    if len(whole) > 1:
        because.append(f"so are {len(whole) - 1} more groups")
    partial = [domain for domain in every if len(domain.places) < len(where)]
    for given_up in _subsets(kinds):
        conflicts = _conflicts([domain for domain in partial if domain.kind not in given_up], len(where))
        holder, how = _placed(topology, where, conflicts)
        if holder:
            lost = tuple(domain for domain in every if _loses(domain, where, holder))
            bad = {domain.kind for domain in lost}
            if named := [kind for kind in given_up if kind in bad]:
                because.append(
                    f"no placement survives the eviction of any one {' or '.join(named)} and of all else, too"
                )
            return BackupPlacement(holder, tuple(kind for kind in kinds if kind not in bad), lost, (*because, how))
    raise AssertionError("two machines can hold each other's copies")


def _subsets(kinds: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What to give up: nothing, then one kind, then two; machines never."""
    may = sorted(
        (kind for kind in kinds if kind != MACHINE), key=lambda kind: _GIVEN_UP.index(kind) if kind in _GIVEN_UP else 0
    )
    for size in range(len(may) + 1):
        yield from combinations(may, size)


def _conflicts(apart: Sequence[Domain], count: int) -> Conflicts:
    """Which two places, (count, count), one eviction may take together; every place conflicts with itself."""
    member = numpy.zeros((count, len(apart)), dtype=numpy.float32)
    for column, domain in enumerate(apart):
        member[list(domain.places), column] = 1
    conflicts: Conflicts = member @ member.T > 0
    numpy.fill_diagonal(conflicts, True)
    return conflicts


def _placed(topology: Topology, where: Sequence[EvictionDomain], conflicts: Conflicts) -> tuple[tuple[Rank, ...], str]:
    """The holder of each rank's backup, and how it was found; empty where there is none."""
    if conflicts.all(axis=1).any():
        return (), ""
    place_of = numpy.zeros(topology.world_size, dtype=numpy.int64)
    for at, one in enumerate(where):
        place_of[list(one.ranks)] = at
    for holder, how in islice(_shifts(topology, where), _SHIFTS):
        if not conflicts[place_of, place_of[holder]].any():
            return tuple(Rank(int(rank)) for rank in holder), how
    matched = maximum_bipartite_matching(csr_matrix(~conflicts), perm_type="column")
    if (matched < 0).any():
        return (), ""
    found = {
        rank: where[matched[at]].ranks[number % len(where[matched[at]].ranks)]
        for at, one in enumerate(where)
        for number, rank in enumerate(one.ranks)
    }
    return tuple(found[Rank(rank)] for rank in range(topology.world_size)), "each machine by a perfect matching"


def _shifts(topology: Topology, where: Sequence[EvictionDomain]) -> Iterator[tuple[NDArray[numpy.int64], str]]:
    """Regular placements, the preferred first: half a turn along dp and pp, other turns, the next machines."""
    turns = {dim: _turn(topology, dim) for dim in ("dp", "pp", "cp") if dim in topology.groups}
    amounts = [_amounts(len(topology.groups[dim][0])) for dim in turns]
    by_turns = ((_composed(topology.world_size, turns, steps), _turn_text(turns, steps)) for steps in product(*amounts))
    by_machine = ((_next(where, step), f"each rank on the machine {step} further on") for step in range(1, len(where)))
    if len(turns) > 1:
        yield from islice(by_turns, _SHIFTS // 2)
    yield from by_machine


def _turn(topology: Topology, dim: str) -> NDArray[numpy.int64]:
    """The next rank along a dimension, around the group; a rank without such a group stays."""
    turn = numpy.arange(topology.world_size)
    for group in topology.groups[dim]:
        turn[list(group)] = [*group[1:], group[0]]
    return turn


def _amounts(size: int) -> list[int]:
    """Half a turn first, then its neighbours, and no turn at all last."""
    return sorted(range(size), key=lambda step: (step == 0, abs(step - size // 2), -step))


def _composed(world: int, turns: dict[str, NDArray[numpy.int64]], steps: Sequence[int]) -> NDArray[numpy.int64]:
    holder = numpy.arange(world)
    for turn, step in zip(turns.values(), steps, strict=True):
        for _ in range(step):
            holder = turn[holder]
    return holder


def _turn_text(turns: dict[str, NDArray[numpy.int64]], steps: Sequence[int]) -> str:
    return "each rank " + " and ".join(
        f"{step} further along {dim}" for dim, step in zip(turns, steps, strict=True) if step
    )


def _next(where: Sequence[EvictionDomain], step: int) -> NDArray[numpy.int64]:
    holder = numpy.zeros(sum(len(one.ranks) for one in where), dtype=numpy.int64)
    for at, one in enumerate(where):
        other = where[(at + step) % len(where)].ranks
        holder[list(one.ranks)] = [other[number % len(other)] for number in range(len(one.ranks))]
    return holder


def _loses(domain: Domain, where: Sequence[EvictionDomain], holder: Sequence[Rank]) -> bool:
    """Whether an eviction takes both copies of some shard."""
    gone = {rank for at in domain.places for rank in where[at].ranks}
    return any(holder[rank] in gone for rank in gone)
