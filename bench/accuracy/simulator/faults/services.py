"""Faults of what many machines share: storage, a data service, the store, a name service. All machines are sound."""

from collections.abc import Callable

from accuracy.simulator.faults.hosts import put
from accuracy.simulator.faults.scene import Scene
from accuracy.simulator.faults.stalls import SERVICES
from accuracy.simulator.program import Code, Op, Place, frames

#: Start-up, where every rank asks the store for the addresses of the others.
_START = frames(
    "<module> train.py:231", "setup_distributed train.py:40", "wrapper torch/distributed/c10d_logger.py:97",
    "init_process_group torch/distributed/distributed_c10d.py:1527", "_env_rendezvous_handler torch/distributed/rendezvous.py:258",
    "_create_c10d_store torch/distributed/rendezvous.py:185",
)  # fmt: skip


def outage(name: str, share: tuple[float, float]) -> Callable[[Scene], bool]:
    """The service stops answering: from some step on the ranks that ask it, a share of them, get no further."""

    def plant(scene: Scene) -> bool:
        what = SERVICES[name]
        askers = [rank for rank in range(len(scene.processes)) if scene.anchors(rank, what.anchor)]
        count = round(len(askers) * scene.rng.uniform(*share))
        hit = sorted(scene.rng.sample(askers, max(count, 2))) if len(askers) >= 2 else []
        if len({scene.machine(rank) for rank in hit}) < 2:
            return False
        which = scene.rng.random()
        for rank in hit:
            spots = scene.anchors(rank, what.anchor)
            put(scene, rank, what, spots[int(which * len(spots))])
        scene.blamed = tuple(hit)
        return True

    return plant


def store(scene: Scene) -> bool:
    """The store does not answer: nobody gets past start-up."""
    for process in scene.processes:
        process.ops = (Op(Code.STALL, Place(_START), kind="store"),)
        scene.stalls[process.rank] = SERVICES["store"]
    scene.blamed = tuple(range(len(scene.processes)))
    return True
