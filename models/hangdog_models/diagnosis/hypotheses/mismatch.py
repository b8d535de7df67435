"""Mismatches in the code: ranks in different operations wait for each other, or a few are in one no other enters."""

from collections.abc import Sequence
from dataclasses import replace

from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis
from hangdog_models.diagnosis.hypotheses.masked_waits import BARRIERS
from hangdog_models.diagnosis.hypotheses.reason_text import stands
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.hypotheses.structure import COLLECT_COUNTERS
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.observe.silence import silent_ranks
from hangdog_models.diagnosis.rank_words import are, ranks_of
from hangdog_models.diagnosis.waits.behind_unseen import behind_unseen
from hangdog_models.diagnosis.waits.waits import OF_ALL, GroupWait, Waits
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity, Kind, VerdictReason

MISMATCH_SEEN_ONCE = likelihood("mismatch_seen_once")
MISMATCH_CONFIRMED = likelihood("mismatch_confirmed")
FEW_AGAINST_MANY = likelihood("few_against_many")
MISMATCH_UNDIRECTED = likelihood("mismatch_undirected")
MISMATCH_UNEXPLAINED = likelihood("mismatch_unexplained")
MISMATCH_BESIDE_STUCK_GROUPS = likelihood("mismatch_beside_stuck_groups")
LOST_BEFORE_ALL = likelihood("lost_before_all")
ALONE_IN_COLLECTIVE = likelihood("alone_in_collective")
ALONE_AMONG_MOST = likelihood("alone_among_most")
ALONE_AMONG_LEAST = likelihood("alone_among_least")
ALONE_SHARE = likelihood("alone_share")
ALONE_IN_WIDE_GROUP = likelihood("alone_in_wide_group")
#: A lost message separates ranks on the machines at the two ends of a link. On other machines all ranks have it, or
#: none.
LINK_ENDS = 2
_NOBODY_OUTSIDE = VerdictReason(
    "nobody-outside", "no rank stands outside of a collective: nothing that a machine does explains this"
)
#: The same where one side waits for its device: that may be busy with the very operation of the others.
_AT_ITS_DEVICE = (
    VerdictReason("device-may-hang", "a device or a transfer that hangs holds ranks up so as well"),
    COLLECT_COUNTERS,
)


def explain(scene: Scene) -> list[Hypothesis]:
    """Two sides that wait for each other, and a few ranks alone in a collective.

    The sides are left out where one lost message explains them.
    """
    look, waits, topology = scene.look, scene.waits, scene.topology
    sides = [] if scene.outliers.lost else _sides(look, waits, scene.motion, topology)
    return [*sides, *_odd(look, waits, topology)]


def _sides(look: Look, waits: Waits, motion: Motion, topology: Topology) -> list[Hypothesis]:
    """Ranks in different operations that wait for each other; empty if a captured rank is outside of all waits.

    The ranks named are those inside an operation whose other members are elsewhere, the smallest side first. Two equal
    sides give no direction. One round of stacks may have caught a healthy step, so counters or a second round decide.
    """
    if waits.outside(look) or not silent_ranks(look, topology).isdisjoint(waits.roots):
        return []
    joined = {rank for hold in waits.holds if hold.joined and not hold.inferred for rank in hold.inside}
    explained = joined | behind_unseen(look, waits, topology)
    sides: dict[tuple[object, ...], list[Rank]] = {}
    seen = any(look[rank].frames for rank in waits.waiting)
    for rank in waits.waiting:
        state = look[rank]
        if seen and not state.frames:
            continue  # its counters name an operation, which may be the one that the others' frames show as a place
        if state.wait in (Wait.GROUP, Wait.PEER) and rank not in explained:
            sides.setdefault(_side(state), []).append(rank)
    unnamed = [rank for rank in waits.waiting if look[rank].wait not in (Wait.GROUP, Wait.PEER)]
    # then the frames of the other side name no operation: direction and cause stay open
    undirected = len(sides) == 1
    if not sides or (undirected and (joined or not unnamed)):
        return []
    order = sorted([*sides.values(), *([unnamed] if undirected else [])], key=lambda ranks: (len(ranks), ranks[0]))
    last = _end_of_waits(order, look, waits, topology) if len(sides) + bool(unnamed) > 2 else []
    if last:
        rest = sorted({*waits.waiting}.difference(last, explained))
        order = sorted([last, rest], key=lambda ranks: (len(ranks), ranks[0]))
    odd, other = order[0], order[-1]
    alone = len(order[1]) > len(odd) and len(odd) * 2 < len(waits.waiting)
    crossed = _crossed(set(odd), waits)
    still = motion.known and set(odd) <= motion.still
    factors = [Factor("ranks in different operations wait for each other", MISMATCH_SEEN_ONCE)]
    if crossed or still:
        so = "counters show two groups crossed" if crossed else f"so in {motion.over}"
        factors.append(Factor(so, MISMATCH_CONFIRMED))
    elif alone and motion.moving.isdisjoint(odd) and motion.travelling.isdisjoint(odd):  # a moving rank may join
        factors.append(Factor("few against many", FEW_AGAINST_MANY * (1 - 2 * len(odd) / len(waits.waiting))))
    named = set(odd) if alone else {*odd, *other}
    behind = waits.reached_from(named | waits.loose) | named | waits.loose
    parted = _parted_machines(odd, waits, topology) > LINK_ENDS
    # A barrier is called for all, after what all have completed: the absent ranks lack no message that these have had.
    # Nor do those of a tensor group, which communicate in each layer on the way there.
    barred = not {look[odd[0]].operation, look[other[0]].operation}.isdisjoint(BARRIERS)
    split = barred and not parted and _split(odd, waits, topology)
    barred = barred and (parted or split)
    if not barred and not behind.issuperset(waits.waiting):
        factors.append(Factor("some of those that wait do not wait for them", MISMATCH_UNEXPLAINED))
    if joined:
        factors.append(Factor("other groups have joined and do not complete", MISMATCH_BESIDE_STUCK_GROUPS))
    if undirected and (crossed or still):
        factors.append(Factor("the frames do not tell whom one side waits for", MISMATCH_UNDIRECTED))
    sides_of = (
        f"{ranks_of(odd)} {are(odd)} {stands(look[odd[0]])}, {ranks_of(other)} {are(other)} {stands(look[other[0]])}"
    )
    if last:
        sides_of = f"{ranks_of(last)} {are(last)} {stands(look[last[0]])}, and {ranks_of(rest)} {are(rest)} elsewhere"
    at_device = any(look[side[0]].activity is Activity.DEVICE_SYNC for side in (odd, other))
    parted_so = VerdictReason("in-different-operations", f"{sides_of}: each side waits for the other")
    because = (parted_so, *(_AT_ITS_DEVICE if at_device and not crossed else (_NOBODY_OUTSIDE,)))
    if not alone:
        code = Hypothesis(Kind.SOFTWARE, tuple(factors), reasons=because)
        stuck = [hold for side in (odd, other) if (hold := _whole_group(side, look, topology)) is not None]
        if len(stuck) == 1:
            return [code, _stuck(stuck[0], sides_of, factors)]
        if Wait.PEER not in (look[odd[0]].wait, look[other[0]].wait):
            return [code]
        # A sender need not wait: what one half waits for may have been sent and lost. Frames look equal either way.
        # Only the network knows whose messages they were.
        text = f"{sides_of}: the code differs, or what was sent between them is lost"
        lost = (VerdictReason("message-may-be-lost", text),)
        early = _early(look[odd[0]], look[other[0]])
        return [replace(code, reasons=lost), replace(code, kind=Kind.GROUP, factors=(*factors, *early), reasons=lost)]
    units = tuple(topology.machine(rank) or f"rank {rank}" for rank in odd)
    code = Hypothesis(Kind.SOFTWARE, tuple(factors), tuple(odd), tuple(dict.fromkeys(units)), because)
    ahead = undirected and len(odd) > 1 and look[odd[0]].wait is Wait.GROUP and not crossed
    posted = bool(last) and any(look[rank].wait is Wait.PEER for rank in rest)
    if (ahead and not parted) or split or posted:
        # Several that are ahead may have had what the others lost. Where a network breaks, a collective ends on some of
        # its ranks (a recorded gloo job: three of eight went on to the next one). If one rank skips a call, no other is
        # ahead.
        factors += _early(look[odd[0]])
        lost = (VerdictReason("message-may-be-lost", f"{sides_of}: what was sent may be lost"),)
        return [code, Hypothesis(Kind.GROUP, tuple(factors), reasons=lost)]
    return [code]


def _whole_group(side: Sequence[Rank], look: Look, topology: Topology) -> GroupWait | None:
    """The group of which a side is all members, none more: these may be in an operation of their own that hangs.

    Not if they are in a call of all ranks, which others have not come to.
    """
    if look[side[0]].operation in OF_ALL:
        return None
    members = tuple(sorted(side))
    dims = [dim for dim in topology.dims if dim != WORLD and members in topology.groups.get(dim, ())]
    return GroupWait(dims[0], members, (), stands(look[side[0]])) if dims else None


def _stuck(hold: GroupWait, sides_of: str, factors: Sequence[Factor]) -> Hypothesis:
    """The others wait for the ranks of one group, and these for what does not complete among them."""
    text = (
        f"{sides_of}: {ranks_of(hold.inside)} are all of one {hold.dim} group, which may be stuck in its own operation"
    )
    return Hypothesis(Kind.GROUP, tuple(factors), hold.inside, (), (VerdictReason("whole-group-apart", text),), hold)


def _end_of_waits(sides: Sequence[list[Rank]], look: Look, waits: Waits, topology: Topology) -> list[Rank]:
    """Of several sides the one where the known waits of all others end; empty if none is, or more than one.

    A rank in a call of a narrow group or of two stages waits for ranks that are known. Such a wait is followed to the
    rank that it comes from. There the program parted: that rank's own call tells no peer, or is one of all ranks, which
    is made between steps. Where the job's sizes are not known, frames still tell which calls are narrow.
    """
    known = [one for one in waits.holds if one.awaited and one.dim not in (None, WORLD) and not one.inferred]
    bound = {rank for hold in known for rank in hold.inside}
    untold = {rank for rank in waits.waiting if look[rank].dim not in (None, WORLD, *topology.groups)}
    ends = [side for side in sides if (bound | untold).isdisjoint(side) and bound <= _led_to(side, known)]
    if not bound | untold or len(ends) > 1:
        ends = [side for side in ends if look[side[0]].operation in OF_ALL]
    return ends[0] if len(ends) == 1 else []


def _led_to(side: Sequence[Rank], known: Sequence[GroupWait]) -> set[Rank]:
    """The ranks whose known waits lead to a side, directly or through others."""
    found, edge = set(side), set(side)
    while edge:
        edge = {rank for hold in known if not edge.isdisjoint(hold.awaited) for rank in hold.inside} - found
        found |= edge
    return found


def _early(*states: RankState) -> list[Factor]:
    """The factor against a lost message if one side is already in a call of all ranks."""
    if all(state.operation not in OF_ALL for state in states):
        return []
    return [Factor("some have come to a call of all ranks, as a loop that ends early does", LOST_BEFORE_ALL)]


def _split(odd: Sequence[Rank], waits: Waits, topology: Topology) -> bool:
    """Whether some tensor group has both odd ranks and ranks that wait elsewhere."""
    others = set(waits.waiting).difference(odd)
    return any(not others.isdisjoint(topology.group("tp", rank) or ()) for rank in odd)


def _side(state: RankState) -> tuple[object, ...]:
    """What ranks that wait together have in common: their call site.

    Sends and receives of one pipeline are one side. So is a call of all ranks, wherever it is in the program.
    """
    if state.wait is Wait.PEER:
        return (Wait.PEER, state.dim)
    return (WORLD, state.operation) if state.operation in OF_ALL else state.place


def _parted_machines(odd: Sequence[Rank], waits: Waits, topology: Topology) -> int:
    """The number of machines with some ranks among the odd ones and others that wait elsewhere."""
    others = set(waits.waiting).difference(odd)
    return sum(not others.isdisjoint(topology.machines[name]) for name in topology.machines_of(odd))


def _odd(look: Look, waits: Waits, topology: Topology) -> list[Hypothesis]:
    """A few ranks alone in a collective whose other members all wait elsewhere: they run code that the others do not.

    It is weak beside a rank that is outside of all waits, for a pipeline's last stage may be ahead. But it competes.
    """
    places: dict[tuple[object, ...], list[Rank]] = {}
    for rank in waits.waiting:
        if look[rank].activity is Activity.COLLECTIVE and look[rank].wait is Wait.GROUP and look[rank].frames:
            places.setdefault(_side(look[rank]), []).append(rank)
    roots = set(waits.roots)
    for ranks in sorted(places.values(), key=lambda ranks: (len(ranks), ranks[0])):
        few = len(ranks) <= max(1, ALONE_SHARE * len(look)) and len(waits.waiting) >= ALONE_AMONG_LEAST
        dim = look[ranks[0]].dim
        group = topology.group(dim, ranks[0]) if dim else None
        wide = look[ranks[0]].operation in OF_ALL or len(group or ()) >= ALONE_IN_WIDE_GROUP
        if few and wide and roots and not roots & set(group or ()):
            text = f"{ranks_of(ranks)} {are(ranks)} alone {stands(look[ranks[0]])}, where no other member has come"
            units = tuple(dict.fromkeys(topology.machine(rank) or f"rank {rank}" for rank in ranks))
            return [
                Hypothesis(
                    Kind.SOFTWARE,
                    (
                        Factor(text, ALONE_IN_COLLECTIVE),
                        Factor(f"among {len(waits.waiting)} that wait", min(ALONE_AMONG_MOST, len(waits.waiting))),
                    ),
                    tuple(ranks),
                    units,
                    (VerdictReason("alone-in-collective", text),),
                )
            ]
    return []


def _crossed(odd: set[Rank], waits: Waits) -> bool:
    """Whether counters show that the odd ranks wait in one process group for ranks that wait for them in another.

    A single group proves less: counters read at different moments of a healthy job differ, too.
    """
    counted = [hold for hold in waits.holds if hold.counted and hold.awaited]
    ahead = [hold for hold in counted if odd <= set(hold.inside)]
    behind = [hold for hold in counted if odd <= set(hold.awaited)]
    return any(set(a.awaited) & set(b.inside) for a in ahead for b in behind)
