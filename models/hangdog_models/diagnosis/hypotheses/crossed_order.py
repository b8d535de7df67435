"""Crossed order: ranks that launched the same operations of two process groups in opposite orders."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from hangdog_models.collectives import COALESCED, RankCounters
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.rank_words import ranks_of, wait
from hangdog_models.diagnosis.waits import left_out
from hangdog_models.diagnosis.waits.left_out import LaunchOrder
from hangdog_models.diagnosis.waits.positions import by_group
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.verdict import Kind, VerdictReason

CROSSED_ORDER = likelihood("crossed_order")
#: Groups of one rank that are compared with each other. Of the about twenty it has, few are under way at once.
_MOST = 16
FOR_EVER = VerdictReason("waits-for-ever", "each side waits for the other for ever")

#: An operation under way: its group and number.
Operation = tuple[str, int]


def explain(scene: Scene) -> list[Hypothesis]:
    """Software, where all members entered both groups and neither completes: the program sets the order.

    A device runs one operation after another, so each side waits for what the other side launched second.
    """
    crossed = _missed(scene) or _ring(scene)
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
            because = (VerdictReason("crossed-order", words), FOR_EVER)
            return [Hypothesis(Kind.SOFTWARE, odds(words, CROSSED_ORDER), odd, units, because)]
    return []


def _missed(scene: Scene) -> list[Hypothesis]:
    """Ranks that launched an operation never or second, and what the others in it launched after it."""
    found = left_out.find(scene.waits.holds, by_group(scene.records))
    # the rank that most others miss in one operation is the odd one
    for one in sorted(found, key=lambda one: (-len(one.inside) / len(one.ranks), one.ranks))[:1]:
        who, others, other = (
            ranks_of(one.ranks),
            ranks_of(one.inside),
            f"operation {one.then} of process group {one.other}",
        )
        words = {
            LaunchOrder.NEVER: f"{who} launched {other} and not {one.hold.what}, which {others} launched first",
            LaunchOrder.SECOND: f"{who} launched {other} before {one.hold.what}, which {others} launched first",
            LaunchOrder.MUTUAL: f"{who} never launched {one.hold.what}, in which {others} {wait(one.inside)}, "
            f"and {wait(one.ranks)} in {other}, which {others} never launched",
        }[one.way]
        even = one.way is not LaunchOrder.NEVER and len(one.ranks) == len(one.inside)
        odd = tuple(sorted((*one.ranks, *one.inside))) if even else one.ranks
        units = tuple(dict.fromkeys(scene.topology.machine(rank) or f"rank {rank}" for rank in odd))
        second = one.way is LaunchOrder.SECOND
        because = (VerdictReason("crossed-order" if second else "operation-left-out", words), FOR_EVER)
        return [Hypothesis(Kind.SOFTWARE, odds(words, CROSSED_ORDER), odd, units, because)]
    return []


def _ring(scene: Scene) -> list[Hypothesis]:
    """Ranks inside a collective whose missing members wait for them: no order of arrival ends that.

    Neither side has launched what the other waits in. A rank whose device is merely behind has. In a longer ring,
    stacks have to show that these ranks wait: a host that is held up elsewhere may have launched this collective
    before.
    """
    waits, records = scene.waits, {record.rank: record for record in scene.records}
    counted = [hold for hold in waits.holds if hold.counted and hold.group and hold.awaited]
    # the rank that misses most others is the odd one, however many rings there are
    counted.sort(key=lambda hold: (-len(hold.awaited) / len(hold.inside), hold.inside))
    for hold in counted[:_MOST]:
        back = list({id(other): other for rank in hold.inside for other in waits.holds_for(rank)}.values())
        if not _left_out(hold, hold.awaited, records) or not all(
            _left_out(other, hold.inside, records) for other in back if other.group
        ):
            continue
        awaited = set(hold.awaited)
        direct = awaited <= {rank for other in back for rank in other.inside}
        waiting = all(rank in waits.waiting and scene.look[rank].frames for rank in hold.inside)
        # ranks whose peers are unknown may wait for these
        if direct or (waiting and awaited - waits.loose and awaited - waits.loose <= waits.reached_from(hold.inside)):
            where = f" in {back[0].what}" if direct and len(back) == 1 else ""
            words = (
                f"{ranks_of(hold.inside)} {wait(hold.inside)} in {hold.what} for {ranks_of(hold.awaited)}, "
                f"which {wait(hold.awaited)} for {'it' if len(hold.inside) == 1 else 'them'}{where or ', some through others'}"
            )
            units = tuple(dict.fromkeys(scene.topology.machine(rank) or f"rank {rank}" for rank in hold.inside))
            because = (VerdictReason("waits-in-a-ring", words), FOR_EVER)
            return [Hypothesis(Kind.SOFTWARE, odds(words, CROSSED_ORDER), hold.inside, units, because)]
    return []


def _left_out(hold: GroupWait, ranks: Sequence[Rank], records: Mapping[Rank, RankCounters]) -> bool:
    """Whether these ranks launched fewer operations of a group than the ranks inside one of its operations."""
    inside = [records[rank].completed.get(hold.group, -1) for rank in hold.inside if rank in records]
    known = [records[rank].enqueued.get(hold.group, -1) for rank in ranks if rank in records]
    return bool(inside) and bool(known) and max(known) <= min(inside)


def _ways(
    records: Sequence[RankCounters], groups: set[str]
) -> dict[tuple[Operation, Operation], tuple[list[Rank], list[Rank]]]:
    """For each two operations under way on a rank: the ranks that launched the one first, and those the other."""
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
