"""Faults of the program: ranks that meet a condition do something else than the others. All machines are sound.

Conditions are those of published cases: one rank (XTIMER-8), all ranks of one data-parallel replica (AURORA-12, LANCE-2),
every rank with an odd coordinate. The fault moves with the code, so nobody is to be evicted.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise

from accuracy.simulator.faults.scene import Scene
from accuracy.simulator.program import Code, Mode, Op, Place, frames
from hangdog_models.ranks import Rank

_LOOP_END = frames("wait_for_everyone sync.py:44", "wrapper torch/distributed/c10d_logger.py:83",
                   "barrier torch/distributed/distributed_c10d.py:3943")  # fmt: skip
_EXTRA = frames("check_state debug_hooks.py:29", "wrapper torch/distributed/c10d_logger.py:83",
                "barrier torch/distributed/distributed_c10d.py:3943")  # fmt: skip


def size(scene: Scene) -> bool:
    """The odd ranks pass tensors of another size (ms-swift#10183)."""
    return _differ(scene, lambda op: op._replace(size=op.size + 4096))


def dtype(scene: Scene) -> bool:
    return _differ(scene, lambda op: op._replace(dtype="Half" if op.dtype != "Half" else "Float"))


def kind(scene: Scene) -> bool:
    """The odd ranks call another collective on the same group (field.md section 12, AllReduce against AllGather)."""

    def other(op: Op) -> Op:
        name = "all_gather_into_tensor" if op.kind != "all_gather_into_tensor" else "all_reduce"
        main = op.place.main
        if main[-1].function == op.kind:
            main = (*main[:-1], *frames(f"{name} torch/distributed/distributed_c10d.py:3108"))
        return op._replace(kind=name, place=Place(main, op.place.autograd))

    return _differ(scene, other)


def skipped(scene: Scene) -> bool:
    """The odd ranks leave a collective out and go on (a condition that differs between ranks)."""
    return _differ(scene, None)


def extra(scene: Scene) -> bool:
    """The odd ranks call a barrier of all ranks that the others do not (XTIMER-8)."""
    odd = _odd(scene)
    at = scene.rng.choice(scene.anchors(odd[0], ""))
    for rank in odd:
        if at not in scene.anchors(rank, ""):
            return False
        place = scene.processes[rank].ops[at].place
        barrier = Op(Code.COLLECTIVE, Place((*place.main, *_EXTRA)), 1e-4, "world", "barrier", 1, mode=Mode.HOST)
        scene.insert(rank, at, barrier)
    scene.blamed = odd
    return True


def crossed(scene: Scene) -> bool:
    """The odd ranks take two collectives of different groups in the other order: a deadlock of two groups."""
    odd = _odd(scene)
    ops = scene.processes[odd[0]].ops
    spots = [at for at in _collectives(scene, odd[0]) if ops[at].mode is not Mode.ASYNC]
    swaps = [(one, two) for one, two in pairwise(spots) if ops[one].slot != ops[two].slot]
    swaps = [
        (one, two) for one, two in swaps if _splits(scene, odd, ops[one].slot) or _splits(scene, odd, ops[two].slot)
    ]
    if not swaps:
        return False
    one, two = scene.rng.choice(swaps)
    for rank in odd:
        own = scene.processes[rank].ops
        if [_what(own[at]) for at in (one, two)] != [_what(ops[at]) for at in (one, two)]:
            return False
        scene.change(rank, one, own[two])
        scene.change(rank, two, own[one])
    scene.blamed = odd
    return True


def uneven(scene: Scene) -> bool:
    """One replica runs out of data and leaves the loop early: a minority ahead, at the next barrier (AURORA-12)."""
    replica = replica_of(scene)
    if not replica:
        return False
    early = set(replica)
    if scene.rng.random() < 0.3:  # the other way round: one replica has a batch more than all others
        early = set(range(len(scene.processes))) - early
    for rank in early:
        process, begins = scene.processes[rank], scene.marks[rank]
        cut = begins[1] if len(begins) > 2 else begins[-1]
        root = process.ops[cut].place.main[:2]
        barrier = Op(Code.COLLECTIVE, Place((*root, *_LOOP_END)), 1e-4, "world", "barrier", 1, mode=Mode.HOST)
        process.ops = (*process.ops[:cut], barrier, process.ops[-1])
    scene.blamed = tuple(sorted(replica))
    return True


def _differ(scene: Scene, change: Callable[[Op], Op] | None) -> bool:
    """Changes (or leaves out) one collective of the odd ranks in a group where others are not odd."""
    odd = _odd(scene)
    spots = [at for at in _collectives(scene, odd[0]) if _splits(scene, odd, scene.processes[odd[0]].ops[at].slot)]
    if not spots:
        return False
    at = scene.rng.choice(spots)
    model = scene.processes[odd[0]].ops[at]
    for rank in odd:
        op = scene.processes[rank].ops[at]
        if _what(op) != _what(model):
            return False
        scene.change(rank, at, *((change(op),) if change else ()))
    scene.blamed = odd
    return True


def _what(op: Op) -> tuple[Code, str, str]:
    return op.code, op.slot, op.kind


def _collectives(scene: Scene, rank: int) -> list[int]:
    ops = scene.processes[rank].ops[: scene.marks[rank][-1]]
    return [at for at, op in enumerate(ops) if op.code is Code.COLLECTIVE and op.mode is not Mode.HOST]


def _splits(scene: Scene, odd: Iterable[int], slot: str) -> bool:
    """Some group of this kind has both odd and other members, so that they meet in one collective."""
    ranks = set(odd)
    return any(not ranks.issuperset(scene.processes[rank].groups[slot].ranks) for rank in ranks)


def _odd(scene: Scene) -> tuple[int, ...]:
    """The ranks that meet the condition: one rank, or those of one replica that stand in one stage."""
    rank = scene.rng.randrange(len(scene.processes))
    if scene.rng.random() < 0.6:
        return (rank,)
    stage = scene.job.topology.stage(Rank(rank))
    return tuple(r for r in replica_of(scene) if scene.job.topology.stage(Rank(r)) == stage) or (rank,)


def replica_of(scene: Scene) -> tuple[int, ...]:
    """All ranks of one data-parallel replica of the model."""
    topology = scene.job.topology
    groups = topology.groups.get("dp", ())
    if not groups:
        return ()
    which = scene.rng.randrange(len(groups[0]))
    return tuple(sorted(group[which] for group in groups))
