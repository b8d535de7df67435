"""Reads a worker's place in a TensorFlow cluster from TF_CONFIG, as `tf.distribute` does."""

import json
from dataclasses import dataclass

from hangdog_models.ranks import MAX_RANK

#: Tasks that train, in the order in which TensorFlow numbers them: a chief is worker 0 of all.
_TRAIN = ("chief", "master", "worker")


@dataclass(frozen=True, slots=True)
class ClusterWorker:
    """Which worker a process is, of how many."""

    rank: int
    workers: int


def worker(config: str) -> ClusterWorker | None:
    """The worker that a process is; None for a parameter server, an evaluator, or a text that is no such configuration."""
    try:
        document = json.loads(config) if config else None
    except (ValueError, RecursionError):
        return None
    cluster, task = (_table(document, key) for key in ("cluster", "task"))
    kind, index = task.get("type"), task.get("index")
    if kind not in _TRAIN or isinstance(index, bool) or not isinstance(index, int):
        return None
    sizes = {name: len(found) for name in _TRAIN if isinstance(found := cluster.get(name), list)}
    before = sum(size for name, size in sizes.items() if _TRAIN.index(name) < _TRAIN.index(kind))
    if not 0 <= index < sizes.get(kind, 0) or before + index > MAX_RANK:
        return None
    return ClusterWorker(before + index, sum(sizes.values()))


def _table(document: object, key: str) -> dict[str, object]:
    found = document.get(key) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}
