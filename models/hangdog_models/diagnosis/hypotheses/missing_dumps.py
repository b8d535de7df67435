"""Awaited ranks without a flight recorder dump: they, and the ranks that wait for them, may be in a stuck collective."""

from collections.abc import Container, Mapping, Sequence

from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.hypotheses.stuck_groups import (
    GROUP_BEGUN,
    GROUP_BESIDE_ROOT,
    GROUP_JOINED,
    GROUP_STILL,
    LOST_COUNTERS_BY_CODE,
)
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.observe.silence import merely_failed, silent_ranks
from hangdog_models.diagnosis.rank_words import ranks_of, wait
from hangdog_models.diagnosis.waits.lost_dumps import awaited_by_dim, follows
from hangdog_models.diagnosis.waits.waits import GroupWait, Waits
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.stack import Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, VerdictReason

LOST_DUMPS_MOST = likelihood("lost_dumps_most")
LOST_DUMP_INSIDE = likelihood("lost_dump_inside")
LEFT_NOTHING_INSIDE = likelihood("left_nothing_inside")


def explain(scene: Scene) -> list[Hypothesis]:
    """Two hypotheses for each awaited rank without counters; empty if a group is seen whole.

    The ranks that wait for it are in an operation. Either it has not entered that operation, or all have and a link,
    adapter or device is broken. Only the missing dump would show which. In both cases the fault is among these ranks,
    so they are named together. A rank whose stack is elsewhere is left out: its stack is evidence.
    """
    records, look, waits, motion, topology = scene.records, scene.look, scene.waits, scene.motion, scene.topology
    counted = [hold for hold in waits.holds if hold.counted]
    if any(hold.joined for hold in counted) or not any(record.started for record in records):
        return []
    recorded = {record.rank for record in records}
    inside = {rank for hold in counted for rank in hold.inside}
    silent = silent_ranks(look, topology)
    lost = sorted(
        rank
        for rank in {rank for hold in counted for rank in hold.awaited} - recorded - inside - silent
        if rank not in look or merely_failed(look[rank]) or _beside(rank, look, waits)
    )
    if len(lost) > LOST_DUMPS_MOST or not _freed(lost, counted).issuperset(inside):
        return []
    late_in = awaited_by_dim(counted)
    found = []
    for rank in lost:
        holds = _first([hold for hold in waits.holds_for(rank) if hold.counted], late_in)
        ranks = tuple(sorted({rank}.union(*(hold.inside for hold in holds))))
        reached = waits.reached_from([rank]) | {rank} & set(waits.waiting)
        factors = [
            Factor("all others have joined and nothing completes", GROUP_JOINED * GROUP_BEGUN),
            Factor(f"if {ranks_of([rank])}, whose counters are lost, has joined, too", LOST_DUMP_INSIDE),
            Factor("share of the waiting ranks it explains", len(reached) / max(1, len(waits.waiting))),
        ]
        if _left_nothing(rank, look, topology):
            gone = "its stack is missing as well, and all others left theirs: a process that ended leaves none"
            factors.append(Factor(gone, LEFT_NOTHING_INSIDE))
        if len(lost) > 1:
            factors.append(Factor(f"one of {len(lost)} such ranks", 1 / len(lost)))
        if waits.outside(look):
            factors.append(Factor("a rank outside of all collectives explains it better", GROUP_BESIDE_ROOT))
        if motion.still.issuperset(set(ranks) - {rank}):
            factors.append(Factor(f"none has moved in {motion.over}", GROUP_STILL))
        others = tuple(one for one in ranks if one != rank)
        text = (
            f"{ranks_of(others)} {wait(others)} for {ranks_of([rank])}, which left no flight recorder dump: look at it first; "
            "it may be dead or stopped, or its dump was merely not written and something between them is broken"
        )
        ask = f"collect next: the flight recorder dump of {ranks_of([rank])}, or its stack"
        because = (VerdictReason("no-dump", text), VerdictReason("collect-awaited-ranks", ask))
        dim = holds[0].dim if len(holds) == 1 else None
        hold = GroupWait(dim, others, (rank,), holds[0].what, counted=True, assumed=1)
        found.append(Hypothesis(Kind.GROUP, tuple(factors), ranks, (), because, hold))
        code = Factor(f"code that leads {ranks_of([rank])} elsewhere", LOST_COUNTERS_BY_CODE)
        unit = topology.machine(rank) or f"rank {rank}"
        found.append(Hypothesis(Kind.SOFTWARE, (*factors, code), (rank,), (unit,), because))
    return found


def _left_nothing(rank: Rank, look: Look, topology: Topology) -> bool:
    """Whether neither stack nor error of a rank came, while its machine was read and the stacks of all others came.

    Where several stacks are lost the collection loses some, and one of them may well be that of an awaited rank.
    """
    state = look.get(rank)
    if state is not None and (state.missing is None or state.missing.reason is not Reason.NO_EVIDENCE):
        return False
    seen = {one for one, there in look.items() if there.frames}
    mates = topology.machines.get(topology.machine(rank) or "", ())
    return len(seen) == topology.world_size - 1 and rank not in seen and not seen.isdisjoint(mates)


def _freed(lost: Sequence[Rank], counted: Sequence[GroupWait]) -> set[Rank]:
    """The ranks that would go on if the lost ones came: their operations then complete, directly or one after another.

    Ranks that wait for each other in a circle are not among them: code that calls in different orders holds them up.
    """
    open_holds: dict[Rank, int] = {}
    lacking: list[set[Rank]] = []
    awaiting: dict[Rank, list[int]] = {}
    for at, hold in enumerate(counted):
        lacking.append(set(hold.awaited))
        for rank in hold.inside:
            open_holds[rank] = open_holds.get(rank, 0) + 1
        for rank in hold.awaited:
            awaiting.setdefault(rank, []).append(at)
    freed = set(lost)
    edge = [*lost, *(rank for rank in awaiting if rank not in open_holds and rank not in freed)]
    freed.update(edge)
    while edge:
        rank = edge.pop()
        for at in awaiting.get(rank, ()):
            lacking[at].discard(rank)
            if not lacking[at]:
                for one in counted[at].inside:
                    open_holds[one] -= 1
                    if not open_holds[one]:
                        freed.add(one)
                        edge.append(one)
    return freed


def _beside(rank: Rank, look: Look, waits: Waits) -> bool:
    """Whether its stack waits, at the call site of a rank that waits for it."""
    if not look[rank].waits and rank not in waits.crowd:
        return False
    return any(
        look[rank].place == look[one].place for hold in waits.holds_for(rank) for one in hold.inside if one in look
    )


def _first(holds: Sequence[GroupWait], late_in: Mapping[str | None, Container[Rank]]) -> list[GroupWait]:
    """The operations a rank may be in: none that follows another one in which it is awaited."""
    return [hold for hold in holds if not any(follows(hold, other, late_in) for other in holds)] or list(holds)
