"""All hypotheses that explain what was seen, each with odds. Their shares of the sum are the probabilities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hangdog_models.counts import counted
from hangdog_models.diagnosis.hypotheses import (
    contradiction,
    crossed_order,
    disagreement,
    mismatch,
    missing_dumps,
    roots,
    structure,
    stuck_groups,
)
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.multiple_roots import NAMED_ALONE
from hangdog_models.diagnosis.hypotheses.reason_text import reasons
from hangdog_models.diagnosis.hypotheses.root_causes import MOMENT_S
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.hypotheses.stuck_groups import NOT_IN_STUCK_GROUP, proven
from hangdog_models.diagnosis.observe.activity import LOCK_FILE, RankState, sites
from hangdog_models.diagnosis.observe.motion import Look, Motion, is_idle
from hangdog_models.diagnosis.rank_words import are, ranks_of
from hangdog_models.diagnosis.waits.waits import CROWD_LEAST, Waits
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Kind, VerdictReason

CULPRIT_UNSEEN = likelihood("culprit_unseen")
CULPRIT_UNCAPTURED = likelihood("culprit_uncaptured")
CULPRIT_AMONG_MISSING = likelihood("culprit_among_missing")
CULPRIT_AMONG_ABSENT_MACHINES = likelihood("culprit_among_absent_machines")
HEALTHY_MOMENT = likelihood("healthy_moment")
JOB_AT_WORK = likelihood("job_at_work")
MOMENT_AMONG_FEW = likelihood("moment_among_few")
FEW_WAIT = likelihood("few_wait")
PLACES_AT_REST = likelihood("places_at_rest")
PLACES_AT_REST_IN_STAGES = likelihood("places_at_rest_in_stages")
SPREAD_POWER = likelihood("spread_power")
LEFT_LOCK = likelihood("left_lock")
ALL_STOPPED = likelihood("all_stopped")
LAST_AT_WORK = likelihood("last_at_work")
LAST_SHARE = likelihood("last_share")
SLOW_STEP = likelihood("slow_step")
SLOW_STEP_POWER = likelihood("slow_step_power")


def explain_unseen(scene: Scene) -> list[Hypothesis]:
    """The culprit may not be in the evidence: this hypothesis is always there.

    If it can only be one of a few ranks, their machines share part of the odds equally. The rest names no machine. Nor
    does the part of a machine that no rank was seen to wait for: its ranks may have joined, and a link between them be
    broken.
    """
    inside = proven(scene)
    whole = unseen(scene.captured, scene.topology.world_size, inside=inside)
    units = {} if inside else _left(scene)
    if not units and not inside:
        return _among_absent(whole, scene)
    if not units or len(units) > NAMED_ALONE:
        return [whole]
    part = CULPRIT_AMONG_MISSING / len(units)
    found = [
        replace(whole, ranks=ranks, units=(unit,), reasons=reasons(ranks, scene.look, scene.waits), shares=(part,))
        for unit, ranks in sorted(units.items(), key=lambda item: item[1])
        if any(map(scene.waits.holds_for, ranks))
    ]
    return [*found, replace(whole, shares=(1 - part * len(found),))]


def explain_moment(scene: Scene) -> list[Hypothesis]:
    """One round may have caught a healthy step; empty where something shows what moves."""
    if scene.motion.known:
        return []
    found = moment(scene.look, scene.waits, scene.topology)
    if scene.stalled_s is None:
        return [found]
    stated = Factor(
        f"nothing had moved for {scene.stalled_s:.0f} s, as was stated", min(1.0, MOMENT_S / scene.stalled_s)
    )
    return [found.moved(stated)]


def explain_left_lock(scene: Scene) -> list[Hypothesis]:
    """All that were seen poll for the lock file of a build, and none builds: one that was killed left it behind.

    The processes that start together build an extension together: the first takes the lock, and the others wait.
    """
    seen = {rank: state for rank, state in scene.look.items() if state.frames}
    if not seen or any(state.operation != LOCK_FILE for state in seen.values()):
        return []
    ranks = tuple(sorted(seen))
    poll = "polls" if len(ranks) == 1 else "poll"
    words = f"{ranks_of(ranks)} {poll} for the lock file of a build, and no rank that was seen builds"
    why = "a build that was killed leaves the file: remove `lock` in the extension's folder (~/.cache/torch_extensions)"
    because = (VerdictReason("waits-for-lock-file", words), VerdictReason("lock-file-left", why))
    return [Hypothesis(Kind.SOFTWARE, odds(words, LEFT_LOCK), reasons=because)]


def explain_suspended(scene: Scene) -> list[Hypothesis]:
    """Every rank of the job is stopped: no machine stops the others' processes, but a person or a scheduler does.

    A rank that left no evidence may be the one that does not wait, so all must be seen.
    """
    if scene.captured < scene.topology.world_size or not all_stopped(scene.look):
        return []
    words = "every rank of the job is stopped (state T, or a frozen container)"
    how = "SIGCONT, `scontrol resume` or unpausing its containers lets it go on"
    because = VerdictReason("job-suspended", f"{words}: a person or a scheduler suspends a job like that; {how}")
    return [Hypothesis(Kind.DEPENDENCY, odds(words, ALL_STOPPED), reasons=(because,))]


def explain_last_at_work(scene: Scene) -> list[Hypothesis]:
    """The few ranks at work while all others are idle: workers of a service, or of rollouts, wait for the last of them.

    The longest request ends last in a sound job, too. So who it is is known, and why stays open.
    """
    seen = {rank: state for rank, state in scene.look.items() if state.frames}
    idle = {rank for rank, state in seen.items() if is_idle(state)}
    busy = tuple(sorted(seen.keys() - idle))
    if not busy or len(idle) < CROWD_LEAST or len(busy) > LAST_SHARE * len(idle) or not scene.motion.known:
        return []
    if scene.waits.outside(scene.look):
        return []  # its own activity says more
    text = f"all others wait to be told what to do: {ranks_of(busy)} {are(busy)} the last at work, or stuck in it"
    units = tuple(dict.fromkeys(scene.topology.machine(rank) or f"rank {rank}" for rank in busy))
    because = (VerdictReason("last-at-work", text),)
    return [Hypothesis(Kind.UNDETERMINED, odds(text, LAST_AT_WORK), busy, units, because)]


def explain_slow_step(scene: Scene) -> list[Hypothesis]:
    """The job may be in a slow step; empty unless it moved on in an earlier round."""
    return [slow_step(scene.motion)] if scene.motion.moved_on and scene.motion.rounds > 1 else []


def all_stopped(look: Look) -> bool:
    """Whether every rank that was looked at is stopped."""
    return bool(look) and all(state.activity is Activity.STOPPED for state in look.values())


def unseen(captured: int, expected: int, *, inside: bool = False) -> Hypothesis:
    """The hypothesis that the culprit is not in the evidence. `inside`: a group that was captured whole is stuck."""
    share = max(0.0, 1 - captured / expected) if expected else 1.0  # RAS may count more ranks than the job has
    text = f"{expected - captured} of {expected} ranks were not captured"
    because = (VerdictReason("ranks-not-captured", text),) if captured < expected else ()
    factors = odds("the culprit left no evidence", CULPRIT_UNSEEN + CULPRIT_UNCAPTURED * share)
    if inside:
        factors = (*factors, Factor("a group that was seen whole has joined and does not complete", NOT_IN_STUCK_GROUP))
    return Hypothesis(Kind.UNDETERMINED, factors, reasons=because)


def moment(look: Look, waits: Waits, topology: Topology) -> Hypothesis:
    """The hypothesis that nothing is stuck: it remains possible after a single round."""
    if not look or not any(state.frames for state in look.values()):
        return Hypothesis(Kind.UNDETERMINED, odds("nothing is stuck, one look caught a moment", HEALTHY_MOMENT))
    running = sum(look[rank].activity is Activity.COMPUTE for rank in waits.roots)
    at_work = running > len(waits.waiting)
    because = (VerdictReason("seen-once", "one look cannot show that nothing moves"),)
    if at_work:
        return Hypothesis(Kind.UNDETERMINED, odds("more ranks run than wait", JOB_AT_WORK), reasons=because)
    few = max(HEALTHY_MOMENT, MOMENT_AMONG_FEW * min(1.0, FEW_WAIT / max(1, len(waits.waiting))))
    places = len({(place.label, place.signature.innermost if place.signature else "") for place, _ in _seen(look)})
    usual = PLACES_AT_REST_IN_STAGES if "pp" in topology.groups else PLACES_AT_REST
    factors = (
        Factor("nothing is stuck, one look caught a moment", few),
        Factor(f"the ranks stand in {counted(places, 'place')}", max(1.0, places / usual) ** SPREAD_POWER),
    )
    return Hypothesis(Kind.UNDETERMINED, factors, reasons=because)


def slow_step(motion: Motion) -> Hypothesis:
    """The hypothesis that the job is in a slow step, for it moved on during the captures."""
    because = f"the job moved on before the last {motion.rounds} looks: look again a few seconds later"
    words = f"a slow step: the job moved on before the last {motion.rounds} looks"
    factors = odds(words, SLOW_STEP / (motion.rounds - 1) ** SLOW_STEP_POWER)
    return Hypothesis(Kind.UNDETERMINED, factors, reasons=(VerdictReason("moved-on-before", because),))


def _left(scene: Scene) -> Mapping[str, tuple[Rank, ...]]:
    """The ranks that left no evidence, by machine, where all others are seen to wait for them; else nothing.

    Then no other rank can be the culprit. A rank whose stack names no peer may wait for any rank.
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


def _among_absent(whole: Hypothesis, scene: Scene) -> list[Hypothesis]:
    """The machines of which nothing came, where each rank that was seen waits and did not move: rather one of these.

    The waits do not say for whom, so something between the seen ranks may be broken as well.
    """
    look, waits, topology = scene.look, scene.waits, scene.topology
    seen = {rank for rank, state in look.items() if state.activity is not Activity.MISSING}
    absent = {name: ranks for name, ranks in topology.machines.items() if ranks and seen.isdisjoint(ranks)}
    lost = sum(map(len, absent.values()))
    if not scene.motion.known or not absent or len(absent) > NAMED_ALONE or lost + len(seen) != topology.world_size:
        return [whole]
    if waits.outside(look) or not seen.issubset(waits.waiting) or not seen:
        return [whole]
    names = " and ".join(sorted(absent)) if len(absent) <= 2 else counted(len(absent), "machine")
    text = f"each rank that was seen waits, and nothing came of {names}: look there first"
    because = (VerdictReason("machine-left-nothing", text),)
    part = CULPRIT_AMONG_ABSENT_MACHINES / len(absent)
    found = [
        replace(whole, ranks=tuple(ranks), units=(name,), reasons=because, shares=(part,))
        for name, ranks in sorted(absent.items(), key=lambda item: item[1])
    ]
    return [*found, replace(whole, shares=(1 - part * len(found),))]


def _seen(look: Look) -> list[tuple[RankState, list[Rank]]]:
    return [(state, ranks) for state, ranks in sites(look) if state.frames]


#: Every explanation, in order. Each returns its hypotheses independently of the others.
EXPLANATIONS: tuple[Callable[[Scene], Sequence[Hypothesis]], ...] = (
    roots.explain,
    roots.explain_sole_root,
    mismatch.explain,
    stuck_groups.explain,
    explain_moment,
    explain_slow_step,
    explain_last_at_work,
    explain_left_lock,
    explain_suspended,
    disagreement.explain,
    crossed_order.explain,
    missing_dumps.explain,
    structure.explain,
    contradiction.explain,
    explain_unseen,
)


def explain(scene: Scene) -> tuple[Hypothesis, ...]:
    """All hypotheses of a scene, each with its odds by stacks and counters."""
    return tuple(hypothesis for explanation in EXPLANATIONS for hypothesis in explanation(scene))
