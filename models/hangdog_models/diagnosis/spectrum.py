"""Which fault domains the outliers share: Ochiai's score over machines, process groups and switches, and a greedy cover.

A score of 1 says that all outliers, and nobody else, are in the domain; wide domains do not win by size. The cover keeps
two independent faults apart instead of merging them into one wide domain.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from math import sqrt

from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology

#: Below this score a domain is no explanation: a whole job reaches it when a quarter of its machines are outliers.
FLOOR = 0.5
#: A cover of more domains than this is none: so many independent faults do not happen at once.
COVERED_BY = 8

Unit = Hashable


@dataclass(frozen=True, slots=True)
class Domain:
    """Units that share a fault domain: `kind` is machine, switch or a parallel dimension, `units` are machines.

    `score` is Ochiai's, 0 to 1, among the outliers that earlier domains of a cover left.
    """

    kind: str
    units: tuple[Unit, ...]
    score: float


def scores(failed: Mapping[Unit, int], domains: Mapping[tuple[Unit, ...], str], rounds: int = 1) -> tuple[Domain, ...]:
    """All domains with an outlier, best first; ties go to the smaller one. Counts of several rounds are added up.

    `failed` counts in how many of the `rounds` a unit was an outlier. The time is that of reading the domains.
    """
    total = sum(failed.values())
    found = []
    for units, kind in domains.items():
        inside = sum(failed.get(unit, 0) for unit in units)
        if inside:
            found.append(Domain(kind, units, inside / sqrt(total * rounds * len(units))))
    return tuple(sorted(found, key=lambda domain: (-round(domain.score, 9), len(domain.units), str(domain.units))))


def cover(failed: Mapping[Unit, int], domains: Mapping[tuple[Unit, ...], str], rounds: int = 1) -> tuple[Domain, ...]:
    """The domains that together hold the outliers, the best first, while each scores `FLOOR` or more."""
    left = {unit: count for unit, count in failed.items() if count}
    touching = {domain.units: domain.kind for domain in scores(left, domains, rounds)}
    chosen: list[Domain] = []
    while left and len(chosen) < COVERED_BY:
        best = next(iter(scores(left, touching, rounds)), None)
        if best is None or best.score < FLOOR:
            break
        chosen.append(best)
        for unit in best.units:
            left.pop(unit, None)
    return tuple(chosen)


def machine_domains(topology: Topology) -> dict[tuple[Unit, ...], str]:
    """The fault domains of a job as sets of machines: a domain that is one machine is that machine, whatever else it is."""
    found: dict[tuple[Unit, ...], str] = {(name,): "machine" for name in topology.machines}
    for dim, groups in sorted(topology.groups.items(), key=lambda entry: len(entry[1]), reverse=True):
        for group in groups:
            found.setdefault(tuple(dict.fromkeys(sorted(units_of(group, topology), key=str))), dim)
    for machines in topology.switches.values():
        found.setdefault(tuple(sorted(machines)), "switch")
    return found


def units_of(ranks: Iterable[Rank], topology: Topology) -> dict[Unit, int]:
    """The machines of these ranks, each counted once however many of its ranks are among them; unknown ones by rank."""
    found: dict[Unit, int] = defaultdict(int)
    for rank in ranks:
        found[topology.machine(rank) or f"rank {rank}"] = 1
    return dict(found)
