"""HDBSCAN on distinct stacks: clusters are what is denser than its surroundings; what it calls noise stays alone."""

from collections.abc import Sequence

#: Points a cluster has at least. A place that many ranks share counts as so many points: multiplicity is density.
LEAST = 2
#: Distance of ranks in one and the same place: not zero, for then density would be infinite.
SAME = 0.01


def density(distances: Sequence[Sequence[float]], counts: Sequence[int]) -> list[int]:
    """The cluster of each point, numbered by first appearance; `counts` says how many ranks each point stands for.

    A pair of points far from all others stands beside the real ones: without any surroundings HDBSCAN calls a single
    cluster noise, and with `allow_single_cluster` it takes two places for one. It is dropped from the answer.
    """
    import numpy as np
    from sklearn.cluster import HDBSCAN

    if len(distances) == 1:
        return [0]
    copies = [at for at, count in enumerate(counts) for _ in range(min(count, LEAST))]
    apart = np.array([[distances[one][other] for other in copies] for one in copies])
    apart[apart < SAME] = SAME
    square = np.ones((len(copies) + LEAST, len(copies) + LEAST))
    square[: len(copies), : len(copies)] = apart
    square[len(copies) :, len(copies) :] = SAME
    np.fill_diagonal(square, 0.0)
    model = HDBSCAN(min_cluster_size=LEAST, min_samples=LEAST, metric="precomputed", copy=True)
    labels = model.fit(square).labels_[: len(copies)].tolist()
    found: dict[int, object] = {}
    for at, label in zip(copies, labels, strict=True):
        found.setdefault(at, label if label >= 0 else ("alone", at))
    number = {label: n for n, label in enumerate(dict.fromkeys(found.values()))}
    return [number[found[at]] for at in range(len(counts))]
