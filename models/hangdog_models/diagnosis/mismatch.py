"""Explanations without any root: ranks in different operations wait for each other, or a group is stuck inside one."""

from hangdog_models.diagnosis.hypothesis import Hypothesis
from hangdog_models.diagnosis.motion import Look, Motion
from hangdog_models.diagnosis.waits import Waits
from hangdog_models.diagnosis.wording import are, ranks_of, where
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind

#: A group that has joined and does not complete, while some rank stands outside of all collectives, is rarely the fault.
EXPLAINED = 0.1


def blame_code(look: Look, waits: Waits, motion: Motion, topology: Topology) -> list[Hypothesis]:
    """When all wait and nobody is waited for that does not wait: ranks in different operations wait for each other.

    The rank named is the one inside an operation whose other members are elsewhere, fewest first; two equal sides say
    nothing about the direction. One look of stacks may have caught a healthy step, so counters or a second look decide.
    """
    joined = {rank for hold in waits.holds if hold.joined and not hold.inferred for rank in hold.inside}
    sides: dict[tuple[object, ...], list[Rank]] = {}
    for rank in waits.waiting:
        standing = look[rank]
        if standing.wait in (Wait.GROUP, Wait.PEER) and rank not in joined:
            # Sending here and receiving there is how a pipeline works: it is one side.
            side = (Wait.PEER, standing.dim) if standing.wait is Wait.PEER else standing.place
            sides.setdefault(side, []).append(rank)
    unnamed = [rank for rank in waits.waiting if look[rank].wait not in (Wait.GROUP, Wait.PEER)]
    undirected = (
        len(sides) == 1
    )  # then the other side is in something the frames do not name: direction and cause stay open
    if waits.outside(look) or not sides or (undirected and (joined or not unnamed)):
        return []
    order = sorted([*sides.values(), *([unnamed] if undirected else [])], key=lambda ranks: (len(ranks), ranks[0]))
    odd, other = order[0], order[-1]
    alone = len(order[1]) > len(odd) and len(odd) * 2 < len(waits.waiting)
    confirmed = _crossed(set(odd), waits) or (motion.known and set(odd) <= motion.still)
    odds = 12.0 if confirmed else 2.0 * (1 - 2 * len(odd) / len(waits.waiting)) if alone else 0.1
    if joined:
        odds *= EXPLAINED
    if undirected:
        odds = min(odds, 1.5 if confirmed else 0.1)
    sides_of = f"{ranks_of(odd)} {are(odd)} in {where(look[odd[0]])}, {ranks_of(other)} {are(other)} in {where(look[other[0]])}"
    because = (
        f"{sides_of}: each side waits for the other",
        "no rank stands outside of a collective: nothing that a machine does explains this",
    )
    if not alone:
        return [Hypothesis(Kind.SOFTWARE, odds, (), (), because)]
    units = tuple(topology.machine(rank) or f"rank {rank}" for rank in odd)
    return [Hypothesis(Kind.SOFTWARE, odds, tuple(odd), tuple(dict.fromkeys(units)), because)]


def _crossed(odd: set[Rank], waits: Waits) -> bool:
    """Counters show it: the odd ranks wait in one process group for ranks that wait for them in another.

    A single group says less: counters read at different moments of a healthy job differ, too.
    """
    counted = [hold for hold in waits.holds if hold.counted and hold.awaited]
    ahead = [hold for hold in counted if odd <= set(hold.inside)]
    behind = [hold for hold in counted if odd <= set(hold.awaited)]
    return any(set(a.awaited) & set(b.inside) for a in ahead for b in behind)


def blame_groups(look: Look, waits: Waits, motion: Motion) -> list[Hypothesis]:
    """Groups all of whose members joined an operation that does not complete: a link, a switch or a device inside."""
    outside = waits.outside(look)
    stuck = [h for h in waits.holds if h.joined and len(h.inside) > 1 and not (h.inferred and waits.roots)]
    loose = waits.loose
    found = []
    for hold in stuck:
        confirmed = all(rank in motion.still for rank in hold.inside)
        because = (
            f"all {len(hold.inside)} ranks of {hold.dim} group {format_ranks(hold.inside)} are in {hold.what}"
            + (" and none has moved" if confirmed else ""),
        )
        explained = len(waits.reached_from({*hold.inside, *loose}) | loose | set(hold.inside)) / len(waits.waiting)
        odds = (6.0 if confirmed else 1.0) * explained / len(stuck) * (EXPLAINED if outside else 1)
        found.append(Hypothesis(Kind.GROUP, odds, hold.inside, (), because, hold))
        if hold.inferred:  # which group each rank means is not known: they may mean different ones, in different order
            found.append(Hypothesis(Kind.SOFTWARE, odds, because=because))
    return found
