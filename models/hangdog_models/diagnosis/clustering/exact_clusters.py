"""Clusters of ranks in the same place: exact classes of (signature, activity), largest first."""

from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.activity import Standing, sites
from hangdog_models.ranks import Rank


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ranks whose standings are alike; `sample` is the standing of its lowest rank."""

    ranks: tuple[Rank, ...]
    sample: Standing


def exact(look: Mapping[Rank, Standing]) -> tuple[Cluster, ...]:
    """Partitions the ranks seen; the order is by size, then by lowest rank, so it does not depend on arrival."""
    classes: dict[tuple[object, ...], list[tuple[Standing, list[Rank]]]] = {}
    for standing, ranks in sites(look):
        if standing.missing is None or standing.frames:
            digest = standing.signature.digest if standing.signature else str(standing.missing or "")
            classes.setdefault((digest, *standing.place), []).append((standing, ranks))
    found = [
        Cluster(tuple(sorted(rank for _, ranks in members for rank in ranks)), members[0][0])
        for members in classes.values()
    ]
    return tuple(sorted(found, key=lambda cluster: (-len(cluster.ranks), cluster.ranks[0])))
