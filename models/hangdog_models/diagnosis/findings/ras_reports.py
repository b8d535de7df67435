"""What a report of NCCL RAS says by itself: who is behind, ahead or silent; and how far one report can be believed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hangdog_models.collectives import RasCommunicator, RasMember, RasReport, RasStatus
from hangdog_models.counts import counted
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.root_causes import MOMENT_S
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.diagnosis.waits.ras_waits import BY_RAS, JITTER, PAIR, Places
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import by_cause, likelihood
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity, Kind, VerdictReason

ONE_RAS_REPORT = likelihood("one_ras_report")
LAST_BY_RAS = likelihood("last_by_ras")
IMPOSSIBLE_RAS_REPORT = likelihood("impossible_ras_report")
WHY_SILENT_TO_RAS = by_cause("why_silent_to_ras")
#: Processes and communicators that a verdict names: the first ones show what to ask for.
_SHOWN = 3
_MOMENT = VerdictReason(
    "seen-once", "one report of NCCL RAS cannot show that nothing moves: ranks of a job at work differ, too"
)
AGAIN = VerdictReason(
    "collect-looks", "a second report of NCCL RAS some seconds later: counts that stay as they are show a stall"
)


def weighed(found: Sequence[Hypothesis], scene: Scene, snapshot: Snapshot, *, once: bool) -> list[Hypothesis]:
    """The hypotheses with what speaks against the last report, and with the causes of silence alone.

    `once`: by that one report alone somebody is late.
    """
    if not snapshot.ras:
        return list(found)
    wrong = snapshot.ras[-1].impossible
    against = Factor(f"the report holds what cannot be: {wrong}", IMPOSSIBLE_RAS_REPORT)
    moved: list[Hypothesis] = []
    for one in found:
        silent = bool(one.ranks) and all(rank in scene.look and scene.look[rank].rule == BY_RAS for rank in one.ranks)
        given = one.moved(against) if silent and wrong else one
        moved += _shared(given) if silent and one.hearsay and one.kind is Kind.MACHINE else [given]
    if _seen(scene.look) or scene.records or scene.motion.known:
        return moved
    if not once and not wrong:
        moved += _last(snapshot, scene)
    if once:
        factors = odds("nothing is stuck, one report caught a moment", ONE_RAS_REPORT)
        if scene.stalled_s is not None:
            stated = min(1.0, MOMENT_S / scene.stalled_s) if scene.stalled_s > 0 else 1.0
            factors = (*factors, Factor(f"nothing had moved for {scene.stalled_s:.0f} s, as was stated", stated))
        moved.append(Hypothesis(Kind.UNDETERMINED, factors, reasons=(_MOMENT,)))
    return moved


def reasons(snapshot: Snapshot, topology: Topology, look: Look) -> tuple[VerdictReason, ...]:
    """What the last report says of ranks, the gravest first; empty where it says nothing."""
    if not snapshot.ras:
        return ()
    return tuple(_reasons(snapshot, topology, look))


def asked_again(snapshot: Snapshot) -> bool:
    """Whether another report would tell more: the last one differs between ranks, and none confirms it."""
    if not snapshot.ras:
        return False
    last = snapshot.ras[-1]
    before = snapshot.ras[-2].communicators if len(snapshot.ras) > 1 else ()
    apart = [one for one in last.communicators if len(_classes(one)) > 1]
    return bool(last.impossible or last.untold) or any(one not in before for one in apart)


def _seen(look: Look) -> bool:
    return any(state.frames for state in look.values())


def _shared(one: Hypothesis) -> list[Hypothesis]:
    """One hypothesis for each cause of a process that does not answer, of which nothing else is known."""
    total = sum(WHY_SILENT_TO_RAS.values())
    return [
        replace(one, kind=Kind(cause), shares=(*one.shares, weight / total))
        for cause, weight in WHY_SILENT_TO_RAS.items()
    ]


def _last(snapshot: Snapshot, scene: Scene) -> Iterator[Hypothesis]:
    """That the one rank behind all others holds them up, where its counts are no proof: too few agree, or too little differs."""
    places = Places(snapshot, scene.topology)
    apart = [one for one in snapshot.ras[-1].communicators if len(_classes(one)) > 1]
    for one in sorted(apart, key=lambda one: (-one.size, one.name))[:1]:
        classes = _classes(one)
        last, ranks = min(classes), _ranks(one, min(classes), places)
        if classes[last] == len(ranks) == 1 and (one.size == PAIR or max(classes) - last > JITTER):
            unit = scene.topology.machine(ranks[0]) or f"rank {ranks[0]}"
            factors = odds("it alone launched the least", LAST_BY_RAS)
            yield Hypothesis(Kind.UNDETERMINED, factors, tuple(ranks), (unit,), (_apart(one, places),))


def silent(snapshot: Snapshot, topology: Topology, look: Look) -> VerdictReason | None:
    """What to collect of processes that do not answer, where no rank of the job is known to be theirs."""
    if not snapshot.ras or not (lost := _unplaced(snapshot, topology, look)):
        return None
    named = ", ".join(f"process {member.pid} on {member.host}" for member in lost[:_SHOWN])
    text = f"the stack and the log of {named}, and whether {'it is' if len(lost) == 1 else 'they are'} alive"
    return VerdictReason("collect-awaited-ranks", text)


def _unplaced(snapshot: Snapshot, topology: Topology, look: Look) -> list[RasMember]:
    places = Places(snapshot, topology)
    return [
        member for member in snapshot.ras[-1].lost if member.pid is not None and places.rank(member, None) not in look
    ]


def _reasons(snapshot: Snapshot, topology: Topology, look: Look) -> Iterator[VerdictReason]:
    last = snapshot.ras[-1]
    places = Places(snapshot, topology)
    lost = _unplaced(snapshot, topology, look)
    for member in lost[:_SHOWN]:
        more = f", as {len(lost) - _SHOWN} others" if len(lost) > _SHOWN else ""
        text = (
            f"process {member.pid} on {member.host} does not answer NCCL RAS, while others do{more}: look at it first"
        )
        yield VerdictReason("silent-to-ras", f"{text}; it may be dead, stopped or out of reach")
    if last.impossible:
        text = (
            f"the report of NCCL RAS holds what cannot be ({last.impossible}): RAS has faults of its own, ask it again"
        )
        yield VerdictReason("ras-doubtful", text)
        return
    apart = [one for one in last.communicators if len(_classes(one)) > 1]
    for one in sorted(apart, key=lambda one: (-one.size, one.name))[:_SHOWN]:
        yield _apart(one, places)
    if last.untold:
        text = f"NCCL RAS says MISMATCH of {counted(last.untold, 'communicator')}, and which ranks differ was not read"
        yield VerdictReason("ras-counts", f"{text}: keep the whole report, down to its last line")
    elif not apart and not last.lost and _alike(last, topology):
        yield _all_launched(topology, look)


def _classes(one: RasCommunicator) -> dict[int, int]:
    """How many members launched how many operations, as the report says, or as it lists every member."""
    found = dict(one.classes)
    if not found:
        for member in one.members:
            if member.launched:
                number = sum(member.launched.values())
                found[number] = found.get(number, 0) + 1
    return found


def _apart(one: RasCommunicator, places: Places) -> VerdictReason:
    """Who is behind in a communicator, or who is ahead where most are behind. These wait, and hold nobody up."""
    classes = _classes(one)
    first, last = max(classes), min(classes)
    ahead = 2 * classes[last] > sum(classes.values())
    them, others = (first, last) if ahead else (last, first)
    what = f"{one.kind or 'operation'} {them}"
    who = _who(one, them, classes[them], places)
    rest = classes[others]
    they = f"{rest if rest > 1 else 'one'} other{'s' if rest > 1 else ''}"
    if rest == 1 and (of := _ranks(one, others, places)):
        they = ranks_of(of)
    verb = "is" if classes[them] == 1 else "are"
    where = "ahead" if ahead else "behind"
    text = f"by NCCL RAS {who} {verb} {where}: launched up to {what}, {they} up to {others}"
    if ahead:
        text += "; who is ahead waits, and who holds the others up is among these"
    return VerdictReason("ras-counts", text)


def _ranks(one: RasCommunicator, number: int, places: Places) -> list[Rank]:
    """The job's ranks of the members that launched so many, where each is known."""
    listed = [member for member in one.members if member.launched and sum(member.launched.values()) == number]
    found = [places.rank(member, one) for member in listed]
    return sorted(rank for rank in found if rank is not None) if None not in found else []


def _who(one: RasCommunicator, number: int, members: int, places: Places) -> str:
    ranks = _ranks(one, number, places)
    if len(ranks) == members:
        return ranks_of(ranks)
    listed = [member for member in one.members if member.launched and sum(member.launched.values()) == number]
    if len(listed) == members == 1 and listed[0].host:
        return f"process {listed[0].pid} on {listed[0].host}"
    return f"{counted(members, 'rank')} of communicator {one.name}"


def _alike(last: RasReport, topology: Topology) -> bool:
    """Whether all ranks of the job answered in one communicator, with equal counts and no other status than running."""
    if any(member.status is not RasStatus.RUNNING for one in last.communicators for member in one.members):
        return False
    whole = [one for one in last.communicators if one.size == topology.world_size]
    return any(not one.members or len(one.members) == one.size for one in whole)


def _all_launched(topology: Topology, look: Look) -> VerdictReason:
    inside = sorted({state.operation for state in look.values() if state.waits and state.operation})
    text = f"no rank stands out: by NCCL RAS all {topology.world_size} ranks launched the same operations"
    if inside and any(state.activity is Activity.COLLECTIVE for state in look.values()):
        text += f", and {inside[0]} does not complete: none left it out"
        text += ", so the fault is inside of it: in the network, a device, or the order of operations"
    return VerdictReason("ras-counts", text)
