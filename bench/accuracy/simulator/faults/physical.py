"""Faults of devices and of the network: hosts run on until they wait, and only counters tell where it stopped."""

from functools import lru_cache
from itertools import pairwise
from math import inf

from accuracy.simulator.faults.scene import Scene
from accuracy.simulator.program import Code


def device_hang(scene: Scene) -> bool:
    """A kernel never ends on one rank: what it launches later is enqueued and never starts."""
    ranks = list(range(len(scene.processes)))
    rank = scene.rng.choice(ranks)
    ops = scene.processes[rank].ops
    kernels = [at for at, op in enumerate(ops[: scene.marks[rank][-1]]) if op.code is Code.KERNEL]
    at = scene.rng.choice(kernels)
    scene.change(rank, at, ops[at]._replace(seconds=inf))
    scene.blame(rank)
    return True


def link(scene: Scene) -> bool:
    """The connection of two neighbours in one group's ring breaks: every operation over it stays unfinished."""
    pairs = _crossings(scene)
    if not pairs:
        return False
    one, other = scene.rng.choice(pairs)
    moment = scene.moment()

    def cuts(members: tuple[int, ...], time: float) -> bool:
        return time > moment and (one, other) in _ring(members)

    scene.cuts = cuts
    scene.blame(one, other)
    return True


def nic(scene: Scene) -> bool:
    """The adapter of one rank breaks: all its groups that leave the machine stay unfinished."""
    leaving = sorted({rank for pair in _crossings(scene) for rank in pair})
    if not leaving:
        return False
    rank, moment = scene.rng.choice(leaving), scene.moment()
    place = scene.machine(rank)

    def cuts(members: tuple[int, ...], time: float) -> bool:
        return time > moment and rank in members and any(scene.machine(member) != place for member in members)

    scene.cuts = cuts
    scene.blame(rank)
    return True


def switch(scene: Scene) -> bool:
    """A leaf switch loses its way up: no operation between machines under it and others completes."""
    topology = scene.job.topology
    if len(topology.switches) < 2:
        return False
    machines = set(topology.switches[scene.rng.choice(sorted(topology.switches))])
    moment = scene.moment()
    below = {rank for machine in machines for rank in topology.machines[machine]}

    def cuts(members: tuple[int, ...], time: float) -> bool:
        return time > moment and len({member in below for member in members}) == 2

    scene.cuts = cuts
    scene.blame(*below)
    return True


def nvlink(scene: Scene) -> bool:
    """The links inside a machine break at one device: its operations with neighbours there stay unfinished."""
    slots = {op.slot for op in scene.processes[0].ops if op.slot}
    inside = [
        rank
        for dim, groups in scene.job.topology.groups.items()
        if dim in slots
        for group in groups
        if len(group) > 1 and len(scene.job.topology.machines_of(group)) == 1
        for rank in group
    ]
    if not inside:
        return False
    rank, moment = scene.rng.choice(inside), scene.moment()
    place = scene.machine(rank)

    def cuts(members: tuple[int, ...], time: float) -> bool:
        return time > moment and rank in members and all(scene.machine(member) == place for member in members)

    scene.cuts = cuts
    scene.blame(rank)
    return True


def _crossings(scene: Scene) -> list[tuple[int, int]]:
    """Neighbours in some group's ring that are on different machines, of groups that are used."""
    slots = {op.slot for op in scene.processes[0].ops if op.slot}
    found: set[tuple[int, int]] = set()
    for dim, groups in scene.job.topology.groups.items():
        if dim in slots:
            for group in groups:
                found.update(pair for pair in _ring(group) if scene.machine(pair[0]) != scene.machine(pair[1]))
    return sorted(found)


@lru_cache(maxsize=1 << 12)
def _ring(members: tuple[int, ...]) -> set[tuple[int, int]]:
    """Who sends to whom: NCCL's rings follow the order of ranks where every machine holds a run of them."""
    return set(pairwise((*members, members[0])))
