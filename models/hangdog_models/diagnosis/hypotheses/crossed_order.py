"""Explanations by order: ranks that launched the same operations of two process groups one way round and the other."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from hangdog_models.collectives import COALESCED, RankCounters
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.rank_words import are, ranks_of, wait
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.verdict import Kind

CROSSED_ORDER = likelihood("crossed_order")
#: Groups of one rank that are compared with each other; of about twenty it has, few are under way at once.
_MOST = 16

#: An operation that is under way: its group and number.
Operation = tuple[str, int]


def explain(scene: Scene) -> list[Hypothesis]:
    """Software, where both groups have been entered by all and neither completes: the order is the program's.

    A device runs one after the other, so each side waits for what the other side has put second.
    """
    crossed = _each_other(scene)
    if crossed:
        return crossed
    joined = {hold.group for hold in scene.waits.holds if hold.joined and hold.group}
    if len(joined) < 2:
        return []
    for (one, other), (ranks, others) in sorted(_ways(scene.records, joined).items()):
        if ranks and others:
            words = (
                f"{ranks_of(ranks)} launched operation {one[1]} of process group {one[0]} before {other[1]} of {other[0]}, "
                f"{ranks_of(others)} the other way round, and all wait in both"
            )
            odd = tuple(sorted(min(ranks, others, key=len) if len(ranks) != len(others) else (*ranks, *others)))
            units = tuple(dict.fromkeys(scene.topology.machine(rank) or f"rank {rank}" for rank in odd))
            because = (words, "each side waits for the other for ever")
            return [Hypothesis(Kind.SOFTWARE, odds(words, CROSSED_ORDER), odd, units, because)]
    return []


def _each_other(scene: Scene) -> list[Hypothesis]:
    """Two sides of which each waits in one group for the other one, which waits for it in another group.

    Neither has launched what the other waits in: whose device is merely behind has.
    """
    records = {record.rank: record for record in scene.records}
    counted = [hold for hold in scene.waits.holds if hold.counted and hold.group and hold.awaited]
    for one, other in combinations(counted[:_MOST], 2):
        each = set(one.inside) <= set(other.awaited) and set(other.inside) <= set(one.awaited)
        if each and _left_out(one, other.inside, records) and _left_out(other, one.inside, records):
            words = (
                f"{ranks_of(one.inside)} {wait(one.inside)} in {one.what} for {ranks_of(other.inside)}, "
                f"which {are(other.inside)} in {other.what} and {wait(other.inside)} for them"
            )
            few = min(one.inside, other.inside, key=len)
            units = tuple(dict.fromkeys(scene.topology.machine(rank) or f"rank {rank}" for rank in few))
            because = (words, "each side waits for the other for ever")
            return [Hypothesis(Kind.SOFTWARE, odds(words, CROSSED_ORDER), few, units, because)]
    return []


def _left_out(hold: GroupWait, ranks: Sequence[Rank], records: Mapping[Rank, RankCounters]) -> bool:
    """Whether these ranks launched fewer operations of a group than those that are inside of one of it."""
    inside = [records[rank].completed.get(hold.group, -1) for rank in hold.inside if rank in records]
    known = [records[rank].enqueued.get(hold.group, -1) for rank in ranks if rank in records]
    return bool(inside) and bool(known) and max(known) <= min(inside)


def _ways(
    records: Sequence[RankCounters], groups: set[str]
) -> dict[tuple[Operation, Operation], tuple[list[Rank], list[Rank]]]:
    """For each two operations under way on a rank who launched the first one first, and who the second one."""
    found: dict[tuple[Operation, Operation], tuple[list[Rank], list[Rank]]] = {}
    for record in records:
        first: dict[str, int] = {}
        for entry in record.entries:
            if entry.group in groups and not (entry.done or entry.p2p or entry.operation.endswith(COALESCED)):
                first.setdefault(entry.group, entry.sequence)
        for one, other in combinations(list(first.items())[:_MOST], 2):
            way = 0 if one < other else 1
            found.setdefault((min(one, other), max(one, other)), ([], []))[way].append(record.rank)
    return found
