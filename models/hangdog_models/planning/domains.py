"""What may be evicted together: a machine, a leaf switch, or the machines of one parallel group."""

from collections.abc import Iterator
from dataclasses import dataclass

from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.topology import DATA, MODEL, WORLD, Topology

MACHINE, LEAF = "machine", "leaf"
#: Groups made of other groups, or of all ranks: they are never evicted.
_COMPOSED = frozenset({WORLD, MODEL, DATA})


@dataclass(frozen=True, slots=True)
class EvictionDomain:
    """A machine and its ranks; a rank whose machine is unknown is a place of its own."""

    name: str
    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """Places that one eviction takes together, by their numbers. `kind` is machine, leaf, or the group's dimension."""

    kind: str
    name: str
    places: frozenset[int]


def places(topology: Topology) -> tuple[EvictionDomain, ...]:
    """The machines of a job in the order of their first ranks."""
    ranks: dict[str, list[Rank]] = {}
    for number in range(topology.world_size):
        rank = Rank(number)
        ranks.setdefault(topology.machine(rank) or f"rank {rank}", []).append(rank)
    return tuple(EvictionDomain(name, tuple(held)) for name, held in ranks.items())


def domains(topology: Topology, where: tuple[EvictionDomain, ...]) -> tuple[Domain, ...]:
    """All that may be evicted at once, machines first; groups of the same places are one."""
    found: dict[tuple[str, frozenset[int]], Domain] = {}
    for one in _all(topology, where):
        found.setdefault((one.kind, one.places), one)
    return tuple(found.values())


def _all(topology: Topology, where: tuple[EvictionDomain, ...]) -> Iterator[Domain]:
    number = {place.name: at for at, place in enumerate(where)}
    place_of = {rank: at for at, place in enumerate(where) for rank in place.ranks}
    for at, place in enumerate(where):
        yield Domain(MACHINE, place.name, frozenset({at}))
    for dim, groups in topology.groups.items():
        for group in groups if dim not in _COMPOSED else ():
            held = frozenset(place_of[rank] for rank in group if rank in place_of)
            yield Domain(dim, f"{dim} group {format_ranks(group)}", held)
    for leaf, machines in topology.switches.items():
        held = frozenset(number[machine] for machine in machines if machine in number)
        if held:
            yield Domain(LEAF, leaf, held)
