"""Jobs that live: healthy ones seen at a random instant, and jobs that one slow rank or machine holds up."""

from random import Random

from accuracy.simulator.faults.scene import INTERVAL_S, Scene
from accuracy.simulator.faults.software import replica_of
from hangdog_models.ranks import Rank

#: Looks at a job that is slow, and seconds between them (field.md section 1.7, fail-slow: five rounds of ten seconds).
SLOW_LOOKS, SLOW_INTERVAL_S = 6, 10.0
#: A slow job has run for long when one looks at it: the first half of what is simulated is only in the recorders.
PAST = 0.5

#: Groups whose members share their samples.
_CARRYING = ("tp", "cp", "pp")


def instants(rng: Random, last: float, *, slow: bool) -> tuple[float, ...]:
    """When a job that lives is looked at, in seconds of the simulated `last` ones; what is earlier than those repeats.

    Looks ten seconds apart are many steps apart and so at unrelated instants.
    """
    if slow:
        return tuple(sorted(rng.uniform(PAST, 0.97) * last for _ in range(SLOW_LOOKS)))
    second = rng.uniform(0.03, 0.97) * last
    return ((second - INTERVAL_S) % last, second)


def healthy(scene: Scene) -> bool:
    """Hosts and devices jitter by a few percent, and the looks come at any instant."""
    _jitter(scene)
    return True


def slow_device(scene: Scene) -> bool:
    """One device computes at a fraction of its speed: heat, a power brake, a background load (field.md section 12)."""
    return _slow(scene, (scene.rng.randrange(len(scene.processes)),))


def slow_machine(scene: Scene) -> bool:
    """All devices of one machine are slow."""
    return _slow(scene, scene.rng.choice(list(scene.job.topology.machines.values())))


def longer_samples(scene: Scene) -> bool:
    """One replica draws samples 1.5 to 3 times as long in every step: what carries them is larger. All machines are sound."""
    _jitter(scene)
    times = scene.rng.uniform(1.5, 3.0)
    replica = replica_of(scene)
    for rank in replica:
        process = scene.processes[rank]
        process.speed *= times
        process.ops = tuple(
            op._replace(size=round(op.size * times)) if op.slot in _CARRYING and op.size > 1 else op
            for op in process.ops
        )
    return bool(replica)


def _slow(scene: Scene, ranks: tuple[int, ...] | tuple[Rank, ...]) -> bool:
    _jitter(scene)
    scene.gap = SLOW_INTERVAL_S
    factor = scene.rng.uniform(2.0, 5.0)
    for rank in ranks:
        scene.processes[rank].speed *= factor
    scene.blame(*ranks)
    return True


def _jitter(scene: Scene) -> None:
    for process in scene.processes:
        process.speed = scene.rng.uniform(1.0, 1.04)
        # Loading, logging and saving vary far more than kernels do: files, caches and neighbours differ.
        process.pace = scene.rng.lognormvariate(0.0, 0.4)
