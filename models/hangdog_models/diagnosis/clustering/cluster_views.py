"""Clusters as a verdict shows them."""

from collections.abc import Sequence

from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.verdict import ClusterView


def views(clusters: Sequence[Cluster]) -> tuple[ClusterView, ...]:
    """The views of all clusters, numbered in their order."""
    return tuple(_view(number, cluster) for number, cluster in enumerate(clusters))


def _view(number: int, cluster: Cluster) -> ClusterView:
    sample = cluster.sample
    label = sample.label or sample.operation or sample.rule
    if sample.waits and sample.operation and sample.label not in ("", sample.operation):
        label = f"{sample.operation} of {sample.label}"
    stack = sample.signature.written() if sample.signature else ()
    return ClusterView(number, cluster.ranks, sample.activity, sample.dim, label, stack)
