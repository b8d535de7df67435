"""Why a rank that holds the job up stands where it stands: its machine, its code, a service, or work that takes its time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdog_models.diagnosis.hypotheses.activity_odds import WHY_AT_ANOTHER_THREAD, causes_of, in_an_operator
from hangdog_models.diagnosis.hypotheses.blame_factors import goes_about, works_for_all
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis
from hangdog_models.diagnosis.hypotheses.masked_waits import at_lock_file, let_one_work
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.observe.activity import SERVICES, RankState, sites
from hangdog_models.diagnosis.observe.duties import TRACKS, duty
from hangdog_models.diagnosis.observe.motion import Motion
from hangdog_models.diagnosis.waits.collective_counters import BY_DEVICE, LAUNCHED_BEFORE
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import by_cause, likelihood
from hangdog_models.verdict import Activity, Kind

#: What a healthy job does now and then on one rank, for minutes.
_DUTIES = (Activity.NETWORK, Activity.COMPUTE, Activity.COMPILE, Activity.CHECKPOINT)
#: What is seen of one that works for all. What it reads, writes or asks of others has causes of its own.
_AT_WORK = (
    Activity.COMPUTE, Activity.DEVICE_SYNC, Activity.UNKNOWN, Activity.LOCK, Activity.GC, Activity.LAUNCH,
)  # fmt: skip
#: Who writes where one rank writes for all, in every framework: another one that is still at it is later than its peers.
_WRITER = Rank(0)
#: Begins of the names by which native code calls a device.
_OF_DEVICES = ("cuda", "cuStream", "cuCtx", "cuEvent", "cuMem", "c10::cuda", "hip", "urEvent")
WHY_IN_A_DUTY = by_cause("why_in_a_duty")
WHY_ALL_ARE_SERVED = by_cause("why_all_are_served")
WHY_MANY_ARE_SERVED = by_cause("why_many_are_served")
#: What tells work from a loop without an end.
LATER = (
    "collect next: looks some minutes later: work is elsewhere or done by then, a loop without an end is where it was"
)
#: What a loop without an end shows as well.
LOOPS = (Activity.COMPUTE, Activity.GC)
AT_WORK_IF_SEEN_ONCE = likelihood("at_work_if_seen_once")
AT_WORK_IF_SEEN_TO_GET_ON = likelihood("at_work_if_seen_to_get_on")
AT_WORK_IF_IT_COMPUTES = likelihood("at_work_if_it_computes")
AT_WORK_IF_IT_RUNS = likelihood("at_work_if_it_runs")
AT_WORK_IF_ASLEEP_AT_START = likelihood("at_work_if_asleep_at_start")
AT_WORK_IF_STILL = likelihood("at_work_if_still")
AT_WORK_IF_COUNTED_STILL = likelihood("at_work_if_counted_still")
DUTY_S = likelihood("duty_s")
MOMENT_S = likelihood("moment_s")


def by_cause_of(blamed: Hypothesis, scene: Scene) -> list[Hypothesis]:
    """An explanation that blames a machine for where its ranks stand, shared out among all causes of standing there.

    Who holds the job up is told by who waits for whom. Why it does is another question: a place that no rule knows, a
    request, a lock or a function of the user's speaks for the code, a service or a long duty as much as for the machine.
    Where it was looked at once, and nobody stated a standstill, its work may be a moment of the job: then nobody is to blame.
    """
    # of several ranks of a machine one whose place has other causes, too, is enough to doubt that it is the machine
    rank = next((rank for rank in blamed.ranks if causes_of(scene.look[rank])), blamed.ranks[0])
    lead = scene.look[rank]
    if (does := _own_duty(rank, lead, scene)) is not None:
        return _duty(blamed, rank, does, scene)
    if (does := _hot_line(rank, lead, scene)) is not None:
        return _duty(blamed, rank, does, scene, looped=True)
    if not scene.motion.known and scene.stalled_s is not None and (does := _duty_of_all(lead, scene)) is not None:
        because = (f"each rank {does}: no step ends in it, and one look cannot tell whether it gets on",)
        causes = _shared_out(blamed, {**WHY_IN_A_DUTY})
        return [_nobody(one, Kind.UNDETERMINED, because) if one.kind is Kind.NONE else one for one in causes]
    shares = WHY_ALL_ARE_SERVED if _all_are_served(lead, scene) else causes_of(lead)
    if shares is None and lead.activity is Activity.DATALOADER and at_lock_file(scene.look, scene.waits):
        shares = WHY_AT_ANOTHER_THREAD  # no batch of a step: processes of its own prepare something for all
    if shares is None or _unrelated([scene.look[rank] for rank in blamed.ranks]):
        return [blamed]
    begins = lead.activity is Activity.UNKNOWN and starting(scene)
    at_work = _at_work(rank, lead, scene, begins)
    if _writes_for_all(rank, lead, scene.motion):
        at_work = max(at_work, _lasts(scene) * AT_WORK_IF_IT_COMPUTES)
    weights = {**shares, Kind.SLOW: shares[Kind.SLOW] * at_work}
    causes = _shared_out(blamed, weights)
    if _moves(rank, lead, scene):
        because = (f"{blamed.reasons[0]}, and it gets on: what it writes, reads or asks for moves",)
        if _writes_for_all(rank, lead, scene.motion):
            because = (f"rank {rank} runs where it writes or reads a checkpoint: a healthy job waits for that as well",)
        return _as_kind(causes, Kind.SLOW, Kind.NONE, because)
    if not (_seen_once(scene) or _brief(scene)) or not _may_be_a_moment(lead):
        return causes
    because = ("one look cannot tell a duty that takes its time from one that is stuck",)
    if _brief(scene):
        because = (f"nothing had moved for {scene.stalled_s:.0f} s only, as was stated: a step takes as long",)
    return _as_kind(causes, Kind.SLOW, Kind.UNDETERMINED, because)


def _duty(blamed: Hypothesis, rank: Rank, does: str, scene: Scene, looped: bool = False) -> list[Hypothesis]:
    """The causes of standing in what one rank does for all: a healthy phase first of all, as long as phases last.

    `looped`: a loop without an end would have looked the same, so it is open whether this is a phase.
    """
    weights = {**WHY_IN_A_DUTY, Kind.NONE: WHY_IN_A_DUTY[Kind.NONE] * _at_work(rank, scene.look[rank], scene, False)}
    causes = _shared_out(blamed, weights)
    motion = scene.motion
    seen = rank in motion.moving or rank in motion.travelling or gets_on(rank, motion)
    if seen and (scene.stalled_s or 0.0) > DUTY_S:
        because = (f"rank {rank} {does}, and for longer than most do: one that does not end looks like that as well",)
        return _as_kind(causes, Kind.NONE, Kind.UNDETERMINED, because)
    if looped:
        open_why = f"rank {rank} {does}: a loop that does not end looks like that as well"
        return _as_kind(causes, Kind.NONE, Kind.UNDETERMINED, (open_why, LATER))
    return _as_kind(causes, Kind.NONE, Kind.NONE, (f"rank {rank} {does}: a healthy job waits for that as well",))


def _shared_out(blamed: Hypothesis, weights: Mapping[str, float]) -> list[Hypothesis]:
    """One explanation for each cause, with its part of the whole."""
    total = sum(weights.values())
    return [replace(blamed, kind=Kind(cause), shares=(weight / total,)) for cause, weight in weights.items()]


def _duty_of_all(lead: RankState, scene: Scene) -> str | None:
    """What all ranks that show a stack do in one function of the program: it evaluates, or saves."""
    found = duty(lead.frames) if lead.activity in _AT_WORK else None
    if found is None:
        return None
    entered = (lead.frames[found[1]].function, lead.frames[found[1]].file)
    stacks = [state.frames for state, _ in sites(scene.look) if state.frames]
    return found[0] if all(entered in {(one.function, one.file) for one in stack} for stack in stacks) else None


def _own_duty(rank: Rank, state: RankState, scene: Scene) -> str | None:
    """What it does for all: it is at work while they let it, or in a function that says so and that none of them is in."""
    works = works_for_all(state, rank in scene.motion.still, rank in scene.motion.working)
    meanwhile = let_one_work(scene.look, scene.waits)
    if meanwhile is not None and (works or goes_about(rank, state, scene.motion)):
        return f"is at work while the others {meanwhile}"
    found = duty(state.frames) if state.activity in _AT_WORK and not state.queued else None
    launched = (
        state.rule == BY_DEVICE and state.operation != LAUNCHED_BEFORE
    )  # its host is past what its device hangs in
    if found is None or launched:
        return None
    does, at = found
    if does is TRACKS and not state.busy:
        return None  # a tracker that does not answer lets its caller sleep
    way = [(frame.function, frame.file) for frame in state.frames]
    waiting = frozenset(scene.waits.waiting)
    others = [
        {(one.function, one.file) for one in other.frames}
        for other, ranks in sites(scene.look)
        if other.waits or not waiting.isdisjoint(ranks)
    ]
    # a stack that does not show the way which both came tells nothing of where they parted
    parted = [other for other in others if not other.isdisjoint(way[:at])]
    return f"{does}, which no other rank does" if parted and all(way[at] not in other for other in others) else None


def _hot_line(rank: Rank, state: RankState, scene: Scene) -> str | None:
    """What it does that runs Python for all at one line in every look: seconds apart, a hot loop of sound work shows no other.

    That it used the processor in between tells it from a call that blocks and keeps the interpreter's lock.
    """
    motion = scene.motion
    runs = rank in motion.still and rank in motion.running and rank in motion.working
    meanwhile = let_one_work(scene.look, scene.waits)
    if meanwhile is None or not (runs and state.activity is Activity.COMPUTE and state.interpreting):
        return None
    return f"is at work while the others {meanwhile}, at one line in {motion.over}"


def _nobody(explanation: Hypothesis, kind: Kind, because: tuple[str, ...]) -> Hypothesis:
    """The same explanation, by which nobody is to blame: what it tells of is done by many."""
    return replace(explanation, kind=kind, ranks=(), units=(), reasons=because)


def _as_kind(causes: Sequence[Hypothesis], of: Kind, kind: Kind, because: tuple[str, ...]) -> list[Hypothesis]:
    """The causes, of which one is another kind than was asked for. The others wait for the same ranks, whatever these do."""
    return [replace(one, kind=kind, reasons=because) if one.kind is of else one for one in causes]


def _moves(rank: Rank, state: RankState, scene: Scene) -> bool:
    """Whether what it waits for is seen to move, and no standstill was stated that is longer than a duty takes."""
    loops = state.activity in LOOPS
    moves = gets_on(rank, scene.motion) or _leaves(rank, state, scene.motion)
    moves = moves or _writes_for_all(rank, state, scene.motion)
    return not loops and moves and (scene.stalled_s or 0.0) <= DUTY_S


def served(blamed: Hypothesis, scene: Scene) -> list[Hypothesis]:
    """An explanation by a service that many wait for, and the other one: that it serves them, and they are at work."""
    begins = starting(scene)  # asked once: thousands of ranks may be served
    at_work = max(_at_work(rank, scene.look[rank], scene, begins) for rank in blamed.ranks)
    if _serves(blamed, scene):
        at_work = max(at_work, _lasts(scene) * AT_WORK_IF_IT_COMPUTES)
    silent, serves = WHY_MANY_ARE_SERVED["dependency"], WHY_MANY_ARE_SERVED["slow"] * at_work
    because = "many at once read, write or ask: a phase of the job may take that long"
    phase = _nobody(blamed, Kind.UNDETERMINED, (because,))
    total = silent + serves
    return [replace(blamed, shares=(silent / total,)), replace(phase, shares=(serves / total,))]


def _may_be_a_moment(state: RankState) -> bool:
    """Whether it may do what a healthy job does now and then, as far as one look shows."""
    if state.passing:
        return True
    if state.activity is Activity.UNKNOWN:
        return state.sleeping and not state.dozing and not in_an_operator(state)
    return state.activity in _DUTIES


def _all_are_served(state: RankState, scene: Scene) -> bool:
    """Whether the whole job stands at what one service gives it, so that nobody waits for anybody: a slow batch looks like that."""
    seen = [other for other, _ in sites(scene.look) if other.frames]
    return not scene.waits.waiting and state.activity in SERVICES and all(o.activity is state.activity for o in seen)


def _unrelated(states: Sequence[RankState]) -> bool:
    """Whether ranks of one machine are held up at several places: these have only their machine in common."""
    held = [state for state in states if state.frames]
    return len({state.place for state in held}) > 1 and not any(state.busy for state in held)


def _at_work(rank: Rank, state: RankState, scene: Scene, begins: bool) -> float:
    """What was seen between the looks, and for how long nothing moved, adds to the odds that it does a long duty.

    `begins`: the job has not come together yet.
    """
    motion = scene.motion
    lasts = _lasts(scene)
    if state.activity is Activity.UNKNOWN and begins:
        return lasts * AT_WORK_IF_ASLEEP_AT_START
    if not motion.known:
        return lasts * (AT_WORK_IF_SEEN_ONCE if _seen_once(scene) or _brief(scene) else 1.0)
    if rank in motion.travelling or (gets_on(rank, motion) and state.activity not in LOOPS):
        return lasts * AT_WORK_IF_SEEN_TO_GET_ON
    if rank in motion.moving or rank in motion.ticking or gets_on(rank, motion):
        return lasts * AT_WORK_IF_IT_COMPUTES
    if rank in motion.counted:
        return lasts * AT_WORK_IF_COUNTED_STILL
    if _brief(scene) and state.busy:
        return AT_WORK_IF_SEEN_ONCE
    still = AT_WORK_IF_STILL if rank in motion.still else 1.0
    return lasts * still * (AT_WORK_IF_IT_RUNS if state.busy else 1.0)


def _seen_once(scene: Scene) -> bool:
    return not scene.motion.known and scene.stalled_s is None


def _brief(scene: Scene) -> bool:
    """Whether a standstill was stated that is no longer than a step takes: then a second look within it tells no more."""
    return scene.stalled_s is not None and scene.stalled_s <= MOMENT_S


def _lasts(scene: Scene) -> float:
    """What a stated standstill leaves of the odds of a duty: all, where it is no longer than one takes."""
    return 1.0 if scene.stalled_s is None else min(1.0, DUTY_S / scene.stalled_s)


def _leaves(rank: Rank, state: RankState, motion: Motion) -> bool:
    """Whether it writes, and was seen to do something else or to use the processor in between."""
    return state.passing and any(rank in some for some in (motion.moving, motion.travelling))


def _writes_for_all(rank: Rank, state: RankState, motion: Motion) -> bool:
    return rank == _WRITER and _writes_on(rank, state, motion)


def _writes_on(rank: Rank, state: RankState, motion: Motion) -> bool:
    """Whether it reads or writes a checkpoint and ran in every look: storage that does not answer puts its caller to sleep.

    One call takes minutes for a large file, so equal lines show nothing. Who waits for its device to copy runs as well.
    """
    writes = state.activity is Activity.CHECKPOINT and rank in motion.running
    return writes and not any(frame.native and frame.function.startswith(_OF_DEVICES) for frame in state.frames)


def _serves(blamed: Hypothesis, scene: Scene) -> bool:
    """Whether a service answers some: of those at a checkpoint some ran in every look, and others did not, so it is known who runs."""
    at_it = [rank for rank in blamed.ranks if scene.look[rank].activity is Activity.CHECKPOINT]
    runs = [_writes_on(rank, scene.look[rank], scene.motion) for rank in at_it]
    return any(runs) and any(scene.look[rank].busy is False for rank in at_it)


def starting(scene: Scene) -> bool:
    """Whether most of those who wait do so for the job to come together: it has not begun to train."""
    gathered = sum(len(ranks) for state, ranks in sites(scene.look) if state.activity is Activity.RENDEZVOUS)
    return 2 * gathered > len(scene.waits.waiting)


def gets_on(rank: Rank, motion: Motion) -> bool:
    """Whether it is counted that it does something between the looks: processor time, wakes, or children at work."""
    return any(rank in some for some in (motion.working, motion.woken, motion.fed, motion.helped))
