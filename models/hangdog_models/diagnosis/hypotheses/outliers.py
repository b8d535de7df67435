"""Who stands apart from their like, the smallest process group that holds them all, and the messages stuck between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.hypotheses.blame_factors import merely_failed
from hangdog_models.diagnosis.hypotheses.masked_waits import BARRIERS
from hangdog_models.diagnosis.observe.activity import RankState, sites
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.observe.silence import silent_ranks
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity

CROWD_SHARE = likelihood("crowd_share")
WIDEST_SHARE = likelihood("widest_share")
#: What a rank sends or receives and the way it goes, by names in the functions it is in: Megatron-Core's `recv_forward`, and
#: `_exec_recv_activations` of DeepSpeed's engine, which stands further out than its `recv`.
_SENDS_ON, _TAKES_ON = ("send_forward", "send_activations"), ("recv_forward", "recv_activations")
_SENDS_BACK, _TAKES_BACK = ("send_backward", "send_grads"), ("recv_backward", "recv_grads")
MACHINE, SWITCH = "machine", "switch"
PIPELINE, TENSOR, MODEL = "pp", "tp", "mp"

Pair = tuple[Rank, Rank]


@dataclass(frozen=True, slots=True)
class Apart:
    """`ranks` stand elsewhere than most of their stage; `group` along `dim` is the smallest that holds them all.

    `pairs` are neighbour stages of them that are both in one message; where no group holds all, those of one machine with
    one other are it, else it is empty. `message`: the ends of the only message one end of which its tensor peers are not
    in. `closed`: the only pipeline of more than two all of whose stages wait for messages: it waits for nobody else.
    `led`: they stand as those do whom the code leads another way.
    """

    ranks: tuple[Rank, ...]
    dim: str = ""
    group: tuple[Rank, ...] = ()
    pairs: tuple[Pair, ...] = ()
    message: tuple[Rank, ...] = ()
    closed: tuple[Rank, ...] = ()
    led: bool = False

    @property
    def lost(self) -> tuple[Rank, ...]:
        """The ends of the one message that does not arrive, or else the one pipeline in which none does."""
        return self.message or self.closed


NOBODY = Apart(())


def find(clusters: Sequence[Cluster], look: Look, waits: Waits, topology: Topology) -> Apart:
    """Who stands apart where all wait and no counter tells more.

    Nobody where a rank stands outside, a machine is silent, or some are at a barrier and others are not: programs call a
    barrier for all ranks at one place, so somebody went another way through the code. That ranks are compared within their
    stage, and that the smallest group they share is meant, is ByteRobust's (SOSP 2025).
    """
    barred = any(cluster.sample.operation in BARRIERS for cluster in clusters)
    outside = not all(_may_wait(look[rank]) for rank in waits.roots) or silent_ranks(look, topology)
    counted = any(hold.counted for hold in waits.holds)
    if len(clusters) < 2 or barred or outside or counted or len(topology.machines) < 2:
        return NOBODY
    unseen = waits.reached_from(rank for rank in waits.roots if merely_failed(look[rank]))  # these explain themselves
    ranks = tuple(rank for rank in _odd(clusters, topology) if rank not in unseen)
    met = _met(look, topology)
    odd = frozenset(ranks)
    pairs = tuple(pair for pair in met if odd.issuperset(pair))
    dim, group = _smallest(ranks, topology) if len(ranks) > 1 else ("", ())
    if dim == TENSOR and all(look[rank].waits and look[rank].dim != TENSOR for rank in ranks):
        dim, group = _with_its_pipelines(ranks[0], topology) or (dim, group)
    if not group and _narrow(pairs, topology):
        dim, group = PIPELINE, tuple(sorted(rank for pair in pairs for rank in pair))
    message, closed = _message(met, odd, clusters, topology), _closed(look, topology)
    return Apart(ranks, dim, group, pairs, message, closed, _led(odd, pairs, look, topology))


def _may_wait(state: RankState) -> bool:
    """Whether a rank of which no frame says that it waits may do so all the same: its launch queue is full, or nobody saw it."""
    return state.activity is Activity.LAUNCH or merely_failed(state)


def _odd(clusters: Sequence[Cluster], topology: Topology) -> tuple[Rank, ...]:
    """The ranks that stand where few of their stage do."""
    stages = {rank: stage for group in topology.groups.get(PIPELINE, ()) for stage, rank in enumerate(group)}
    of_stage: dict[int, list[list[Rank]]] = {}
    for cluster in clusters:
        split: dict[int, list[Rank]] = {}
        for rank in cluster.ranks:
            split.setdefault(stages.get(rank, 0), []).append(rank)
        for stage, ranks in split.items():
            of_stage.setdefault(stage, []).append(ranks)
    odd: list[Rank] = []
    for alike in of_stage.values():
        largest = max(map(len, alike))
        odd += (rank for ranks in alike if len(ranks) <= CROWD_SHARE * largest for rank in ranks)
    return tuple(sorted(odd))


def _smallest(ranks: tuple[Rank, ...], topology: Topology) -> tuple[str, tuple[Rank, ...]]:
    """The smallest process group, or else machine, that holds all of `ranks`; a switch only where nobody else is below it."""
    first, all_of = ranks[0], set(ranks)
    machine = topology.machine(first)
    near = [(dim, topology.group(dim, first) or ()) for dim in topology.dims if dim != WORLD]
    near += [(MACHINE, topology.machines[machine])] if machine is not None else []
    for machines in topology.switches.values():
        below = tuple(sorted(rank for name in machines for rank in topology.machines.get(name, ())))
        near += [(SWITCH, below)] if all_of.issuperset(below) else []
    widest = WIDEST_SHARE * len(topology.machines)
    holding = [
        (dim, group) for dim, group in near if all_of <= set(group) and len(topology.machines_of(group)) <= widest
    ]
    return min(holding, key=lambda found: len(found[1]), default=("", ()))


def _with_its_pipelines(rank: Rank, topology: Topology) -> tuple[str, tuple[Rank, ...]] | None:
    """The model-parallel group of a rank, where it is narrow enough to be named.

    A tensor group that is not in an operation of its own waits for its devices, and these for messages: the stage before
    it may be what is held up, and need nothing of its devices yet. Of 7 simulated faults of hardware where the tensor group
    that stood apart was sound, all 7 were in its pipelines.
    """
    group = topology.group(MODEL, rank)
    narrow = group is not None and len(topology.machines_of(group)) <= WIDEST_SHARE * len(topology.machines)
    return (MODEL, group) if group is not None and narrow else None


def _led(odd: frozenset[Rank], pairs: Sequence[Pair], look: Look, topology: Topology) -> bool:
    """Whether the code rather led them there: they wait for nothing, or their pipeline is about to end the step.

    Without stages who is held up waits, for its device or its group. Where all who stand apart launch or compute, they are a
    replica that takes another way: of 19 simulated ones 4 held a fault. What holds up a pipeline holds up its first stage,
    too. Where that one stands as its like do the step ends, and gradients are summed in several groups, whose order code
    may cross: of 34 simulated ones with messages stuck between them 6 held a fault, of 38 with their first stage 23.
    """
    pipelines = topology.groups.get(PIPELINE, ())
    if pairs:
        return not any(group[0] in odd for group in pipelines)
    return not pipelines and not any(look[rank].waits for rank in odd)


def _met(look: Look, topology: Topology) -> tuple[Pair, ...]:
    """Neighbour stages of which one is in a send, and the other in the receive that belongs to it."""
    ways = {id(state): _ways(state) for state, _ in sites(look)}
    return tuple(
        (one, other)
        for group in topology.groups.get(PIPELINE, ())
        for one, other in pairwise(group)
        if one in look and other in look and _meet(ways[id(look[one])], ways[id(look[other])])
    )


def _message(
    met: Sequence[Pair], odd: frozenset[Rank], clusters: Sequence[Cluster], topology: Topology
) -> tuple[Rank, ...]:
    """The one pair at one end of which a rank stands without its tensor peers, with whom it does all else.

    Without such peers both ends have to stand apart from their stages.
    """
    cluster_of = {rank: number for number, cluster in enumerate(clusters) for rank in cluster.ranks}

    def alone(rank: Rank) -> bool:
        seen = [peer for peer in topology.group(TENSOR, rank) or () if peer != rank and peer in cluster_of]
        return bool(seen) and all(cluster_of[peer] != cluster_of.get(rank) for peer in seen)

    tensor = TENSOR in topology.groups
    found = [pair for pair in met if (any(map(alone, pair)) if tensor else odd.issuperset(pair))]
    return found[0] if len(found) == 1 else ()


def _narrow(pairs: Sequence[Pair], topology: Topology) -> bool:
    """Whether one machine is at this end of all of the pairs, and one at the other."""
    return bool(pairs) and all(len(topology.machines_of(ends)) == 1 for ends in zip(*pairs, strict=True))


def _ways(state: RankState) -> frozenset[tuple[str, ...]]:
    """What the message sends or takes that a rank is in; both, where one call exchanges two."""
    if state.wait is not Wait.PEER:
        return frozenset()
    functions = {frame.function for frame in state.frames}
    ways = (_SENDS_ON, _TAKES_ON, _SENDS_BACK, _TAKES_BACK)
    return frozenset(way for way in ways if any(name in function for name in way for function in functions))


def _meet(here: frozenset[tuple[str, ...]], there: frozenset[tuple[str, ...]]) -> bool:
    """Whether a message between a stage and the one behind it has both of them in it."""
    return (_SENDS_ON in here and _TAKES_ON in there) or (_TAKES_BACK in here and _SENDS_BACK in there)


def _closed(look: Look, topology: Topology) -> tuple[Rank, ...]:
    """The only pipeline of more than two all of whose stages wait for messages, on few enough machines."""
    pipelines = topology.groups.get(PIPELINE, ())
    found = [group for group in pipelines if all(rank in look and look[rank].wait is Wait.PEER for rank in group)]
    one = found[0] if len(found) == 1 and len(pipelines) > 2 else ()
    return one if len(topology.machines_of(one)) <= WIDEST_SHARE * len(topology.machines) else ()
