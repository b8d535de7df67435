"""The map of a job: where each rank lies along each dimension, and which cluster it is in, as compact as it can be told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hangdog_models.ranks import Rank
from hangdog_models.topology import DATA, MODEL, WORLD, Topology

#: Dimensions that are others together: a rank's place in them says nothing new.
JOINED = (WORLD, MODEL, DATA)
#: The dimension of machines, by number in the order of their first ranks.
MACHINE = "machine"
#: The dimension of leaf switches or racks, likewise.
SWITCH = "switch"
#: Where a rank lies that is in no cluster, or has no such group.
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension: the place of rank r in its group is `r // stride % size`, or, where that is not so, `places[r]`."""

    dim: str
    size: int
    stride: int = 0
    places: tuple[int, ...] = ()

    def place(self, rank: Rank) -> int:
        return self.places[rank] if self.places else rank // self.stride % self.size


@dataclass(frozen=True, slots=True)
class Grid:
    """The dimensions a map can be laid out by, and the cluster of each rank (-1: in none).

    `switches` are the places of that dimension by name. Machines whose ranks are in the same clusters, one by one, are alike:
    `alike` has a number for each machine of the topology, in its order.
    """

    axes: tuple[Axis, ...]
    clusters: tuple[int, ...]
    switches: tuple[str, ...] = ()
    alike: tuple[int, ...] = ()

    @property
    def usual(self) -> tuple[str, str]:
        """Rows and columns to begin with: stages by replicas where there are any, else machines; "" is no dimension."""
        dims = [axis.dim for axis in self.axes]
        rows = next((dim for dim in ("pp", "dp") if dim in dims), "")
        columns = next((dim for dim in ("dp", "cp", "tp") if dim in dims and dim != rows), "")
        return (rows, columns) if rows else (MACHINE if MACHINE in dims else "", "")


def laid_out(topology: Topology, clusters: Iterable[Sequence[Rank]]) -> Grid:
    """The map of a job whose ranks are in these clusters, numbered in order."""
    world = topology.world_size
    of = [NOWHERE] * world
    for number, ranks in enumerate(clusters):
        for rank in ranks:
            if rank < world:
                of[rank] = number
    axes: list[Axis | None] = [
        _axis(dim, [(at, rank) for group in groups for at, rank in enumerate(group)], world)
        for dim, groups in topology.groups.items()
        if dim not in JOINED and any(len(group) > 1 for group in groups)
    ]
    first = sorted((ranks for ranks in topology.machines.values() if ranks), key=min)
    if len(first) > 1:
        axes.append(_axis(MACHINE, [(at, rank) for at, ranks in enumerate(first) for rank in ranks], world))
    behind = _behind(topology)
    if len(behind) > 1:
        axes.append(_axis(SWITCH, [(at, rank) for at, ranks in enumerate(behind.values()) for rank in ranks], world))
    numbers: dict[tuple[int, ...], int] = {}
    alike = (
        numbers.setdefault(tuple(of[rank] for rank in ranks if rank < world), len(numbers))
        for ranks in topology.machines.values()
    )
    return Grid(tuple(axis for axis in axes if axis is not None), tuple(of), tuple(behind), tuple(alike))


def _behind(topology: Topology) -> dict[str, list[Rank]]:
    """The ranks behind each switch that has any, in the order of their first ranks; a machine hangs behind one of a name."""
    placed: set[str] = set()
    behind: dict[str, list[Rank]] = {}
    for name, machines in topology.switches.items():
        mine = [machine for machine in dict.fromkeys(machines) if machine not in placed]
        placed.update(mine)
        if ranks := [rank for machine in mine for rank in topology.machines.get(machine, ())]:
            behind[name] = ranks
    return dict(sorted(behind.items(), key=lambda one: min(one[1])))


def _axis(dim: str, placed: Iterable[tuple[int, Rank]], world: int) -> Axis | None:
    """One dimension; None where no rank of the job lies in it, as when evidence speaks of machines and of no rank."""
    places = [NOWHERE] * world
    for at, rank in placed:
        if rank < world:
            places[rank] = at
    size = max(places, default=NOWHERE) + 1
    if not size:
        return None
    stride = next((rank for rank, at in enumerate(places) if at == 1), 0)
    if stride and all(at == rank // stride % size for rank, at in enumerate(places)):
        return Axis(dim, size, stride)
    return Axis(dim, size, places=tuple(places))


def run_lengths(values: Iterable[int]) -> str:
    """Numbers written with their repetitions: `0*8 3 0*2`."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return " ".join(str(value) if times == 1 else f"{value}*{times}" for value, times in runs)
