"""Why a root is where it is: its machine, its code, a service, or work that takes its time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdog_models.counts import counted
from hangdog_models.diagnosis.hypotheses.activity_odds import WHY_AT_ANOTHER_THREAD, causes_of, in_an_operator
from hangdog_models.diagnosis.hypotheses.blame_factors import goes_about, works_for_all
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis
from hangdog_models.diagnosis.hypotheses.masked_waits import at_lock_file, let_one_work
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.observe.activity import SERVICES, RankState, sites
from hangdog_models.diagnosis.observe.duties import TRACKS, duty
from hangdog_models.diagnosis.observe.motion import Motion
from hangdog_models.diagnosis.stragglers.fail_slow import ROUNDS
from hangdog_models.diagnosis.waits.collective_counters import BY_DEVICE, LAUNCHED_BEFORE, LEFT_OUT
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import by_cause, likelihood
from hangdog_models.verdict import Activity, Kind, VerdictReason

#: What a healthy job does now and then on one rank, for minutes.
_DUTIES = (Activity.NETWORK, Activity.COMPUTE, Activity.COMPILE, Activity.CHECKPOINT)
#: Activities of a rank that works for the whole job. Reads, writes and requests have causes of their own.
_AT_WORK = (
    Activity.COMPUTE, Activity.DEVICE_SYNC, Activity.UNKNOWN, Activity.LOCK, Activity.GC, Activity.LAUNCH,
)  # fmt: skip
#: The rank that writes for the whole job, in every framework. Another rank still at it is later than its peers.
_WRITER = Rank(0)
#: How functions begin by which native code calls a device.
_OF_DEVICES = ("cuda", "cuStream", "cuCtx", "cuEvent", "cuMem", "c10::cuda", "hip", "urEvent")
WHY_IN_A_DUTY = by_cause("why_in_a_duty")
WHY_DEVICE_IN_ONE_MOMENT = by_cause("why_device_in_one_moment")
#: What would tell a device that hangs from the one that is last in each step.
ONE_MOMENT = (
    VerdictReason(
        "device-in-one-moment",
        "its device is behind in dumps of one moment: in each step of a healthy job some device is",
    ),
    VerdictReason(
        "collect-looks", "collect next: a second look with flight recorder dumps, which shows whether it gets on"
    ),
)
WHY_ALL_ARE_SERVED = by_cause("why_all_are_served")
WHY_MANY_ARE_SERVED = by_cause("why_many_are_served")
#: How to tell work from an endless loop.
LATER = VerdictReason(
    "collect-looks",
    "collect next: looks some minutes later: work is elsewhere or done by then, a loop without an end is where it was",
)
#: Activities of an endless loop as well.
LOOPS = (Activity.COMPUTE, Activity.GC)
AT_WORK_IF_SEEN_ONCE = likelihood("at_work_if_seen_once")
AT_WORK_IF_SEEN_TO_GET_ON = likelihood("at_work_if_seen_to_get_on")
AT_WORK_IF_IT_COMPUTES = likelihood("at_work_if_it_computes")
AT_WORK_IF_IT_RUNS = likelihood("at_work_if_it_runs")
AT_WORK_IF_ASLEEP_AT_START = likelihood("at_work_if_asleep_at_start")
AT_WORK_IF_STILL = likelihood("at_work_if_still")
AT_WORK_IF_COUNTED_STILL = likelihood("at_work_if_counted_still")
SERVED_BETWEEN_LOOKS = likelihood("served_between_looks")
LOADERS_OF_A_MACHINE = likelihood("loaders_of_a_machine")
DUTY_S = likelihood("duty_s")
MOMENT_S = likelihood("moment_s")


def by_cause_of(blamed: Hypothesis, scene: Scene) -> list[Hypothesis]:
    """Splits a hypothesis that blames a machine among all causes of its ranks' state.

    The waits show which rank holds the job up. Why it does is another question. An unknown call site, a request, a lock
    or a user function points at the code, a service or a long duty as much as at the machine. After one round without a
    stated stall its work may be a moment of the job: then nothing is blamed.
    """
    # if the call site of one of several ranks has other causes, too, the machine is in doubt
    rank = next((rank for rank in blamed.ranks if causes_of(scene.look[rank])), blamed.ranks[0])
    lead = scene.look[rank]
    if lead.rule == BY_DEVICE and lead.frames and causes_of(lead) is None and scene.device_in_one_moment(rank):
        causes = _shared_out(replace(blamed, reasons=(*blamed.reasons, *ONE_MOMENT)), WHY_DEVICE_IN_ONE_MOMENT)
        return _as_kind(causes, Kind.NONE, Kind.UNDETERMINED, ONE_MOMENT)
    if (does := _own_duty(rank, lead, scene)) is not None:
        stands = _at_one_line(rank, lead, scene) and scene.stalled_s is not None and not _brief(scene)
        return _duty(blamed, rank, does, scene, looped=stands)
    if (does := _hot_line(rank, lead, scene)) is not None:
        return _duty(blamed, rank, does, scene, looped=True)
    if not scene.motion.known and scene.stalled_s is not None and (does := _duty_of_all(lead, scene)) is not None:
        text = f"each rank {does}: no step ends in it, and one look cannot tell whether it gets on"
        all_do = (VerdictReason("all-in-one-duty", text),)
        causes = _shared_out(blamed, {**WHY_IN_A_DUTY})
        return [_nobody(one, Kind.UNDETERMINED, all_do) if one.kind is Kind.NONE else one for one in causes]
    shares = WHY_ALL_ARE_SERVED if _all_are_served(lead, scene) else causes_of(lead)
    if shares is None and lead.activity is Activity.DATALOADER and at_lock_file(scene.look, scene.waits):
        shares = WHY_AT_ANOTHER_THREAD  # no batch of a step: its own processes prepare something for the job
    if shares is None or (_unrelated([scene.look[rank] for rank in blamed.ranks]) and not _whole_job(blamed, scene)):
        return [blamed]
    begins = lead.activity is Activity.UNKNOWN and starting(scene)
    at_work = _at_work(rank, lead, scene, begins)
    if _writes_for_all(rank, lead, scene.motion):
        at_work = max(at_work, _lasts(scene) * AT_WORK_IF_IT_COMPUTES)
    machine = shares[Kind.MACHINE] * (LOADERS_OF_A_MACHINE if _loaders_of_a_machine(blamed, scene) else 1.0)
    weights = {**shares, Kind.MACHINE: machine, Kind.SLOW: shares[Kind.SLOW] * at_work}
    causes = _shared_out(blamed, weights)
    if _moves(rank, lead, scene):
        text = f"{blamed.reasons[0]}, and it gets on: what it writes, reads or asks for moves"
        because = VerdictReason("gets-on", text)
        if _writes_for_all(rank, lead, scene.motion):
            text = f"rank {rank} runs where it writes or reads a checkpoint: a healthy job waits for that as well"
            because = VerdictReason("in-a-duty", text)
        holds_back = lead.activity is Activity.DATALOADER and scene.motion.rounds >= ROUNDS
        return _as_kind(causes, Kind.SLOW, Kind.SLOW if holds_back else Kind.NONE, (because,))
    if _passes_through(rank, lead, scene):
        text = f"rank {rank} computes and gets on: whoever is last in a step does, and few looks do not tell whether it is so each time"
        return _as_kind(causes, Kind.SLOW, Kind.UNDETERMINED, (VerdictReason("last-in-a-step", text),))
    if not (_seen_once(scene) or _brief(scene)) or not _may_be_a_moment(lead):
        return causes
    because = VerdictReason("seen-once", "one look cannot tell a duty that takes its time from one that is stuck")
    if _brief(scene):
        text = f"nothing had moved for {scene.stalled_s:.0f} s only, as was stated: a step takes as long"
        because = VerdictReason("stall-is-brief", text)
    return _as_kind(causes, Kind.SLOW, Kind.UNDETERMINED, (because,))


def _duty(blamed: Hypothesis, rank: Rank, does: str, scene: Scene, looped: bool = False) -> list[Hypothesis]:
    """The causes of a rank's state in a duty for the whole job. Most likely is a healthy phase, unless it lasts too
    long.

    `looped`: an endless loop would have looked the same, so the phase stays undetermined.
    """
    at_work = _at_work(rank, scene.look[rank], scene, False)
    too_long = (scene.stalled_s or 0.0) > DUTY_S
    if too_long:  # that it computes tells no more: so does a loop that never ends
        at_work = min(at_work, _lasts(scene))
    causes = _shared_out(blamed, {**WHY_IN_A_DUTY, Kind.NONE: WHY_IN_A_DUTY[Kind.NONE] * at_work})
    if too_long:
        text = f"rank {rank} {does}, and for longer than most do: one that does not end looks like that as well"
        return _as_kind(causes, Kind.NONE, Kind.UNDETERMINED, (VerdictReason("duty-or-loop", text),))
    if looped:
        text = f"rank {rank} {does}: a loop that does not end looks like that as well"
        return _as_kind(causes, Kind.NONE, Kind.UNDETERMINED, (VerdictReason("duty-or-loop", text), LATER))
    text = f"rank {rank} {does}: a healthy job waits for that as well"
    return _as_kind(causes, Kind.NONE, Kind.NONE, (VerdictReason("in-a-duty", text),))


def _shared_out(blamed: Hypothesis, weights: Mapping[str, float]) -> list[Hypothesis]:
    """One hypothesis for each cause, with its share of the whole."""
    total = sum(weights.values())
    return [replace(blamed, kind=Kind(cause), shares=(weight / total,)) for cause, weight in weights.items()]


def _duty_of_all(lead: RankState, scene: Scene) -> str | None:
    """What all ranks with a stack do in one function of the program, such as evaluate or save; else None."""
    found = duty(lead.frames) if lead.activity in _AT_WORK else None
    if found is None:
        return None
    entered = (lead.frames[found[1]].function, lead.frames[found[1]].file)
    stacks = [state.frames for state, _ in sites(scene.look) if state.frames]
    return found[0] if all(entered in {(one.function, one.file) for one in stack} for stack in stacks) else None


def _own_duty(rank: Rank, state: RankState, scene: Scene) -> str | None:
    """What a rank does for the whole job, else None.

    It works while the others let it, or it is in a function that says so and that no other rank is in.
    """
    works = works_for_all(state, rank in scene.motion.still, rank in scene.motion.working)
    meanwhile = let_one_work(scene.look, scene.waits)
    if meanwhile is not None and (works or goes_about(rank, state, scene.motion)):
        return f"is at work while the others {meanwhile}"
    found = duty(state.frames) if state.activity in _AT_WORK and not state.queued else None
    # its host is past the call that its device hangs in
    launched = state.rule == BY_DEVICE and state.operation not in (LAUNCHED_BEFORE, LEFT_OUT)
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
    # a stack without the frames before that function does not show where the two ways differ
    parted = [other for other in others if not other.isdisjoint(way[:at])]
    return f"{does}, which no other rank does" if parted and all(way[at] not in other for other in others) else None


def _hot_line(rank: Rank, state: RankState, scene: Scene) -> str | None:
    """What a rank does for the whole job that runs Python at one line in every round.

    A hot loop of sound work looks so. CPU time between the rounds distinguishes it from a call that blocks and keeps
    the GIL.
    """
    meanwhile = let_one_work(scene.look, scene.waits)
    if meanwhile is None or not _at_one_line(rank, state, scene):
        return None
    return f"is at work while the others {meanwhile}, at one line in {scene.motion.over}"


def _at_one_line(rank: Rank, state: RankState, scene: Scene) -> bool:
    """Whether it ran Python at one line in every round, and used the processor between them."""
    motion = scene.motion
    runs = rank in motion.still and rank in motion.running and rank in motion.working
    return runs and state.activity is Activity.COMPUTE and state.interpreting


def _nobody(explanation: Hypothesis, kind: Kind, because: tuple[VerdictReason, ...]) -> Hypothesis:
    """The same hypothesis without blame: many ranks do what it describes."""
    return replace(explanation, kind=kind, ranks=(), units=(), reasons=because)


def _as_kind(
    causes: Sequence[Hypothesis], of: Kind, kind: Kind, because: tuple[VerdictReason, ...]
) -> list[Hypothesis]:
    """The causes, with those of kind `of` changed to `kind` and given the reasons `because`."""
    return [replace(one, kind=kind, reasons=because) if one.kind is of else one for one in causes]


def _moves(rank: Rank, state: RankState, scene: Scene) -> bool:
    """Whether what it waits for is seen to move, unless a stall was stated that is longer than a duty takes."""
    loops = state.activity in LOOPS
    moves = gets_on(rank, scene.motion) or _leaves(rank, state, scene.motion)
    moves = moves or _writes_for_all(rank, state, scene.motion)
    return not loops and moves and (scene.stalled_s or 0.0) <= DUTY_S


def served(blamed: Hypothesis, scene: Scene) -> list[Hypothesis]:
    """Two hypotheses about a service that many wait for: it does not answer, or it does and the ranks are at work."""
    begins = starting(scene)  # computed once: a service may have thousands of ranks
    at_work = max(_at_work(rank, scene.look[rank], scene, begins) for rank in blamed.ranks)
    if _serves(blamed, scene):
        at_work = max(at_work, _lasts(scene) * AT_WORK_IF_IT_COMPUTES)
    because = "many at once read, write or ask: a phase of the job may take that long"
    answers = False
    if len(through := _came_through(scene)) >= SERVED_BETWEEN_LOOKS:
        at_work, answers = max(at_work, _lasts(scene) * AT_WORK_IF_SEEN_TO_GET_ON), True
        because = f"many at once read, write or ask, and {counted(len(through), 'rank')} came through between the looks"
    elif 2 * sum(gets_on(rank, scene.motion) for rank in blamed.ranks) > len(blamed.ranks):
        answers, because = True, "many at once read, write or ask, and most of them get on"
    kind = Kind.NONE if answers and (scene.stalled_s or 0.0) <= DUTY_S else Kind.UNDETERMINED
    silent, serves = WHY_MANY_ARE_SERVED["dependency"], WHY_MANY_ARE_SERVED["slow"] * at_work
    phase = _nobody(blamed, kind, (VerdictReason("many-at-a-service", because),))
    total = silent + serves
    return [replace(blamed, shares=(silent / total,)), replace(phase, shares=(serves / total,))]


def _passes_through(rank: Rank, state: RankState, scene: Scene) -> bool:
    """Whether it computes, and was elsewhere in an earlier look, of which there are too few to call it late again and again."""
    computes = state.activity is Activity.COMPUTE
    return computes and rank in scene.motion.travelling and scene.motion.rounds < ROUNDS and scene.stalled_s is None


def _may_be_a_moment(state: RankState) -> bool:
    """Whether it may do what a healthy job does now and then, as far as one round shows."""
    if state.passing:
        return True
    if state.activity is Activity.UNKNOWN:
        return state.sleeping and not state.dozing and not in_an_operator(state)
    return state.activity in _DUTIES


def _all_are_served(state: RankState, scene: Scene) -> bool:
    """Whether the whole job is at one service and no rank waits for another: a slow batch looks like that."""
    seen = [other for other, _ in sites(scene.look) if other.frames]
    return not scene.waits.waiting and state.activity in SERVICES and all(o.activity is state.activity for o in seen)


def _unrelated(states: Sequence[RankState]) -> bool:
    """Whether ranks of one machine are held up at several call sites: they have only their machine in common."""
    held = [state for state in states if state.frames]
    return len({state.place for state in held}) > 1 and not any(state.busy for state in held)


def _loaders_of_a_machine(blamed: Hypothesis, scene: Scene) -> bool:
    """Whether all ranks of one machine wait for their data loaders, where ranks of other machines wait for none."""
    look, topology = scene.look, scene.topology
    (on, *others) = {topology.machine(rank) for rank in blamed.ranks}
    mine = topology.machines.get(on, ()) if on and not others else ()
    loading = [rank for rank in mine if rank in look and look[rank].activity is Activity.DATALOADER]
    return len(mine) > 1 and len(loading) == len(mine) < len(look)


def _whole_job(blamed: Hypothesis, scene: Scene) -> bool:
    """Whether these are all ranks that were seen: then they have more in common than their machine."""
    return all(rank in blamed.ranks for rank, state in scene.look.items() if state.frames)


def _at_work(rank: Rank, state: RankState, scene: Scene, begins: bool) -> float:
    """A factor on the odds of a long duty, by what moved between the rounds and how long nothing moved.

    `begins`: the ranks of the job have not all joined yet.
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
    """Whether the stated stall is no longer than a step takes: then a second round within it adds nothing."""
    return scene.stalled_s is not None and scene.stalled_s <= MOMENT_S


def _lasts(scene: Scene) -> float:
    """The factor on the odds of a duty by the stated stall: 1 if it is no longer than a duty takes."""
    return 1.0 if scene.stalled_s is None else min(1.0, DUTY_S / scene.stalled_s)


def _leaves(rank: Rank, state: RankState, motion: Motion) -> bool:
    """Whether it writes, and was seen in another activity in between or used CPU."""
    return state.passing and any(rank in some for some in (motion.moving, motion.travelling))


def _writes_for_all(rank: Rank, state: RankState, motion: Motion) -> bool:
    return rank == _WRITER and _writes_on(rank, state, motion)


def _writes_on(rank: Rank, state: RankState, motion: Motion) -> bool:
    """Whether it reads or writes a checkpoint and ran in every round.

    Storage that does not answer puts its caller to sleep. One call takes minutes for a large file, so equal lines prove
    nothing. A rank that waits for its device to copy runs as well, so it does not count.
    """
    writes = state.activity is Activity.CHECKPOINT and rank in motion.running
    return writes and not any(frame.native and frame.function.startswith(_OF_DEVICES) for frame in state.frames)


def _came_through(scene: Scene) -> frozenset[Rank]:
    """The ranks that wait now and did something else in an earlier look: the first that were served."""
    return scene.motion.travelling.intersection(scene.waits.waiting)


def _serves(blamed: Hypothesis, scene: Scene) -> bool:
    """Whether a service answers some ranks: of those at a checkpoint, some ran in every round and others did not.

    That others did not shows that the capture can tell which run.
    """
    at_it = [rank for rank in blamed.ranks if scene.look[rank].activity is Activity.CHECKPOINT]
    runs = [_writes_on(rank, scene.look[rank], scene.motion) for rank in at_it]
    return any(runs) and any(scene.look[rank].busy is False for rank in at_it)


def starting(scene: Scene) -> bool:
    """Whether most waiting ranks are in rendezvous: the job has not begun to train."""
    gathered = sum(len(ranks) for state, ranks in sites(scene.look) if state.activity is Activity.RENDEZVOUS)
    return 2 * gathered > len(scene.waits.waiting)


def gets_on(rank: Rank, motion: Motion) -> bool:
    """Whether a count shows activity between the rounds: CPU time, wakes, or children at work."""
    return any(rank in some for some in (motion.working, motion.woken, motion.fed, motion.helped))
