"""Exact waits from collective counters: each group's stuck operation, the ranks inside, and those that have not come."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hangdog_models.collectives import BY_HOSTS, PROFILER, RankCounters
from hangdog_models.diagnosis.observe.activity import NO_RULE, RankState, spins
from hangdog_models.diagnosis.observe.call_site import of_standard_library
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.observe.silence import silent_ranks
from hangdog_models.diagnosis.waits import left_out
from hangdog_models.diagnosis.waits.group_holds import one_of_several, stuck
from hangdog_models.diagnosis.waits.laggards import freed, laggards, left_behind, without_doubtful
from hangdog_models.diagnosis.waits.lost_dumps import assumed_in_the_first, assumed_once
from hangdog_models.diagnosis.waits.positions import by_group, comparable
from hangdog_models.diagnosis.waits.stuck_transfers import narrowed
from hangdog_models.diagnosis.waits.transfers import transfers
from hangdog_models.diagnosis.waits.waits import OF_ALL, GroupWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.topology import Topology
from hangdog_models.verdict import Activity

#: Rules of the rank states made here.
BY_COUNTERS, BY_DEVICE, BY_COMPLETION = "counters", "device behind", "not complete"
#: The rule of a rank that waits at the very line of its peers, and lacks what they have called.
NOT_CALLED = "not called"
#: What a rank's host waits for if its device is behind and no collective is under way on it.
LAUNCHED_BEFORE = "what was launched before"
#: The same where it stands at the very line of those that have called it: it may have left the collective out as well.
LEFT_OUT = "what was launched before, unless it left a collective out"
#: The rules of ranks known by counters alone.
COUNTED = (BY_COUNTERS, BY_COMPLETION)
#: The text for a rank whose counters show it in no operation that others wait in.
OUTSIDE = "outside of any collective"


@dataclass(frozen=True, slots=True)
class CounterWaits:
    """What the counters show.

    - `holds`: one group wait for each operation that some rank is inside of.
    - `states`: of ranks without a stack, and of ranks whose device is behind what the host launched. For these,
      counters show more than the stack.
    """

    holds: tuple[GroupWait, ...] = ()
    states: Mapping[Rank, RankState] = field(default_factory=dict)


#: One rank without any evidence may be the culprit. Several were lost in collection, unless they exceed this share.
SEVERAL_ABSENT, FEW_ABSENT = 2, 0.1


def count(
    records: Sequence[RankCounters],
    look: Look,
    topology: Topology,
    crowd: Container[Rank] = frozenset(),
    getting_on: Container[Rank] = frozenset(),
    lasting: bool = False,
) -> CounterWaits:
    """Reads the counters of one moment.

    Launches run ahead of the device, so a group is stuck in the *oldest* operation that some rank has not completed
    (field.md 10.2). Inside are the ranks whose device has started it. Awaited are members that never launched it, and
    those whose device has not got there.

    Some recorders do not list a group's members (gloo's does not). Then the ranks that used the group count. For the
    group that all used, the ranks without a recorder count as well.

    A rank whose dump is missing and whose stack waits is assumed inside; so is one in the `crowd`. Unknown counters are
    no reason to blame it, unless no rank of its machine answers.

    `getting_on`: ranks whose host was seen at several call sites or lines. `lasting`: many looks, or a stated standstill, show the rest
    to stand where they are.
    """
    if not records:
        return CounterWaits((), {})
    holds: list[GroupWait] = []
    behind: dict[Rank, str] = {}
    recorded = {record.rank for record in records}
    silent = silent_ranks(look, topology)
    absent = [Rank(rank) for rank in range(topology.world_size) if rank not in look and rank not in recorded]
    unrecorded = {
        rank
        for rank, state in look.items()
        if rank not in recorded and rank not in silent and (rank in crowd or _lost(state))
    }
    unrecorded.update(absent if SEVERAL_ABSENT <= len(absent) <= FEW_ABSENT * topology.world_size else ())
    groups = {group: comparable(positions) for group, positions in by_group(records).items()}
    for group, positions in sorted(groups.items()):
        if any(position.completed < position.enqueued for position in positions.values()):
            whole = one_of_several(group, groups, topology, frozenset(absent))
            found, late = stuck(group, positions, unrecorded, look, topology, whole)
            holds += found
            behind.update(late)
    holds = assumed_once(holds, recorded)
    pairs, late = transfers(records, joined=any(hold.joined for hold in holds))
    holds = [*assumed_in_the_first(holds, pairs, recorded), *pairs]
    behind.update(late)
    holds, hung = narrowed(holds, records, topology)
    left = left_behind(groups)
    by_the_program = {rank for one in left_out.find(holds, groups) for rank in (*one.ranks, *one.inside)}
    guilty = {rank for rank in laggards(holds, left) if rank not in look or look[rank].wait is Wait.SOME}
    guilty -= by_the_program  # no device is behind: one host skipped an operation, and the others wait for it there
    holds = without_doubtful(freed(holds, guilty), {record.rank: _turns(record) for record in records})
    inside = {rank: hold.what for hold in holds for rank in hold.inside}
    awaited = {rank: hold.what for hold in holds for rank in hold.awaited}
    let_alone = {rank for hold in holds if _meet(hold, look) for rank in hold.awaited}
    lines = {look[rank].frames for rank in inside if rank in look and rank not in awaited} - {()}
    states: dict[Rank, RankState] = {}
    for record in records:
        rank = record.rank
        seen = look.get(rank)
        if rank in inside:
            if seen is None:
                states[rank] = RankState(Activity.COLLECTIVE, Wait.GROUP, operation=inside[rank], rule=BY_COUNTERS)
        elif rank in guilty and rank in left:
            device = seen or RankState(Activity.DEVICE_SYNC, Wait.NONE)
            what = _oldest(record, left[rank])
            states[rank] = replace(
                device, activity=Activity.DEVICE_SYNC, wait=Wait.NONE, operation=what, rule=BY_COMPLETION
            )
        elif rank in awaited and rank not in hung and (what := _under_way(record)):
            if seen is None:
                states[rank] = RankState(Activity.COLLECTIVE, Wait.SOME, operation=what, rule=BY_COUNTERS)
        elif rank in awaited and (
            what := hung.get(rank)
            or behind.get(rank)
            or _own_device(record, seen, rank in crowd, rank in getting_on or rank in let_alone, lasting)
        ):
            device = seen or RankState(Activity.DEVICE_SYNC, Wait.NONE)
            if what == LAUNCHED_BEFORE and device.frames in lines:
                what = LEFT_OUT
            states[rank] = replace(
                device, activity=Activity.DEVICE_SYNC, wait=Wait.NONE, operation=what, rule=BY_DEVICE
            )
        elif rank in awaited and seen is not None and lasting and seen.waits and seen.frames in lines:
            # it may be late, or have left one out; whom its frames wait for is no news of either
            states[rank] = replace(seen, wait=Wait.NONE, operation=awaited[rank], rule=NOT_CALLED)
        elif seen is None:
            states[rank] = RankState(Activity.UNKNOWN, Wait.NONE, label=OUTSIDE, rule=BY_COUNTERS)
    return CounterWaits(tuple(holds), states)


def _oldest(record: RankCounters, left: Mapping[str, str]) -> str:
    """The operation launched first, of those not complete on a rank but complete on its peers."""
    launched = (entry.group for entry in record.entries if entry.group in left and not (entry.done or entry.p2p))
    return left[next(launched, min(left))]


def _turns(record: RankCounters) -> dict[str, int]:
    """The groups in which a rank has operations under way, in launch order of the oldest ones."""
    turns: dict[str, int] = {}
    for entry in record.entries:
        if not entry.done and not entry.p2p:
            turns.setdefault(entry.group, len(turns))
    return turns


def _lost(state: RankState) -> bool:
    """Whether its stack waits. A rank that could not be read may be the one that has not come."""
    return state.waits


def _under_way(record: RankCounters) -> str:
    """The operation that its device is in with others, such as a message whose sender never came; empty where there is
    none.

    What follows it does not show that its own device is at fault.
    """
    return next((entry.operation for entry in record.entries if entry.started and not entry.done), "")


def _meet(hold: GroupWait, look: Look) -> bool:
    """Whether most ranks inside came by a call that programs make for all ranks while one does its work."""
    called = sum(rank in look and look[rank].operation in OF_ALL for rank in hold.inside)
    return 2 * called > len(hold.inside)


def _own_device(record: RankCounters, seen: RankState | None, crowd: bool, at_work: bool, lasting: bool) -> str:
    """What the host waits for if it waits for its own device with no operation under way there; else empty.

    `at_work`: it is known to move on, or the others let it work. Then running in C shows no wait.
    """
    if record.source == PROFILER and _on_hosts(record):  # of a trainer that traces itself: it has no device
        return ""
    # a function that no rule knows may call NumPy as well as a device: that ends sooner
    calls = seen is not None and (lasting or seen.rule != NO_RULE)
    runs = seen is not None and not at_work and calls and spins_in_c(seen) and not _on_hosts(record)
    # asleep in a launch: the device's queue is full, and not of collectives
    launches = seen is not None and seen.activity is Activity.LAUNCH and seen.busy is False
    waits = crowd or runs or launches or (seen is not None and seen.wait is Wait.SOME)
    under_way = any(count > record.completed.get(group, -1) for group, count in record.enqueued.items())
    # NCCL always notes what has ended, and what has begun only if collectives are timed
    known = any(count >= 0 for counts in (record.started, record.completed) for count in counts.values())
    return LAUNCHED_BEFORE if waits and known and not under_way else ""


def _on_hosts(record: RankCounters) -> bool:
    """Whether hosts carry out all that it recorded: then nothing is known of a device, and a running rank may compute."""
    return bool(record.entries) and all(entry.operation.startswith(BY_HOSTS) for entry in record.entries)


def spins_in_c(state: RankState) -> bool:
    """Whether it runs in one call of C, as a wait for a device does.

    Modules of Python's own are excepted: hashing or compressing runs in one call of C as well.
    """
    return spins(state) and not _in_pythons_own(state)


def _in_pythons_own(state: RankState) -> bool:
    """Whether the innermost Python function is of the standard library, which uses no device."""
    innermost = next((frame for frame in reversed(state.frames) if not frame.native), None)
    return innermost is not None and of_standard_library(innermost)
