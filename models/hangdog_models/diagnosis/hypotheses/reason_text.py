"""The sentences of a verdict's reasons: which rank, where it is, which ranks wait for it and through which groups."""

from collections.abc import Iterable, Mapping

from hangdog_models.counts import counted
from hangdog_models.diagnosis.observe.activity import CHILD, FROZEN, HELD, HOLDER, LOCK_FILE, RankState
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.observe.rank_state_reader import WORKER_ASLEEP, WORKERS_ASLEEP
from hangdog_models.diagnosis.rank_words import are, ranks_of, wait
from hangdog_models.diagnosis.waits.collective_counters import (
    BY_COMPLETION,
    BY_COUNTERS,
    BY_DEVICE,
    COUNTED,
    NOT_CALLED,
    OUTSIDE,
)
from hangdog_models.diagnosis.waits.launches_behind import BY_LAUNCHES
from hangdog_models.diagnosis.waits.ras_waits import BY_RAS
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.stack import Reason
from hangdog_models.verdict import Activity, VerdictReason

#: The code of the reason that says where a rank is: by what shows it to be behind, its operation, or its activity.
_PLACE_CODES: Mapping[str | None, str] = {
    BY_COUNTERS: "behind-in-group",
    BY_COMPLETION: "operation-not-completed",
    BY_DEVICE: "own-device-behind",
    BY_LAUNCHES: "launches-behind",
    NOT_CALLED: "lacks-a-call",
    LOCK_FILE: "waits-for-lock-file",
    Activity.COLLECTIVE: "in-collective",
    Activity.P2P: "in-point-to-point",
    Activity.DEVICE_SYNC: "waits-for-device",
    Activity.LAUNCH: "launches-operation",
    Activity.DATALOADER: "waits-for-loader",
    Activity.STORAGE: "waits-for-storage",
    Activity.CHECKPOINT: "at-checkpoint",
    Activity.RENDEZVOUS: "in-rendezvous",
    Activity.COMPILE: "compiles",
    Activity.LOCK: "waits-for-lock",
    Activity.GIL: "holds-interpreter-lock",
    Activity.GC: "collects-garbage",
    Activity.COMPUTE: "computes",
    Activity.NETWORK: "waits-for-answer",
    Activity.TEARDOWN: "exits",
    Activity.IDLE: "idle",
    Activity.STOPPED: "stopped",
    Activity.DEAD: "dead",
    Activity.MISSING: "no-stack",
    Activity.UNKNOWN: "asleep",
}


def reasons(ranks: Iterable[Rank], look: Look, waits: Waits, motion: Motion | None = None) -> tuple[VerdictReason, ...]:
    """Why these ranks of one machine are suspected: where they are, and which ranks wait for them.

    Without `motion` they are one root of several. Then ranks whose peers are unknown are not named: they are no reason
    for this root.
    """
    ranks = list(ranks)
    reached, it = waits.reached_from(ranks), "it" if len(ranks) == 1 else "them"
    if look[ranks[0]].activity is Activity.MISSING:
        found = [_silence(ranks, look[ranks[0]], waits)]
    else:
        found = _position(ranks, look[ranks[0]], waits, motion)
        if reached:
            dims = sorted({str(hold.dim) for rank in ranks for hold in waits.holds_for(rank)})
            through = f"through {', '.join(dims)}, directly or through others"
            waiting = f"{ranks_of(sorted(reached))} {wait(reached)} for {it} {through}"
            found.append(VerdictReason("waited-for", waiting))
    loose = sorted(waits.loose - reached - set(ranks))
    if loose and motion is not None:
        places = sorted({stands(look[rank]) for rank in loose})
        others = sorted(waits.reached_from(loose) - reached - set(loose))
        their, they, them = ("its", "it waits", "it") if len(loose) == 1 else ("their", "they wait", "those")
        all_ = not reached and waits.waiting and set(waits.roots) <= set(ranks)
        text = f"{'all others wait: ' if all_ else ''}{ranks_of(loose)} {are(loose)} {', '.join(places[:3])}"
        text += f", and {ranks_of(others)} {wait(others)} for {them}" if others else ""
        text += "" if all_ else f"; {their} frames do not tell for whom {they}"
        found.append(VerdictReason("peers-unknown", text))
    return tuple(found)


def _position(ranks: list[Rank], state: RankState, waits: Waits, motion: Motion | None) -> list[VerdictReason]:
    text = f"{ranks_of(ranks)} {are(ranks)} {stands(state)}"
    if state.rule in COUNTED:
        groups = {hold.group for rank in ranks for hold in waits.holds_for(rank) if hold.group}
        through = f" in {counted(len(groups), 'process group')}" if groups else ""
        text = f"{ranks_of(ranks)} {are(ranks)} behind{through}: {where(state)}"
    elif not text.endswith(OUTSIDE):
        text += f", {OUTSIDE}"
    if motion is not None and set(ranks) <= motion.still:
        text += f", unchanged in {motion.over}"
    elif motion is not None and set(ranks) <= motion.moving:
        text += f", at different lines of it in {motion.over}"
    elif motion is not None and set(ranks) <= motion.travelling:
        text += f", and elsewhere in other ones of {motion.over}"
    found = [VerdictReason(_place_code(state), text)]
    if state.missing:
        found.append(VerdictReason("capture-reduced", f"{ranks_of(ranks)}: {state.missing}"))
    if state.activity is Activity.STOPPED and state.operation != FROZEN:
        it = "it" if len(ranks) == 1 else "them"
        signal = f"a signal stopped {it}: SIGCONT lets {it} go on, and whoever sent the signal knows why"
        found.append(VerdictReason("stopped-by-signal", signal))
    if motion is not None and (halted := motion.halted.intersection(ranks)):
        child = f"a process that {ranks_of(sorted(halted))} started is stopped by a signal (SIGCONT lets it go on)"
        found.append(VerdictReason("child-stopped", child))
    return found


def _place_code(state: RankState) -> str:
    place = next(one for one in (state.rule, state.operation, state.activity) if one in _PLACE_CODES)
    return _PLACE_CODES[place]


def _silence(ranks: list[Rank], state: RankState, waits: Waits) -> VerdictReason:
    """The reason of ranks without a capture: which ranks wait for them, and what the missing capture may mean."""
    whose, several = ranks_of(ranks), len(ranks) > 1
    holds = [hold for rank in ranks for hold in waits.holds_for(rank) if hold.counted]
    by_ras, by_dumps = state.rule == BY_RAS, bool(holds)
    if by_ras:
        text, may = f"{whose} {'do' if several else 'does'} not answer NCCL RAS, while others do", "out of reach"
    elif holds and all(hold.lasting for hold in holds):  # by what watchdogs logged
        text, may = f"{whose} {'say' if several else 'says'} nothing in the logs", "merely not captured"
    else:
        text, may = f"{whose} left no {'flight recorder dump' if by_dumps else 'stack'}", "merely not captured"
        known = state.missing is not None and state.missing.reason is not Reason.NO_EVIDENCE
        text += f" ({state.missing})" if known else ""
    it, they, reached = *(("them", "they") if several else ("it", "it")), sorted(waits.reached_from(ranks))
    waited = f", and {ranks_of(reached)} {wait(reached)} for {it}" if reached else ""
    if state.missing is not None and state.missing.reason is Reason.MOVED:
        runs = f"{they} {'run' if several else 'runs'} and {'get' if several else 'gets'} on with something"
        return VerdictReason("moved-while-read", f"{text}{waited}: {runs}")
    text += f"{waited}: look at {it} first; {they} may be dead, stopped or {may}"
    return VerdictReason("silent-to-ras" if by_ras else "no-dump" if by_dumps else "no-stack", text)


def stands(state: RankState) -> str:
    """Where a rank is, to follow `is`, with `in` before an operation: `in all_reduce in step`."""
    return f"in {where(state)}" if state.waits and state.operation else where(state)


def where(state: RankState) -> str:
    """Where a rank is, to follow `is`: `computing in tidy`; for a waiting rank, its operation."""
    doing = {
        Activity.UNKNOWN: "asleep",
        Activity.COMPUTE: "computing",
        Activity.DATALOADER: "waiting for the data loader",
        Activity.STORAGE: "waiting for storage",
        Activity.CHECKPOINT: "reading or writing a checkpoint",
        Activity.NETWORK: "waiting for an answer from outside of the job",
        Activity.TEARDOWN: "on its way out",
        Activity.IDLE: "waiting to be told what to do",
        Activity.LOCK: "waiting for a lock",
        Activity.GIL: "asleep holding the interpreter lock",
        Activity.GC: "collecting garbage",
        Activity.COMPILE: "compiling",
        Activity.MISSING: "not captured",
        Activity.LAUNCH: "launching an operation",
        Activity.DEVICE_SYNC: "waiting for its device",
        Activity.COLLECTIVE: "in a collective",
        Activity.P2P: "in a point-to-point operation",
        Activity.RENDEZVOUS: "meeting the others",
    }.get(state.activity, str(state.activity).replace("_", " "))
    if state.rule in (WORKER_ASLEEP, WORKERS_ASLEEP):
        return f"waiting for the data loader, of which a worker sleeps in {state.label}"
    if state.rule == HOLDER:
        doing = "asleep while another of its threads holds the interpreter lock"
    if state.rule == BY_COMPLETION:
        return f"its peers have completed {state.operation}, and it has not"
    if state.rule == BY_COUNTERS and not state.waits:
        return f"{state.label} by its counters"
    if state.rule == BY_DEVICE:
        return f"held up by its own GPU, which has not reached {state.operation}"
    if state.rule == NOT_CALLED:
        return f"in {state.label} as its peers are, and has not called {state.operation} as they have"
    if state.rule == BY_LAUNCHES:
        return f"waiting for its own GPU in {state.label}, which its peers are past"
    if state.activity is Activity.DEVICE_SYNC and not state.waits:
        doing = "asleep in the driver of its GPU"
    if state.activity is Activity.UNKNOWN and state.operation == CHILD and state.child:
        doing = f"waiting for {state.child}"
    if state.operation in (HELD, FROZEN):
        doing = state.operation
    if state.operation == LOCK_FILE:
        doing = "waiting for a lock file"
    if state.activity is Activity.UNKNOWN and state.awaits is not None:
        doing = f"waiting for {state.child or state.awaits}"
    if state.activity is Activity.UNKNOWN and state.rule == BY_COUNTERS and not state.frames:
        return state.label  # only counters know it
    if state.waits:
        doing = state.operation or doing
        if state.dim:
            doing += f" ({state.dim})"
    # in backward itself, the innermost frame of the caller is the operation
    at = f" at line {state.line}" if state.astray else ""
    return f"{doing} in {state.label}{at}" if state.label not in ("", doing) else doing + at
