"""Clusters of ranks at the same call site: exact classes of signature and activity, largest first."""

from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.activity import RankState, sites
from hangdog_models.ranks import Rank


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ranks whose states are alike; `sample` is the state of its lowest rank."""

    ranks: tuple[Rank, ...]
    sample: RankState


def exact(look: Mapping[Rank, RankState]) -> tuple[Cluster, ...]:
    """Partitions the captured ranks, by size and then by lowest rank, so the order does not depend on arrival."""
    classes: dict[tuple[object, ...], list[tuple[RankState, list[Rank]]]] = {}
    for state, ranks in sites(look):
        if state.missing is None or state.frames:
            digest = state.signature.digest if state.signature else str(state.missing or "")
            classes.setdefault((digest, *state.place), []).append((state, ranks))
    found = [
        Cluster(tuple(sorted(rank for _, ranks in members for rank in ranks)), members[0][0])
        for members in classes.values()
    ]
    return tuple(sorted(found, key=lambda cluster: (-len(cluster.ranks), cluster.ranks[0])))
