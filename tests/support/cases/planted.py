"""Jobs with a planted culprit: every rank is labelled by what it waits for, worked out apart from how hangdog scores it."""

from dataclasses import dataclass
from random import Random

from hangdog_models.ranks import Rank
from hangdog_models.topology import Layout, Topology, build

#: Sizes drawn for tensor, context, data and pipeline parallelism; jobs of 64 to 4,096 ranks are kept.
TENSOR, CONTEXT, DATA, PIPELINE, EXPERT = (1, 2, 4, 8), (1, 1, 1, 2), (1, 2, 4, 8, 16, 32), (1, 2, 4, 8), (1, 1, 2, 4)


@dataclass(frozen=True)
class Planted:
    sizes: dict[str, int]
    topology: Topology
    culprit: Rank
    labels: dict[Rank, str]


def planted(seed: int, noise: float = 0.0) -> Planted:
    """A job of some shape in which one rank does not join, and every other one waits for it, directly or through others.

    With probability `noise` a rank has a wrong label: that of some other place, or one of its own. Shapes in which
    another rank stands in exactly the same relation to all the others (one tensor peer only) are drawn again.
    """
    chance = Random(seed)
    while True:
        sizes = {"tp": chance.choice(TENSOR), "cp": chance.choice(CONTEXT), "dp": chance.choice(DATA)}
        sizes["pp"] = chance.choice(PIPELINE)
        world = sizes["tp"] * sizes["cp"] * sizes["dp"] * sizes["pp"]
        sizes["ep"] = chance.choice([size for size in EXPERT if sizes["dp"] * sizes["cp"] % size == 0])
        if not 64 <= world <= 4096:
            continue
        culprit, by_stage = chance.randrange(world), chance.random() < 0.5
        labels = {Rank(rank): _place(rank, culprit, sizes, by_stage) for rank in range(world)}
        counts = {label: list(labels.values()).count(label) for label in set(labels.values())}
        if all(count > 1 for label, count in counts.items() if label != "culprit") and len(counts) > 2:
            break
    kinds = sorted(counts)
    for rank in labels:
        if rank != culprit and chance.random() < noise:
            labels[rank] = chance.choice([chance.choice(kinds), f"odd {rank}"])
    topology, notes = build(Layout(sizes=sizes, ranks_per_machine=8), None)
    assert not notes
    return Planted(sizes, topology, Rank(culprit), labels)


def _place(rank: int, culprit: int, sizes: dict[str, int], by_stage: bool) -> str:
    """Where a rank ends that runs until it needs the culprit, or somebody who needs it."""
    tp, cp, dp = sizes["tp"], sizes["cp"], sizes["dp"]

    def replica(of: int) -> int:
        return of // (tp * cp) % dp

    def experts(of: int) -> set[int]:
        """The expert groups, by number, that any rank of this replica is a member of."""
        return {(replica(of) * cp + at) // sizes["ep"] for at in range(cp)}

    stage, own = rank // (tp * cp * dp), culprit // (tp * cp * dp)
    context, owns = rank // tp % cp, culprit // tp % cp
    block = (replica(culprit) * cp + owns) // sizes["ep"]
    stuck = replica(rank) == replica(culprit) or (sizes["ep"] > 1 and block in experts(rank))
    if rank == culprit:
        return "culprit"
    if not stuck:
        part = "first" if stage == 0 else "last" if stage == sizes["pp"] - 1 else "middle"
        return f"gradients {part}" if by_stage else "gradients"
    if stage != own:
        return "waits for gradient" if stage < own else "waits for input"
    if replica(rank) != replica(culprit):
        return "experts"
    return "tensor" if context == owns else "context"
