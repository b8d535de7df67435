"""Reasons as a colleague would write them: which rank, where it stands, who waits for it and through which groups."""

from collections.abc import Iterable

from hangdog_models.counts import counted
from hangdog_models.diagnosis.observe.activity import HELD, LOCK_FILE, RankState
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.rank_words import are, ranks_of, wait
from hangdog_models.diagnosis.waits.collective_counters import BY_COMPLETION, BY_COUNTERS, BY_DEVICE, COUNTED, OUTSIDE
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Activity


def reasons(ranks: Iterable[Rank], look: Look, waits: Waits, motion: Motion | None = None) -> tuple[str, ...]:
    """Why these ranks of one machine are suspected: where they stand, and who waits for them.

    Without `motion` they are one root of several: then whoever waits for nobody knows whom is no reason for this one.
    """
    ranks = list(ranks)
    state = look[ranks[0]]
    text = f"{ranks_of(ranks)} {are(ranks)} {where(state)}"
    if state.rule in COUNTED:
        groups = {hold.group for rank in ranks for hold in waits.holds_for(rank) if hold.group}
        through = f" in {counted(len(groups), 'process group')}" if groups else ""
        text = f"{ranks_of(ranks)} {are(ranks)} behind{through}: {where(state)}"
    elif not text.endswith(OUTSIDE):
        text += f", {OUTSIDE}"
    if motion is not None and set(ranks) <= motion.still:
        text += f", unchanged in {motion.rounds} looks"
    elif motion is not None and set(ranks) <= motion.moving:
        text += f", at different lines of it in {motion.rounds} looks"
    elif motion is not None and set(ranks) <= motion.travelling:
        text += f", and elsewhere in other ones of {motion.rounds} looks"
    reasons = [text]
    if state.missing:
        reasons.append(f"{ranks_of(ranks)}: {state.missing}")
    reached = waits.reached_from(ranks)
    if reached:
        dims = sorted({str(hold.dim) for rank in ranks for hold in waits.holds_for(rank)})
        reasons.append(
            f"{ranks_of(sorted(reached))} {wait(reached)} for it through {', '.join(dims)}, directly or through others"
        )
    loose = sorted(waits.loose - reached - set(ranks))
    if loose and motion is not None:
        places = sorted({where(look[rank]) for rank in loose})
        behind = sorted(waits.reached_from(loose) - reached - set(loose))
        text = f"{ranks_of(loose)} {are(loose)} in {', '.join(places[:3])}, whose frames do not name whom they wait for"
        text += f", and {ranks_of(behind)} {wait(behind)} for {'it' if len(loose) == 1 else 'those'}" if behind else ""
        everybody = len(reached) + len(loose) + len(behind) >= len(waits.waiting)
        reasons.append(text + ("; no other rank stands outside" if everybody else ""))
    return tuple(reasons)


def where(state: RankState) -> str:
    """Where a rank stands, to follow `is`: `computing in tidy`."""
    doing = {
        Activity.UNKNOWN: "asleep",
        Activity.COMPUTE: "computing",
        Activity.DATALOADER: "waiting for its data loader",
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
    }.get(state.activity, str(state.activity).replace("_", " "))
    if state.rule == BY_COMPLETION:
        return f"its peers have completed {state.operation}, and it has not"
    if state.rule == BY_COUNTERS and not state.waits:
        return f"{state.label} by its counters"
    if state.rule == BY_DEVICE:
        return f"held up by its own GPU, which has not reached {state.operation}"
    if state.activity is Activity.DEVICE_SYNC and not state.waits:
        doing = "asleep in the driver of its GPU"
    if state.operation == HELD:
        doing = HELD
    if state.operation == LOCK_FILE:
        doing = "waiting for a lock file"
    if state.activity is Activity.UNKNOWN and state.rule == BY_COUNTERS and not state.frames:
        return state.label  # nothing but counters tells of it
    if state.waits:
        doing = state.operation or doing
        if state.dim:
            doing += f" ({state.dim})"
    # in backward itself the innermost frame of the caller is the operation
    at = f" at line {state.line}" if state.astray else ""
    return f"{doing} in {state.label}{at}" if state.label not in ("", doing) else doing + at
