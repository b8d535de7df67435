"""HDBSCAN on distinct stacks: clusters are denser than their surroundings, and noise stays alone."""

from collections.abc import Sequence

from hangdog_models.diagnosis.clustering.distance import CUT

#: Points that a cluster has at least. A call site that was seen often counts as so many points: multiplicity is
#: density.
LEAST = 2
#: Distance of ranks at one call site. It is not zero: density would be infinite.
SAME = 0.01


def density(
    distances: Sequence[Sequence[float]], counts: Sequence[int], whole: float = CUT, least: int = LEAST
) -> list[int]:
    """The cluster of each point, numbered by first appearance; `counts` says how often each point was seen.

    Points nearer than `whole` stay together, however dense the parts are. A cluster has at least `least` points.

    One pair of points at the cut from all others is added, and dropped from the answer. Without any surroundings
    HDBSCAN calls a single cluster noise. With `allow_single_cluster` it takes two call sites for one.

    The caller caps distances at 1: infinite ones make the library consume all memory.
    """
    if len(distances) == 1:
        return [0]
    import hdbscan  # takes a second and 110 MB: loaded only for this model
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
