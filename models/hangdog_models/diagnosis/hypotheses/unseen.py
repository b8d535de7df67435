"""The explanation that always remains: the culprit left no evidence; and which ranks that can only be."""

from collections.abc import Mapping
from dataclasses import replace

from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.multiple_roots import NAMED_ALONE
from hangdog_models.diagnosis.hypotheses.reason_text import reasons
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.hypotheses.stuck_groups import NOT_IN_STUCK_GROUP, proven
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.verdict import Activity, Kind

CULPRIT_UNSEEN = likelihood("culprit_unseen")
CULPRIT_UNCAPTURED = likelihood("culprit_uncaptured")
CULPRIT_AMONG_MISSING = likelihood("culprit_among_missing")


def explain(scene: Scene) -> list[Hypothesis]:
    """Always: the culprit may not be in the evidence. Where it can only be one of a few ranks, these are named.

    Each of their machines has an equal part of the odds. Nobody is named for the rest, nor for the part of a machine that
    nobody was seen to wait for: what was not captured may have joined the others, and something between them be broken.
    """
    inside = proven(scene)
    whole = unseen(scene.captured, scene.topology.world_size, inside=inside)
    units = {} if inside else _left(scene)
    if not units or len(units) > NAMED_ALONE:
        return [whole]
    part = CULPRIT_AMONG_MISSING / len(units)
    found = [
        replace(whole, ranks=ranks, units=(unit,), reasons=reasons(ranks, scene.look, scene.waits), shares=(part,))
        for unit, ranks in sorted(units.items(), key=lambda item: item[1])
        if any(map(scene.waits.holds_for, ranks))
    ]
    return [*found, replace(whole, shares=(1 - part * len(found),))]


def unseen(captured: int, expected: int, *, inside: bool = False) -> Hypothesis:
    """That the culprit is not in the evidence. `inside`: a group that was seen whole is stuck."""
    share = max(0.0, 1 - captured / expected) if expected else 1.0  # RAS may count more than belong to the job
    because = (f"{expected - captured} of {expected} ranks were not captured",) if captured < expected else ()
    factors = odds("the culprit left no evidence", CULPRIT_UNSEEN + CULPRIT_UNCAPTURED * share)
    if inside:
        factors = (*factors, Factor("a group that was seen whole has joined and does not complete", NOT_IN_STUCK_GROUP))
    return Hypothesis(Kind.UNDETERMINED, factors, reasons=because)


def _left(scene: Scene) -> Mapping[str, tuple[Rank, ...]]:
    """The ranks that left no evidence, by machine, where all others are seen to wait for them; else nothing.

    Then nobody else is left who could be the culprit. Whoever waits and does not tell for whom may wait for anybody.
    """
    look, waits, topology = scene.look, scene.waits, scene.topology
    missing = waits.roots
    if any(look[rank].activity is not Activity.MISSING for rank in missing):
        return {}
    if len(missing) != topology.world_size - scene.captured or not waits.waiting:
        return {}
    if not waits.reached_from(missing).issuperset(waits.waiting):
        return {}
    units: dict[str, list[Rank]] = {}
    for rank in missing:
        units.setdefault(topology.machine(rank) or f"rank {rank}", []).append(rank)
    return {unit: tuple(ranks) for unit, ranks in units.items()}
