"""The verdict on a job that is seen to move: it is sound, or it waits for the same machine again and again."""

from dataclasses import replace

from hangdog_models.collectives import INSPECTOR
from hangdog_models.diagnosis.observe import devices
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.work import FREED_AT_LEAST, stepped_between
from hangdog_models.diagnosis.stragglers import fail_slow, straggler
from hangdog_models.diagnosis.stragglers.fail_slow import LATE_DECIDES, Slowness
from hangdog_models.diagnosis.verdict import eviction
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.who_and_why import CAUSE_OF
from hangdog_models.diagnosis.verdict.write_verdict import written
from hangdog_models.diagnosis.waits.collective_counters import BY_DEVICE
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.stack import Reason
from hangdog_models.verdict import Activity, Culprit, Eviction, Kind, StallCause, Suspect, Verdict, VerdictReason

ALIVE_RANKS = likelihood("alive_ranks")
#: What shows the job's own progress.
BY_STEPS = "step lines, a heartbeat file or counted collectives"


def judge(case: Case) -> Verdict | None:
    """The verdict if the job is seen to move: none, or slow if it waits for the same few ranks; else None."""
    motion = case.motion
    halted = [rank for rank, state in case.look.items() if state.activity in (Activity.STOPPED, Activity.DEAD)]
    if halted and not all(_of_an_old_process(rank, case) for rank in halted):
        return None
    stuck = any(r in motion.still and _stands(case.look[r]) for r in case.waits.roots)
    stirring = () if (stuck and len(motion.stirring) < ALIVE_RANKS) or _awaited_alone(case) else motion.stirring
    moved = motion.freed or motion.stepped or stirring
    behind = any(r in motion.still and case.look[r].rule == BY_DEVICE for r in case.waits.roots)
    if behind and not stuck and not moved and len(motion.travelling) >= FREED_AT_LEAST:
        moved = tuple(sorted(motion.travelling))  # ranks held up by a hung device do not move on
    alive = bool(moved) or motion.moved_on
    # If most hosts wait for their devices, few are seen to move. Then recurring times show that the job is alive.
    gets_on = alive or bool(motion.travelling)
    alone = _alone(case)
    recorded = _recorded(case)
    if not gets_on and not alone and not recorded:
        return None
    late = straggler.find(case.snapshot.counters, case.topology)
    always = not alive and late is not None and bool(alone) and alone.issubset(late.suspects[0].ranks)
    if not gets_on and not always and not recorded:
        return None
    by_looks = None
    if alive:
        rounds = max(fail_slow.ROUNDS, len(case.looks))
        # few looks at a job whose loader bounds it may meet one rank there each time: that holds nothing back
        stepped = stepped_between(case.snapshot.rounds) if len(case.looks) >= fail_slow.ROUNDS else ()
        looks = devices.marked(case.looks, case.snapshot.rounds, case.topology)
        by_looks = fail_slow.find(looks, case.topology, rounds=rounds, stepped=stepped)
    if late is None or (by_looks is not None and by_looks.kind is Kind.DEPENDENCY):
        late = by_looks
    elif by_looks is not None:
        late = _surer(late, by_looks)
    slow = late is not None and late.kind in (Kind.SLOW, Kind.DEPENDENCY, Kind.SOFTWARE)
    if late is not None and slow and 1 - late.sound >= LATE_DECIDES:
        return _late(case, late)
    if not moved or late is None:
        return None
    text = f"{len(moved)} of {len(case.look)} ranks moved on between the last two of {len(case.looks)} looks"
    because = VerdictReason("ranks-moved-on", text)
    if motion.stepped:
        between = f"the last two of {len(case.looks)} looks" if len(case.looks) > 1 else "the last two looks"
        because = VerdictReason("job-progressed", f"the job's own progress went on between {between}: {BY_STEPS}")
    suspects = _suspects(late)
    lines = (because, *(line for one in suspects for line in one.because))
    return written(case, Kind.NONE, late.sound, lines, suspects, Eviction(), _causes(late.kind, late.sound), None)


def _awaited_alone(case: Case) -> bool:
    """Whether only the ranks that all others wait for move, as long as these are on one machine.

    The job then makes no progress but what they make, and who they are is known.
    """
    stirring = set(case.motion.stirring)
    machines = case.topology.machines_of(sorted(stirring))
    return bool(stirring) and len(machines) == 1 < len(case.topology.machines) and stirring <= set(case.waits.roots)


def _suspects(late: Slowness) -> tuple[Suspect, ...]:
    """Each suspect with its own reason; reasons on several suspects follow after these."""
    return tuple(
        Suspect(one.ranks, one.machines, one.probability, (why,))
        for one, why in zip(late.suspects, late.reasons, strict=False)
    )


def _surer(recorded: Slowness, by_looks: Slowness) -> Slowness:
    """The suspect by recorded times; surer if the rounds name the same ranks, up to the limit of such times."""
    first = recorded.suspects[0]
    same = [one.probability for one in by_looks.suspects if not set(first.ranks).isdisjoint(one.ranks)]
    if not same or recorded.kind is not Kind.SLOW:
        return recorded
    surer = replace(first, probability=max(first.probability, min(recorded.surest, max(same))))
    return replace(recorded, suspects=(surer, *recorded.suspects[1:]), sound=1 - surer.probability)


def _of_an_old_process(rank: Rank, case: Case) -> bool:
    """Whether a tool found no such process, and the job moved on after that: the number was an older process's."""
    last = case.look[rank]
    if last.missing is None or last.missing.reason is not Reason.EXITED:
        return False
    gone = [at for at, look in enumerate(case.looks) if rank in look and look[rank].activity is last.activity]
    return bool(gone) and gone[0] < len(case.looks) - case.motion.rounds


def _stands(state: RankState) -> bool:
    """Whether it is stuck where two rounds show it. Computing and waiting for its own device are parts of every step."""
    return state.activity is not Activity.COMPUTE and state.rule != BY_DEVICE


def _alone(case: Case) -> frozenset[Rank]:
    """The ranks that all others wait for through their devices alone, in one round or two.

    If one is late in every step, the others wait for it most of the time. Two rounds may well show just that.
    """
    outside = [rank for rank in case.waits.roots if case.look[rank].activity is not Activity.MISSING]
    reported = (
        case.motion.rounds <= 2
        and case.motion.stated_s is None
        and all(case.look[rank].rule == BY_DEVICE for rank in outside)
    )
    return frozenset(outside) if reported else frozenset()


def _recorded(case: Case) -> bool:
    """Whether operations that completed one after another are the only evidence, and nothing says that this ended.

    NCCL Inspector records no others, so its dumps show a job that made progress for as long as they reach.
    """
    seen = any(state.frames for state in case.look.values())
    counters = case.snapshot.counters
    inspected = bool(counters) and all(one.source == INSPECTOR for one in counters)
    still = case.snapshot.job.stalled_s is not None or any(one.source == INSPECTOR for one in case.snapshot.findings)
    return inspected and not seen and not still


def _late(case: Case, late: Slowness) -> Verdict:
    """The verdict on a moving job that waits for the same ranks again and again."""
    suspects = _suspects(late)
    named = {frozenset(one.machines): one.probability for one in late.suspects if one.machines}
    evict = eviction.smallest(named, case.options) if late.kind is Kind.SLOW else Eviction()
    if len(named) > 1 and all(probability >= case.options.coverage_target for probability in named.values()):
        # Degraders are no rivals: each that is named by itself is one.
        machines = tuple(sorted(machine for one in named for machine in one))
        fits = len(machines) <= case.options.budget_machines
        evict = Eviction(machines, min(named.values())) if fits and late.kind is Kind.SLOW else evict
    first = suspects[0] if suspects else None
    culprit = None
    if first is not None:
        why = {CAUSE_OF[late.kind]: first.probability}
        culprit = Culprit(first.ranks, first.machines, first.probability, late.reasons[:1], why)
    return written(
        case, late.kind, 1 - late.sound, late.reasons, suspects, evict, _causes(late.kind, late.sound), culprit
    )


def _causes(kind: Kind, sound: float) -> dict[StallCause, float]:
    """A moving job is healthy, or its cause is what the rounds or the times show."""
    causes = dict.fromkeys(StallCause, 0.0)
    causes[StallCause.HEALTHY] = sound
    causes[StallCause.SLOW if kind in (Kind.NONE, Kind.UNDETERMINED) else CAUSE_OF[kind]] += 1.0 - sound
    return causes
