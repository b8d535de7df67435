"""Clusters of ranks in the same place: exact classes of (signature, activity), largest first."""

from collections.abc import Iterable
from dataclasses import dataclass

from hangdog_models.diagnosis.activity import Standing
from hangdog_models.ranks import Rank


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ranks whose standings are alike; `sample` is the standing of its lowest rank."""

    ranks: tuple[Rank, ...]
    sample: Standing


def exact(standings: Iterable[Standing]) -> tuple[Cluster, ...]:
    """Partitions the standings; the order is by size, then by lowest rank, so it does not depend on arrival."""
    classes: dict[tuple[object, ...], list[Standing]] = {}
    for standing in standings:
        digest = standing.signature.digest if standing.signature else str(standing.missing or "")
        classes.setdefault((digest, *standing.place), []).append(standing)
    found = []
    for members in classes.values():
        members.sort(key=lambda standing: standing.rank)
        found.append(Cluster(tuple(standing.rank for standing in members), members[0]))
    return tuple(sorted(found, key=lambda cluster: (-len(cluster.ranks), cluster.ranks[0])))
