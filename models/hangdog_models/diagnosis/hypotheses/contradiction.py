"""Stacks and counters of two different moments: reports where they contradict, so that no explanation is too sure."""

from collections.abc import Sequence

from hangdog_models.collectives import PROFILER, RankCounters
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.scene import Contradiction, Scene
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.rank_words import are, ranks_of
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.rules.ruleset import Wait
from hangdog_models.verdict import Activity, Kind, VerdictReason

CONTRADICTED = likelihood("contradicted")
OLD_DUMPS_RANKS = likelihood("old_dumps_ranks")
OLD_DUMPS_SHARE = likelihood("old_dumps_share")


def find(
    records: Sequence[RankCounters], holds: Sequence[GroupWait], look: Look, motion: Motion
) -> list[Contradiction]:
    """Where the stacks contradict the counters.

    Only ranks that did not move count; the others went on in between. `holds` are the waits read off the counters.

    - A rank that waits inside a collective of its group cannot be late for it.
    - If the dumps show nothing under way, no rank can be waiting in a collective.
    """
    exact = {rank for hold in holds for rank in hold.inside}
    inside = {
        record.rank
        for record in records
        if record.rank in motion.still
        and record.rank not in exact
        and (state := look.get(record.rank)) is not None
        and state.activity is Activity.COLLECTIVE
        and state.wait is Wait.GROUP
    }
    if not holds:
        # a ring of NCCL's profiler is read at that very moment, and knows only NCCL's collectives
        dumps = [record for record in records if record.source != PROFILER]
        reported = [record for record in dumps if record.rank in look and look[record.rank].frames]
        old = tuple(sorted(inside.intersection(record.rank for record in dumps)))
        if len(old) < max(OLD_DUMPS_RANKS, OLD_DUMPS_SHARE * len(reported)):
            return []
        words = f"{ranks_of(old)} stand still in collectives of which their counters know nothing: the dumps are older than the stacks"
        return [Contradiction(old, VerdictReason("dumps-older-than-stacks", words))]
    found = []
    for hold in holds:
        denied = tuple(rank for rank in hold.awaited if rank in inside and look[rank].dim == hold.dim)
        if denied:
            words = (
                f"counters call {ranks_of(denied)} late for {hold.what}, but by the stack {ranks_of(denied)} {are(denied)} "
                f"in {look[denied[0]].operation} of the same {hold.dim} group: one of the two is of another moment"
            )
            found.append(Contradiction(denied, VerdictReason("stacks-deny-counters", words)))
    return found


def explain(scene: Scene) -> list[Hypothesis]:
    """One hypothesis that nothing can be concluded. More contradictions do not raise its odds."""
    if not scene.contradictions:
        return []
    factors = odds("stacks and counters contradict each other", CONTRADICTED)
    return [Hypothesis(Kind.UNDETERMINED, factors, reasons=tuple(one.reason for one in scene.contradictions[:3]))]
