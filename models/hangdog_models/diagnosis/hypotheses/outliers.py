"""Ranks elsewhere than their peers, the smallest process group that holds them all, and messages stuck between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.hypotheses.masked_waits import BARRIERS
from hangdog_models.diagnosis.observe.activity import RankState, sites
from hangdog_models.diagnosis.observe.motion import Look, is_idle
from hangdog_models.diagnosis.observe.silence import merely_failed, silent_ranks
from hangdog_models.diagnosis.waits.behind_unseen import behind_unseen
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity

CROWD_SHARE = likelihood("crowd_share")
WIDEST_SHARE = likelihood("widest_share")
#: What a rank sends or receives, and in which direction, by names in its functions: Megatron-Core's `recv_forward`, or
#: `_exec_recv_activations` of DeepSpeed's engine, which is further out than its `recv`.
_SENDS_ON, _TAKES_ON = ("send_forward", "send_activations"), ("recv_forward", "recv_activations")
_SENDS_BACK, _TAKES_BACK = ("send_backward", "send_grads"), ("recv_backward", "recv_grads")
MACHINE, SWITCH = "machine", "switch"
PIPELINE, TENSOR, MODEL = "pp", "tp", "mp"

Pair = tuple[Rank, Rank]


@dataclass(frozen=True, slots=True)
class Apart:
    """The outliers, and what they have in common.

    - `ranks`: they are elsewhere than most of their stage.
    - `group`: the smallest group, along `dim`, that holds them all.
    - `pairs`: outliers in neighbour stages that are both in one message. If no group holds all, the pairs of one
      machine with one other are the group; else it is empty.
    - `message`: the two ends of the only message that one end is in without its tensor peers.
    - `closed`: the only pipeline of more than two whose stages all wait for messages, so it waits for no rank outside.
    - `led`: they are where code rather than hardware leads ranks.
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
    """The outliers, where all ranks wait and no counter shows more; else `NOBODY`.

    There are none if a rank is outside of all waits or a machine is silent. Nor are there if only some ranks are at a
    barrier: programs call a barrier for all ranks at one call site, so some took another way through the code.

    Ranks are compared within their stage, and the smallest group they share is meant. Both are ByteRobust's (SOSP
    2025).
    """
    barred = any(cluster.sample.operation in BARRIERS for cluster in clusters)
    barred = barred or any(map(is_idle, look.values()))  # who waits to be told what to do is in nothing with the others
    outside = not all(_may_wait(look[rank]) for rank in waits.roots) or silent_ranks(look, topology)
    counted = any(hold.counted for hold in waits.holds)
    if len(clusters) < 2 or barred or outside or counted or len(topology.machines) < 2:
        return NOBODY
    # no capture: explained
    unseen = waits.reached_from(rank for rank in waits.roots if merely_failed(look[rank]))
    unseen |= behind_unseen(look, waits, topology)
    unseen |= _behind_one_member(waits)
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
    """Whether a root may still wait: for its device, for room in its launch queue, or unseen, as its capture failed."""
    return state.waits or state.activity is Activity.LAUNCH or merely_failed(state)


def _behind_one_member(waits: Waits) -> frozenset[Rank]:
    """Roots that members of a group of theirs are seen to wait for in its collective, and all that wait behind them.

    Such a group has not joined, so it is not what hangs. A message is another matter: its other end may have sent it.
    """
    known = (None, WORLD, PIPELINE)
    roots = [
        rank for rank in waits.roots if any(one.dim not in known and not one.inferred for one in waits.holds_for(rank))
    ]
    return waits.reached_from(roots).union(roots)


def _odd(clusters: Sequence[Cluster], topology: Topology) -> tuple[Rank, ...]:
    """The ranks at a call site that few of their stage are at."""
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
    """The smallest process group or machine that holds all of `ranks`.

    A switch counts only if all ranks below it are among them.
    """
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

    A tensor group outside of its own operations waits for its devices, and these wait for messages. The stage before it
    may be what is held up, before it needs its devices. In 7 simulated hardware faults the outlying tensor group was
    sound: all 7 were in its pipelines.
    """
    group = topology.group(MODEL, rank)
    narrow = group is not None and len(topology.machines_of(group)) <= WIDEST_SHARE * len(topology.machines)
    return (MODEL, group) if group is not None and narrow else None


def _led(odd: frozenset[Rank], pairs: Sequence[Pair], look: Look, topology: Topology) -> bool:
    """Whether code rather than hardware led them there: they wait for nothing, or their pipeline is about to end the
    step.

    - Without stages, a rank that is held up waits for its device or its group. If all outliers launch or compute, they
      are a replica on another way: of 19 simulated ones 4 held a fault.
    - With stages, what holds up a pipeline holds up its first stage, too. If that stage is not an outlier, the step
      ends: gradients are summed in several groups, whose order the code may cross. Of 34 simulated ones with messages
      stuck between them 6 held a fault; of 38 with their first stage 23.
    """
    pipelines = topology.groups.get(PIPELINE, ())
    if pairs:
        return not any(group[0] in odd for group in pipelines)
    return not pipelines and not any(look[rank].waits for rank in odd)


def _met(look: Look, topology: Topology) -> tuple[Pair, ...]:
    """Pairs of neighbour stages: one is in a send, and the other in the receive that belongs to it."""
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
    """The only pair in which one end is without its tensor peers, with whom it does all else.

    Without tensor groups both ends have to be outliers.
    """
    cluster_of = {rank: number for number, cluster in enumerate(clusters) for rank in cluster.ranks}

    def alone(rank: Rank) -> bool:
        peers = [peer for peer in topology.group(TENSOR, rank) or () if peer != rank]
        seen = all(peer in cluster_of for peer in peers)  # it may wait for one that left no stack
        return bool(peers) and seen and all(cluster_of[peer] != cluster_of.get(rank) for peer in peers)

    tensor = TENSOR in topology.groups
    found = [pair for pair in met if (any(map(alone, pair)) if tensor else odd.issuperset(pair))]
    return found[0] if len(found) == 1 else ()


def _narrow(pairs: Sequence[Pair], topology: Topology) -> bool:
    """Whether all pairs have one machine at this end, and one at the other."""
    return bool(pairs) and all(len(topology.machines_of(ends)) == 1 for ends in zip(*pairs, strict=True))


def _ways(state: RankState) -> frozenset[tuple[str, ...]]:
    """The messages that a rank sends or receives: several, if one call exchanges two."""
    if state.wait is not Wait.PEER:
        return frozenset()
    functions = {frame.function for frame in state.frames}
    ways = (_SENDS_ON, _TAKES_ON, _SENDS_BACK, _TAKES_BACK)
    return frozenset(way for way in ways if any(name in function for name in way for function in functions))


def _meet(here: frozenset[tuple[str, ...]], there: frozenset[tuple[str, ...]]) -> bool:
    """Whether a stage and the next one are in the two ends of one message."""
    return (_SENDS_ON in here and _TAKES_ON in there) or (_TAKES_BACK in here and _SENDS_BACK in there)


def _closed(look: Look, topology: Topology) -> tuple[Rank, ...]:
    """The only pipeline of more than two whose stages all wait for messages, if it is on few enough machines.

    One with a stage that was not seen may be another such pipeline, and wait for that stage.
    """
    pipelines = topology.groups.get(PIPELINE, ())
    seen = {group: [rank for rank in group if rank in look and look[rank].frames] for group in pipelines}
    found = [group for group, some in seen.items() if some and all(look[rank].wait is Wait.PEER for rank in some)]
    one = found[0] if len(found) == 1 and len(pipelines) > 2 and len(seen[found[0]]) == len(found[0]) else ()
    return one if len(topology.machines_of(one)) <= WIDEST_SHARE * len(topology.machines) else ()
