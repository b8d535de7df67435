"""Hypotheses on roots: ranks that wait for no other rank while others wait for them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from hangdog_models.diagnosis.hypotheses import masked_waits
from hangdog_models.diagnosis.hypotheses.activity_odds import causes_of, in_an_operator, odds_of
from hangdog_models.diagnosis.hypotheses.blame_factors import (
    ASKED_ALONE,
    DATA_MOVES,
    ROOT_TRAVELLING,
    SHARED,
    UNAWAITED,
    WAITING_MOST,
    WAITING_REMARKABLE,
    moves_data,
    weigh,
    works_for_all,
)
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.masked_waits import at_barrier, let_one_work, sleeps_off_its_way
from hangdog_models.diagnosis.hypotheses.multiple_roots import NAMED_ALONE, SERVED_MACHINES, blame_several
from hangdog_models.diagnosis.hypotheses.reason_text import reasons, where
from hangdog_models.diagnosis.hypotheses.root_causes import by_cause_of
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.hypotheses.single_round import held
from hangdog_models.diagnosis.hypotheses.stuck_groups import NOT_IN_STUCK_GROUP, proven
from hangdog_models.diagnosis.observe.activity import SERVICES, RankState, spins
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.observe.silence import merely_failed
from hangdog_models.diagnosis.stragglers.sample_lengths import replica
from hangdog_models.diagnosis.waits.collective_counters import BY_COUNTERS
from hangdog_models.diagnosis.waits.ras_waits import BY_RAS
from hangdog_models.diagnosis.waits.waits import CROWD_LEAST, Waits
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Kind

RIVAL_SHARE = likelihood("rival_share")
BEHIND_ALIKE = likelihood("behind_alike")
SLOW_IF_STILL = likelihood("slow_if_still")
SLOW_IF_AT_WORK = likelihood("slow_if_at_work")
SERVED_POWER = likelihood("served_power")
SOLE_ROOT = likelihood("sole_root")


def explain(scene: Scene) -> list[Hypothesis]:
    """Every hypothesis on roots.

    If a group is surely stuck, roots outside of it of which nothing is known become less likely.
    """
    found = _roots(scene)
    found = [replace(one, hearsay=True) if _only_silent(one, scene) else one for one in found]
    if not proven(scene):
        return found
    inside = Factor("a group it is not in has joined and does not complete", NOT_IN_STUCK_GROUP)
    return [one.moved(inside) if _unknown(one, scene.look) else one for one in found]


def explain_sole_root(scene: Scene) -> list[Hypothesis]:
    """The hypotheses that this rank is it; empty if several ranks wait for none.

    What it does may be a wait that no frame shows: it runs in C as a read-back from its device does, or it sleeps while the others are at
    a barrier. That says little of why, and does not speak for another rank. A function of the user's that runs has the causes of one that
    computes. In an operator, or asleep, the cause stays open.
    """
    seen = [rank for rank in scene.waits.roots if not merely_failed(scene.look[rank])]
    if len(seen) != 1 or not scene.waits.waiting or proven(scene) or not _may_be_a_hidden_wait(seen[0], scene):
        return []
    unit = scene.topology.machine(seen[0]) or f"rank {seen[0]}"
    why = reasons(seen, scene.look, scene.waits, scene.motion)
    factors = odds("the only rank that was seen to wait for none", SOLE_ROOT)
    state = scene.look[seen[0]]
    if spins(state) and not in_an_operator(state):
        return by_cause_of(Hypothesis(Kind.MACHINE, factors, tuple(seen), (unit,), why), scene)
    return [Hypothesis(Kind.UNDETERMINED, factors, tuple(seen), (unit,), why)]


def _only_silent(hypothesis: Hypothesis, scene: Scene) -> bool:
    """Whether the only evidence against it is that NCCL RAS got no answer, and no rank is seen to wait.

    A program that ended does not answer either, on a sound machine. Only if none of a machine's several ranks answers
    is it the machine.
    """
    if not hypothesis.ranks or any(scene.look[rank].rule != BY_RAS for rank in hypothesis.ranks):
        return False
    if any(scene.look[rank].beside for rank in hypothesis.ranks):
        return not scene.waits.waiting
    of = [scene.topology.machines.get(unit, ()) for unit in hypothesis.units]
    gone = all(len(ranks) > 1 and set(ranks) <= set(hypothesis.ranks) for ranks in of)
    return not gone and not scene.waits.waiting


def _unknown(hypothesis: Hypothesis, look: Look) -> bool:
    """Whether it rests only on ranks of which nothing is known except that others wait for them."""
    return bool(hypothesis.ranks) and all(merely_failed(look[rank]) for rank in hypothesis.ranks)


def _roots(scene: Scene) -> list[Hypothesis]:
    """Hypotheses on ranks that wait for none while others wait: machines, a shared cause, or mere slowness."""
    look, waits, motion, topology = scene.look, scene.waits, scene.motion, scene.topology
    weighed = weigh(look, waits, motion, topology)
    odds_by = {rank: prod(factor.times for factor in factors) for rank, factors in weighed.items()}
    victims = _victims(look, waits, motion, topology)
    units: dict[str, list[Rank]] = {}
    for rank, times in odds_by.items():
        if times > 0 and rank not in victims:
            units.setdefault(topology.machine(rank) or f"rank {rank}", []).append(rank)
    if not units:
        return []
    lead = {unit: max(ranks, key=lambda rank: (odds_by[rank], -rank)) for unit, ranks in units.items()}
    best = {unit: odds_by[rank] for unit, rank in lead.items()}
    top = max(best, key=lambda unit: (best[unit], -lead[unit]))
    guilty = {unit: [r for r in units[unit] if odds_by[r] >= RIVAL_SHARE * best[unit]] for unit in units}
    crowded = not motion.known and len(waits.waiting) > WAITING_REMARKABLE
    alone = _alone(units, lead, look, motion, topology) if held(look[lead[top]]) else None
    rivals = [
        unit
        for unit in units
        if best[unit] >= RIVAL_SHARE * best[top]
        or _same(look[lead[unit]], look[lead[top]])
        or (crowded and held(look[lead[unit]]))  # it is stuck, whatever it explains
        or unit == alone
    ]
    captured = [unit for unit in rivals if not merely_failed(look[lead[unit]])]
    rivals = captured if top in captured else rivals  # a missing capture is no second fault
    if len(rivals) > 1:
        factors = {unit: weighed[lead[unit]] for unit in units}
        return blame_several(rivals, guilty, factors, scene)
    found = [
        cause
        for unit in sorted(units, key=lambda unit: (-best[unit], lead[unit]))[:NAMED_ALONE]
        for cause in by_cause_of(
            Hypothesis(
                Kind.MACHINE,
                weighed[lead[unit]],
                tuple(guilty[unit]),
                (unit,),
                reasons(guilty[unit], look, waits, motion),
            ),
            scene,
        )
    ]
    if causes_of(look[lead[top]]) is not None or any(one.shares and top in one.units for one in found):
        return found  # already split among all causes
    others = _others(lead[top], guilty[top], look, waits, motion, len(topology.machines))
    if not waits.waiting:
        unawaited = Factor("nobody was seen to wait for it", UNAWAITED)
        others = [
            (kind, (*factors, unawaited) if kind in (Kind.SLOW, Kind.UNDETERMINED) else factors)
            for kind, factors in others
        ]
    return found + [Hypothesis(kind, factors, tuple(guilty[top]), (top,), found[0].reasons) for kind, factors in others]


def _victims(look: Look, waits: Waits, motion: Motion, topology: Topology) -> frozenset[Rank]:
    """Roots that sleep or idle while a rank of their own replica is stuck.

    They wait for its messages, although no frame says so. In 12 of 2,704 simulated incidents of one host such a rank
    would be evicted beside it.
    """
    stuck = [
        rank for rank in waits.roots if held(look[rank]) or (rank in motion.still and look[rank].activity in SERVICES)
    ]
    if not stuck or len(stuck) > ASKED_ALONE:
        return frozenset()
    mates = frozenset().union(*(replica(rank, topology) for rank in stuck)).difference(stuck)
    return frozenset(rank for rank in waits.roots if rank in mates and _idles(look[rank]))


def _idles(state: RankState) -> bool:
    plain = state.activity in (Activity.UNKNOWN, Activity.COMPUTE, Activity.LAUNCH) and state.rule != BY_COUNTERS
    return plain and state.busy is False and not state.interpreting


def _alone(
    units: Iterable[str], lead: Mapping[str, Rank], look: Look, motion: Motion, topology: Topology
) -> str | None:
    """The one machine whose rank seems to wait for room in its device's queue and is unchanged, if its peers are not
    so.

    It is no victim of a stuck rank in another replica: replicas run the same program, so its peers would be at its call
    site. Of 583 simulated incidents of two hosts, in two replicas, four show such a rank.
    """
    queued = [unit for unit in units if look[lead[unit]].queued]
    rank = lead[queued[0]] if len(queued) == 1 else None
    if rank is None or rank not in motion.still:
        return None
    like = topology.group("dp", rank)
    return queued[0] if like is not None and len(like) > CROWD_LEAST else None


def _same(state: RankState, other: RankState) -> bool:
    """Whether both wait at one call site for what may be the same service: then they are one incident."""
    return state.activity in SHARED and state.place == other.place


def _others(
    rank: Rank, ranks: list[Rank], look: Look, waits: Waits, motion: Motion, machines: int
) -> list[tuple[Kind, tuple[Factor, ...]]]:
    """What else may hold the first suspect: the code, a service, or work that takes its time."""
    state = look[rank]
    odds, doing = odds_of(state), where(state)
    code = Factor(f"the code stops there, {doing}", odds.software)
    if len(ranks) > 1 and state.rule == BY_COUNTERS:
        code = Factor(f"{len(ranks)} ranks of one machine are behind alike, which code does", BEHIND_ALIKE)
    service = Factor(f"a service does not answer, {doing}", odds.dependency)
    few = Factor("only one machine asks for it", min(1.0, SERVED_MACHINES / max(1, machines)) ** SERVED_POWER)
    if rank in motion.travelling and state.activity is Activity.STORAGE:
        few = Factor("it got on with other things between the looks", ROOT_TRAVELLING)
    served = []
    if not motion.known and len(waits.waiting) > WAITING_REMARKABLE:
        past = f"{len(waits.waiting)} ranks wait for it: they are past what they asked of a service"
        served = [Factor(past, 1 / min(WAITING_MOST, len(waits.waiting) / WAITING_REMARKABLE))]
    alone = works_for_all(state, rank in motion.still, rank in motion.working)
    works = alone and let_one_work(look, waits) is not None
    pace = _pace(rank in motion.still, works or rank in motion.travelling)
    slow = (Factor(f"merely slow, {doing}", odds.slow), Factor("stood still, or gets on with its work", pace))
    moving = moves_data(rank, state, motion)
    at_work = [Factor("it runs: what it writes or waits for moves", DATA_MOVES)] if moving else []
    return [(Kind.SOFTWARE, (code, *at_work)), (Kind.DEPENDENCY, (service, few, *served, *at_work)), (Kind.SLOW, slow)]


def _pace(still: bool, works: bool) -> float:
    """The factor of its motion on the odds that it is merely slow."""
    if still:
        return 1.0 if works else SLOW_IF_STILL  # work in one call looks like a wait for a device there
    return SLOW_IF_AT_WORK if works else 1.0


def _may_be_a_hidden_wait(rank: Rank, scene: Scene) -> bool:
    """Whether it is where a hidden wait would be, and did not move between the looks."""
    state, motion = scene.look[rank], scene.motion
    if state.queued or rank in motion.moving or rank in motion.travelling:
        return False
    if spins(state):
        return True
    return at_barrier(scene.look, scene.waits) and sleeps_off_its_way(
        state, masked_waits.others(scene.look, scene.waits)
    )
