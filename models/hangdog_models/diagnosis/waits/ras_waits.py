"""Maps NCCL RAS reports to ranks: which launched fewer operations than their communicator, and which do not answer."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from hangdog_models.collectives import RasCommunicator, RasMember, RasReport, RasStatus
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look, Motion
from hangdog_models.diagnosis.waits import launches_behind
from hangdog_models.diagnosis.waits.collective_counters import BY_COUNTERS
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import TRAINER, Missing, Reason
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity

#: In one report of a sound job members may differ by one operation: 26 of 32 against 6 in NVIDIA's own example.
JITTER = 1
#: In a job of two ranks the one that is late is late alone, and the other waits for it.
PAIR = 2
#: The rule of the rank states made here.
BY_RAS = "NCCL RAS"

_LOST = {
    RasStatus.DEAD: Missing(Reason.EXITED, "NCCL RAS considers it dead"),
    RasStatus.UNRESPONSIVE: Missing(Reason.NO_AGENT, "it does not answer NCCL RAS"),
}


@dataclass(frozen=True, slots=True)
class RasWaits:
    """What NCCL RAS shows.

    - `holds`: which ranks lag behind in which communicator.
    - `answered`: the number of ranks that answer.
    - `states`: of ranks that do not answer, and of one whose device is behind its peers'.
    - `once`: who is late is known by one report, whose counts no second one shows to stand.
    """

    holds: tuple[GroupWait, ...] = ()
    states: Mapping[Rank, RankState] = field(default_factory=dict)
    answered: int = 0
    once: bool = False


def hear(
    snapshot: Snapshot, look: Look, topology: Topology, motion: Motion, counted: Container[str] = frozenset(),
    crowd: Container[Rank] = frozenset(),
) -> RasWaits:  # fmt: skip
    """The waits by the last report.

    Counts of a report are trusted if they differ by more than jitter. Else the report before must be equal, or the
    ranks must not have moved meanwhile.

    RAS counts launches, not completions, so it shows which ranks are late, and not which are inside. Equal counts
    exonerate no rank. A `counted` communicator is skipped: NCCL's profiler shows more of it. So are all of a report that
    cannot be right. Who is in the `crowd` counts as inside
    if its count is the highest and the ranks are known to stand.
    """
    if not snapshot.ras:
        return RasWaits()
    places = Places(snapshot, topology)
    last, before = (
        snapshot.ras[-1],
        {c.name: c for c in snapshot.ras[-2].communicators} if len(snapshot.ras) > 1 else {},
    )
    lags: list[_Lag] = []
    answered = 0
    lost: dict[Rank, RasMember] = {}
    for communicator in last.communicators:
        gone = [member for member in communicator.members if member.status in _LOST]
        answered = max(answered, communicator.size - len(gone))
        for member in gone:
            rank = places.rank(member, communicator)
            if rank is not None:
                lost[rank] = member
        frozen = before.get(communicator.name) == communicator
        known = communicator.name in counted or bool(last.impossible)
        lag = None if known else _lagging(communicator, frozen, places, topology, look, crowd if motion.lasting else ())
        if lag is not None and (lag.sure or _stood(lag, motion)):
            lags.append(lag)
    for member in last.lost:
        rank = places.rank(member, None)
        if rank is not None:
            lost.setdefault(rank, member)
    behind = launches_behind.find([lag.hold for lag in lags], look, topology, motion)
    holds = [lag.hold for lag in lags if lag.sure or behind or (len(lags) == 1 and _alone_outside(lag, look))]
    speaking = _answering(last)
    states = {
        rank: _silent(member.status, look.get(rank), (member.host or topology.machine(rank)) in speaking)
        for rank, member in lost.items()
    }
    for hold in holds:
        inside = RankState(Activity.COLLECTIVE, Wait.GROUP, operation=hold.what, rule=BY_COUNTERS)
        late = RankState(Activity.UNKNOWN, Wait.NONE, label="launched fewer operations", rule=BY_COUNTERS)
        for ranks, state in ((hold.inside, inside), (hold.awaited, late)):
            states.update({rank: state for rank in ranks if rank not in look and rank not in states})
    once = any(lag.hold in holds and not lag.frozen for lag in lags)
    return RasWaits(tuple(holds), {**states, **behind}, answered, once)


def _answering(report: RasReport) -> frozenset[str]:
    """The hosts that run more processes than do not answer, by what the whole report says of them."""
    gone: dict[str, set[int | None]] = {}
    speaking: set[str] = set()
    for member in (*report.lost, *(member for one in report.communicators for member in one.members)):
        if member.status in _LOST:
            gone.setdefault(member.host, set()).add(member.pid)
        else:
            speaking.add(member.host)
    usual = report.processes.get("", 0)
    more = {host for host, pids in gone.items() if report.processes.get(host, usual) > len(pids)}
    return frozenset(more | speaking)


def _alone_outside(lag: "_Lag", look: Look) -> bool:
    """Whether a single rank is outside of all waits.

    Other ranks that wait may be unable to launch what they have not launched.
    """
    state = look.get(lag.hold.awaited[0])
    outside = state is not None and bool(state.frames) and not state.waits
    return outside and len(lag.hold.inside) + 1 == len(lag.members)


def _silent(status: RasStatus, seen: RankState | None, beside: bool) -> RankState:
    """The state of a rank that RAS cannot reach. If its stack was captured all the same, the stack counts."""
    if seen is not None and (seen.frames or seen.activity in (Activity.DEAD, Activity.STOPPED)):
        return seen
    activity = Activity.DEAD if status is RasStatus.DEAD else Activity.MISSING
    missing = _LOST.get(status, _LOST[RasStatus.UNRESPONSIVE])
    return RankState(activity, Wait.NONE, rule=BY_RAS, missing=missing, beside=beside)


@dataclass(frozen=True, slots=True)
class _Lag:
    """Which of the `members` of a communicator launched less. `sure`: by more than jitter, or in two equal reports.

    `frozen`: two reports are equal.
    """

    hold: GroupWait
    members: tuple[Rank, ...]
    sure: bool
    frozen: bool


def _stood(lag: _Lag, motion: Motion) -> bool:
    """Whether the late ranks and most members were unchanged, and none moved: then the counts are still valid."""
    still = motion.still.intersection(lag.members)
    moved = not motion.moving.isdisjoint(lag.members) or not motion.travelling.isdisjoint(lag.members)
    return (
        motion.known and not moved and motion.still.issuperset(lag.hold.awaited) and 2 * len(still) > len(lag.members)
    )


def _lagging(
    communicator: RasCommunicator, frozen: bool, places: "Places", topology: Topology, look: Look,
    crowd: Container[Rank],
) -> _Lag | None:  # fmt: skip
    launched = [(member, sum(member.launched.values())) for member in communicator.members if member.launched]
    counts = sorted({*(count for _, count in launched), *(number for number, _ in communicator.classes)})
    if len(counts) < 2:
        return None
    pair = communicator.size == topology.world_size == PAIR
    if not pair and 2 * _in_front(communicator, counts[-1]) <= communicator.size:
        return None  # ranks that are late with most others are not late because of a machine
    ranks = {places.rank(member, communicator): count for member, count in launched}
    ranks.pop(None, None)
    late = tuple(sorted(rank for rank, count in ranks.items() if rank is not None and count < counts[-1]))
    members = _members(communicator, ranks, topology)
    inside = tuple(
        rank for rank in members if rank not in late and (rank not in look or rank in crowd or look[rank].waits)
    )
    if not late or not inside:
        return None
    dim = next((d for d in topology.dims if topology.group(d, inside[0]) == members), None)
    what = f"operation {counts[-1]} of communicator {communicator.name}"
    hold = GroupWait(dim or f"communicator {communicator.name}", inside, late, what, counted=True)
    return _Lag(hold, members, frozen or counts[-1] - counts[0] > JITTER, frozen)


def _in_front(communicator: RasCommunicator, most: int) -> int:
    """The number of members that launched the last operation, or may have by the time the others answered.

    A text report lists only the odd ones, and counts the rest in its classes.
    """
    if communicator.classes:
        return sum(members for count, members in communicator.classes if count >= most - JITTER)
    return sum(sum(member.launched.values()) >= most - JITTER for member in communicator.members if member.launched)


def _members(communicator: RasCommunicator, ranks: Mapping[Rank | None, int], topology: Topology) -> tuple[Rank, ...]:
    world = topology.groups[WORLD][0]
    if communicator.size == len(world):
        return world
    known = tuple(sorted(rank for rank in ranks if rank is not None))
    if len(known) == communicator.size or not known:
        return known
    fitting = [g for d in topology.dims if (g := topology.group(d, known[0])) and len(g) == communicator.size]
    return next((group for group in fitting if set(known) <= set(group)), known)


class Places:
    """The global rank of a communicator's member: by process, by device, or by number in the world's communicator."""

    def __init__(self, snapshot: Snapshot, topology: Topology) -> None:
        self._topology = topology
        self._by_pid: dict[tuple[str | None, int], Rank] = {}
        for round_ in snapshot.rounds:
            for trace in round_.traces:
                pid = trace.pid or (trace.state.pid if trace.state else None)
                if trace.role == TRAINER and pid:
                    self._by_pid[topology.machine(trace.rank), pid] = trace.rank
        #: By host, process and device, from the communicator of all ranks. Numbers in other communicators are local to
        #: them.
        self._by_process: dict[tuple[str, int | None, int | None], Rank] = {}
        for communicator in snapshot.ras[-1].communicators if snapshot.ras else ():
            if communicator.size == topology.world_size:
                for member in communicator.members:
                    if member.host and member.pid is not None and 0 <= member.number < communicator.size:
                        place = member.host, member.pid, member.device
                        self._by_process.setdefault(place, Rank(member.number))

    def rank(self, member: RasMember, communicator: RasCommunicator | None) -> Rank | None:
        host = member.host if member.host in self._topology.machines else None
        if host and member.pid is not None and (host, member.pid) in self._by_pid:
            return self._by_pid[host, member.pid]
        if communicator is not None and communicator.size == self._topology.world_size:
            return Rank(member.number) if 0 <= member.number < communicator.size else None
        of_world = self._by_process.get((member.host, member.pid, member.device))
        if of_world is not None:
            return of_world
        on = self._topology.machines[host] if host else ()
        if member.device is not None and 0 <= member.device < len(on):
            return on[member.device]
        return None
