"""The clustering models by name, behind one interface: a round of a job and its topology in, clusters out."""

from collections.abc import Callable, Mapping

from hangdog_models.diagnosis.clustering import exact_clusters
from hangdog_models.diagnosis.clustering.density import density
from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.clustering.linkage import linkage
from hangdog_models.diagnosis.clustering.near import near
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.errors import WrongUse
from hangdog_models.topology import Topology

#: Clusters partition the ranks with a captured stack; largest first, then by lowest rank.
Clustering = Callable[[Look, Topology], tuple[Cluster, ...]]


def exact(look: Look, topology: Topology) -> tuple[Cluster, ...]:
    """Equal signatures only: what ByteRobust (SOSP 2025) does."""
    return exact_clusters.exact(look)


def linked(look: Look, topology: Topology) -> tuple[Cluster, ...]:
    """Average linkage over the distinct signatures."""
    return near(exact_clusters.exact(look), topology, linkage)


def dense(look: Look, topology: Topology) -> tuple[Cluster, ...]:
    """HDBSCAN over the distinct signatures, with their multiplicity."""
    return near(exact_clusters.exact(look), topology, density)


MODELS: Mapping[str, Clustering] = {"exact": exact, "linkage": linked, "density": dense}


def clustering(name: str) -> Clustering:
    """The model of that name. Raises WrongUse for any other name."""
    if name not in MODELS:
        raise WrongUse(f"{name!r} is no clustering model", f"choose one of {', '.join(MODELS)}", code="unknown-choice")
    return MODELS[name]
