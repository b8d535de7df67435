"""Faults of a host: one process stops going on, is stopped, dies, or its whole machine freezes."""

from collections.abc import Callable

from accuracy.simulator.faults.scene import Scene
from accuracy.simulator.faults.stalls import HOST, Stall
from accuracy.simulator.program import Code, Op
from hangdog_models.ranks import Rank
from hangdog_models.stack import Reason


def stall(name: str) -> Callable[[Scene], bool]:
    def plant(scene: Scene) -> bool:
        rank = pick(scene, HOST[name])
        if rank is None:
            return False
        put(scene, rank, HOST[name], scene.rng.choice(scene.anchors(rank, HOST[name].anchor)))
        scene.blame(rank)
        return True

    return plant


def pick(scene: Scene, what: Stall, avoid: str = "") -> int | None:
    """A random rank that does the kind of work in which it can happen, not on the machine to avoid."""
    ranks = list(range(len(scene.processes)))
    scene.rng.shuffle(ranks)
    for rank in ranks:
        if scene.machine(rank) != avoid and scene.anchors(rank, what.anchor):
            return rank
    return None


def put(scene: Scene, rank: int, what: Stall, at: int) -> None:
    """The rank never gets beyond `at`."""
    scene.insert(rank, at, Op(Code.STALL, scene.processes[rank].ops[at].place, kind=what.name))
    scene.stalls[rank] = what


def stop(scene: Scene) -> bool:
    """SIGSTOP: the host stops wherever it is; what it had launched runs on."""
    rank = scene.rng.randrange(len(scene.processes))
    scene.processes[rank].host_stop = scene.moment()
    scene.stopped.add(rank)
    scene.blame(rank)
    return True


def die(scene: Scene) -> bool:
    """The process dies and takes its device's work along; a zombie stays, or nothing."""
    rank = scene.rng.randrange(len(scene.processes))
    scene.processes[rank].host_stop = scene.processes[rank].device_stop = scene.moment()
    scene.gone[rank] = scene.rng.choice((Reason.ZOMBIE, Reason.EXITED))
    scene.blame(rank)
    return True


def freeze(scene: Scene) -> bool:
    """A machine freezes with all its ranks and its agent (field.md section 12, IDEFICS: absence is evidence)."""
    machine, ranks = scene.rng.choice(list(scene.job.topology.machines.items()))
    moment, reason = scene.moment(), scene.rng.choice((Reason.NO_AGENT, Reason.TIMED_OUT))
    for rank in ranks:
        scene.processes[rank].host_stop = scene.processes[rank].device_stop = moment
        scene.gone[rank] = reason
    scene.blame(*ranks)
    scene.guilty = (machine,)
    return True


def two(scene: Scene) -> bool:
    """Two host faults on different machines, neither waiting for the other: at one place in two replicas of a stage."""
    first, second = (HOST[name] for name in scene.rng.sample(list(_ANYWHERE), 2))
    one = pick(scene, first)
    if one is None:
        return False
    at = scene.rng.choice(scene.anchors(one, first.anchor))
    replicas = scene.job.topology.group("dp", Rank(one)) or ()
    far = [rank for rank in replicas if scene.machine(rank) != scene.machine(one)]
    if not far:
        return False
    other = scene.rng.choice(far)
    if at not in scene.anchors(other, second.anchor):
        return False
    put(scene, one, first, at)
    put(scene, other, second, at)
    scene.blame(one, other)
    return True


#: Stalls that may happen anywhere in computing.
_ANYWHERE = [name for name, what in HOST.items() if not what.anchor and not what.own_work]
