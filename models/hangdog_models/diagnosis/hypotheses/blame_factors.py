"""The factors for and against each root's machine: what the rank does, whether it moved, which waits it explains."""

from hangdog_models.counts import counted
from hangdog_models.diagnosis.hypotheses import masked_waits
from hangdog_models.diagnosis.hypotheses.activity_odds import LOAD, causes_of, odds_of
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor
from hangdog_models.diagnosis.hypotheses.reason_text import where
from hangdog_models.diagnosis.hypotheses.single_round import LASTING, restless
from hangdog_models.diagnosis.observe.activity import RankState, sites, spins
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.observe.silence import merely_failed, silent_ranks
from hangdog_models.diagnosis.waits.collective_counters import BY_DEVICE, COUNTED
from hangdog_models.diagnosis.waits.launches_behind import BY_LAUNCHES
from hangdog_models.diagnosis.waits.ras_waits import BY_RAS
from hangdog_models.diagnosis.waits.waits import Waits
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.stack import Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity

DEVICE_SEEN_ONCE = likelihood("device_seen_once")
AWAITED = likelihood("awaited")
ROOT_STILL = likelihood("root_still")
ROOT_MOVING = likelihood("root_moving")
ROOT_TRAVELLING = likelihood("root_travelling")
WAITING_REMARKABLE = likelihood("waiting_remarkable")
WAITING_MOST = likelihood("waiting_most")
DATA_MOVES = likelihood("data_moves")
SPINS_IN_C = likelihood("spins_in_c")
CAPTURE_FAILED = likelihood("capture_failed")
OTHERS_AT_WORK = likelihood("others_at_work")
LOADER_RUNS = likelihood("loader_runs")
SILENT_MACHINE = likelihood("silent_machine")
UNREACHED_MACHINE = likelihood("unreached_machine")
SILENT_TO_RAS = likelihood("silent_to_ras")
KNOWN_BY_COUNTERS = likelihood("known_by_counters")
BEHIND_MOST = likelihood("behind_most")
UNAWAITED = likelihood("unawaited")
UNAWAITED_OF_ITS_OWN = likelihood("unawaited_of_its_own")
PHASE_MACHINES = likelihood("phase_machines")
PHASE_OF_JOB = likelihood("phase_of_job")
EXPLAINED_LEAST = likelihood("explained_least")
#: Up to so many roots, the waits that each explains are computed for it alone.
ASKED_ALONE = 32
#: Activities in which a process waits for itself.
_OWN = {Activity.LOCK, Activity.GIL, Activity.GC}
#: Activities that a service shared by many machines may hold up.
SHARED = {
    Activity.STORAGE, Activity.CHECKPOINT, Activity.DATALOADER, Activity.NETWORK, Activity.RENDEZVOUS, Activity.COMPILE,
}  # fmt: skip


def weigh(look: Look, waits: Waits, motion: Motion, topology: Topology) -> dict[Rank, tuple[Factor, ...]]:
    """For each root the factors that blame its machine. Roots in equal states share them."""
    explained = _explained(look, waits, topology)
    where_of = _where_of(look, topology)
    silent = silent_ranks(look, topology)
    failed = sum(merely_failed(look[rank]) for rank in waits.roots if rank not in silent)
    at_work = frozenset() if motion.known else restless(look, waits, topology)
    them = masked_waits.others(look, waits)
    known: dict[tuple[object, ...], tuple[Factor, ...]] = {}
    found: dict[Rank, tuple[Factor, ...]] = {}
    for rank in waits.roots:
        state, mute = look[rank], rank in silent
        moved = "still" if rank in motion.still else "moving" if rank in motion.moving else ""
        moved = moved or ("travelling" if rank in motion.travelling else "")
        key = (
            id(state),
            moved,
            explained[rank],
            rank in motion.working,
            rank in motion.woken,
            rank in motion.counted,
            rank in at_work,
            topology.machine(rank) if mute else None,
        )
        if key not in known:
            shared = causes_of(state) is not None or (them.let_one_work is not None and goes_about(rank, state, motion))
            factors = _factors(rank, state, moved, explained[rank], waits, motion, shared)
            place = state.place if state.frames else (state.activity,)
            others = len(where_of.get(place, ())) - 1
            if mute:
                on = len(topology.machines[topology.machine(rank) or ""])
                agent = state.missing is not None and state.missing.reason is Reason.NO_AGENT
                weight = SILENT_MACHINE if agent else UNREACHED_MACHINE
                factors.append(Factor(f"none of the {counted(on, 'rank')} of its machine answers", weight))
            elif merely_failed(state):
                unread = f"{counted(failed, 'capture')} failed, on machines that answer"
                factors.append(Factor(unread, CAPTURE_FAILED / failed))
            if len(at_work) > (rank in at_work) and not mute and state.activity not in LASTING:
                factors.append(Factor("other ranks are at work, in the one look there is", OTHERS_AT_WORK))
            if (
                state.rule == BY_DEVICE and state.frames and not motion.known
            ):  # dumps alone are written after a time-out
                why = "in a healthy step some device is the last as well, and one look cannot tell for how long this one is"
                factors.append(Factor(why, DEVICE_SEEN_ONCE))
            factors += masked_waits.against(state, them)
            if others >= PHASE_MACHINES:
                factors.append(Factor(f"{others} other machines have a rank at the very same place", PHASE_OF_JOB))
            known[key] = tuple(factors)
        found[rank] = known[key]
    return found


def moves_data(rank: Rank, state: RankState, motion: Motion) -> bool:
    """Whether data that it writes, reads or waits for is seen to arrive or to leave.

    - A rank that runs, or used CPU between the rounds, reads or writes.
    - A rank that sleeps in a read, a write or its loader got some data if it was woken again and again, or used CPU.
    - A loader whose workers work does load.
    """
    got_on = rank in motion.working or rank in motion.woken
    if state.activity is Activity.STORAGE:
        return got_on or rank in motion.fed or bool(state.busy)
    return state.activity is Activity.DATALOADER and (got_on or rank in motion.helped)


def works_for_all(state: RankState, still: bool, working: bool) -> bool:
    """Whether it does what ranks do while others let one work alone: it computes, and moves on as far as is known.

    One long call without the GIL looks equal in every round. There the CPU time between rounds decides: an evaluation
    may spend nearly all its time in a few layers.
    """
    launches = state.activity is Activity.LAUNCH and bool(state.busy)  # without a GPU that is computing, too
    calls = bool(state.busy) and not state.interpreting and working
    return launches or (state.activity is Activity.COMPUTE and (calls or not still))


def goes_about(rank: Rank, state: RankState, motion: Motion) -> bool:
    """Whether it went from one activity to another between the rounds, and is not now stopped or dead."""
    return rank in motion.travelling and state.activity not in LASTING


def compiling(state: RankState) -> bool:
    """Whether it compiles, beyond loading a compiled kernel: that takes minutes, so being unchanged proves nothing."""
    return state.activity is Activity.COMPILE and state.operation != LOAD


def _where_of(look: Look, topology: Topology) -> dict[tuple[object, ...], set[str | None]]:
    """The machines with a rank at each call site of a shared service; for ranks without a stack, by activity."""
    found: dict[tuple[object, ...], set[str | None]] = {}
    for state, ranks in sites(look):
        if not state.waits and state.activity in SHARED:
            on = {topology.machine(rank) for rank in ranks}
            found.setdefault(state.place, set()).update(on)
            found.setdefault((state.activity,), set()).update(on)
    return found


def _factors(
    rank: Rank, state: RankState, moved: str, explained: float, waits: Waits, motion: Motion, shared: bool
) -> list[Factor]:
    """The factors of one root.

    `shared`: the odds of its state are split among all causes, so here only that others wait for it counts.
    """
    doing = Factor(where(state), AWAITED if shared else odds_of(state).machine)
    if state.rule == BY_RAS:
        return [Factor("does not answer NCCL RAS while its peers do", SILENT_TO_RAS)]
    if state.rule == BY_LAUNCHES:  # a slow device and a missing message look equal, however many wait
        return [doing, Factor("share of the waiting ranks it explains", explained)]
    if state.rule in COUNTED:
        doing = Factor("counters tell that it is behind, not what holds it", KNOWN_BY_COUNTERS)
    factors = [doing]
    groups = len({hold.group for hold in waits.holds_for(rank) if hold.group}) if state.rule in COUNTED else 0
    if state.rule in COUNTED and waits.waiting and not waits.holds_for(rank):
        factors.append(Factor("by the counters nobody waits for it", EXPLAINED_LEAST))
    if groups > 1:
        factors.append(Factor(f"it is behind in {groups} process groups", min(BEHIND_MOST, groups)))
    if state.queued and not state.interpreting:
        # A full device queue, or mismatched collectives before it: as likely as a fault of the host. It may spin.
        return [doing, Factor("share of the waiting ranks it explains", explained)]
    if state.activity is Activity.DATALOADER and state.interpreting and not moved:
        factors.append(Factor("it runs: a loader that runs is loading", LOADER_RUNS))
    if spins(state) and moved in ("", "still"):
        factors.append(Factor("runs without the interpreter's lock, as who waits for a device does", SPINS_IN_C))
    compiles = compiling(state)
    unknown = state.activity is Activity.UNKNOWN and state.sleeping
    if moved and not (shared and moved == "travelling"):  # motion is why others wait, no acquittal
        times = {
            "still": 1.0 if compiles or unknown or state.waits else ROOT_STILL,
            "moving": ROOT_MOVING,
            "travelling": ROOT_TRAVELLING,
        }[moved]
        factors.append(Factor(f"{moved} in {motion.over}", times))
    elif state.activity is Activity.COMPUTE:
        factors.append(Factor("seen once, while so many wait", min(1.0, len(waits.waiting) / WAITING_REMARKABLE)))
    if shared:
        pass
    elif moves_data(rank, state, motion):
        factors.append(Factor("it runs: what it writes or waits for moves", DATA_MOVES))
    # its other captures failed, and the other ranks are unchanged
    seen_once = motion.known and not moved and bool(state.frames)
    waited_for = not (compiles or unknown) and state.activity is not Activity.NETWORK
    lasting = ((moved in ("still", "moving") or seen_once) and waited_for) or state.activity in LASTING
    # where known waits end in one for a device, how many there are says nothing of whose fault it is
    if lasting and not state.waits and len(waits.waiting) > WAITING_REMARKABLE:
        times = min(WAITING_MOST, len(waits.waiting) / WAITING_REMARKABLE)
        factors.append(Factor(f"{len(waits.waiting)} ranks wait", times))
    if not waits.waiting:
        # Nothing waits for it: only a state that no healthy process stays in counts.
        lasting = moved == "still" and state.activity in (*SHARED, *_OWN)
        speaks = lasting or state.activity in (Activity.STOPPED, Activity.DEAD, Activity.STORAGE)
        unawaited = UNAWAITED_OF_ITS_OWN if state.activity in _OWN else UNAWAITED
        factors.append(Factor("nobody was seen to wait for it", unawaited if speaks else 0.0))
    factors.append(Factor("share of the waiting ranks it explains", explained))
    return factors


def _explained(look: Look, waits: Waits, topology: Topology) -> dict[Rank, float]:
    """For each root, the share of the waiting ranks that it explains, never quite 0.

    The whole is the ranks that some captured root explains; without a captured root, those that any root explains. A
    rank that was not captured may itself wait, and would pass its waits on.

    A device may wait for a collective that no frame of its host shows. So a waiting rank that no root explains counts
    for every root. One that a queued root explains counts for each captured root.

    With many roots no single one is the cause. Then roots of one activity count together, which keeps the cost linear
    in ranks.
    """
    sides: dict[object, list[Rank]] = {}
    for rank in waits.roots:
        alone = (topology.machine(rank) or rank, look[rank].activity)
        sides.setdefault(alone if len(waits.roots) <= ASKED_ALONE else look[rank].activity, []).append(rank)
    loose = waits.reached_from(waits.loose) | waits.loose
    queued = {rank for rank in waits.roots if look[rank].queued}
    behind = loose | waits.reached_from(queued) | queued
    reached = {
        side: waits.reached_from(ranks)
        | (loose if look[ranks[0]].queued or look[ranks[0]].activity is Activity.MISSING else behind)
        for side, ranks in sides.items()
    }
    seen = [reached[side] for side, ranks in sides.items() if look[ranks[0]].activity is not Activity.MISSING]
    together = len(frozenset().union(*(seen or reached.values())))
    shares: dict[Rank, float] = {}
    for side, ranks in sides.items():
        share = min(1.0, len(reached[side]) / together) if together else 1.0
        shares.update(dict.fromkeys(ranks, EXPLAINED_LEAST + (1 - EXPLAINED_LEAST) * share))
    return shares
