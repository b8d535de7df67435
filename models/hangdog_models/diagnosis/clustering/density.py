"""HDBSCAN on distinct stacks: clusters are what is denser than its surroundings; what it calls noise stays alone."""

from collections.abc import Sequence

from hangdog_models.diagnosis.clustering.distance import CUT

#: Points a cluster has at least. A place that was seen often counts as so many points: multiplicity is density.
LEAST = 2
#: Distance of ranks in one and the same place: not zero, for then density would be infinite.
SAME = 0.01


def density(
    distances: Sequence[Sequence[float]], counts: Sequence[int], whole: float = CUT, least: int = LEAST
) -> list[int]:
    """The cluster of each point, numbered by first appearance; `counts` says how often each point was seen.

    What is nearer than `whole` is not torn apart, however dense its parts are. A cluster has at least `least` points.

    A pair of points at the cut from everything stands beside the real ones: without any surroundings HDBSCAN calls a
    single cluster noise, and with `allow_single_cluster` it takes two places for one. It is dropped from the answer.
    Distances are capped at 1 by who computes them: infinite ones make the library consume all memory.
    """
    if len(distances) == 1:
        return [0]
    import hdbscan  # a second and 110 MB: only who asks for this model pays
    import numpy as np

    copies = [at for at, count in enumerate(counts) for _ in range(min(count, least))]
    square = np.full((len(copies) + least, len(copies) + least), CUT)
    square[: len(copies), : len(copies)] = np.array(distances)[np.ix_(copies, copies)].clip(SAME)
    square[len(copies) :, len(copies) :] = SAME
    np.fill_diagonal(square, 0.0)
    model = hdbscan.HDBSCAN(
        min_cluster_size=least,
        min_samples=least - 1,  # this library does not count the point itself
        cluster_selection_epsilon=whole - SAME,
        metric="precomputed",
    )
    labels = model.fit(square).labels_.tolist()
    found: dict[int, object] = {}
    for at, label in zip(copies, labels, strict=False):
        found.setdefault(at, label if label >= 0 else ("alone", at))
    number = {label: n for n, label in enumerate(dict.fromkeys(found.values()))}
    return [number[found[at]] for at in range(len(counts))]
