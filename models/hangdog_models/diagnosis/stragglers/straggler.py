"""The one machine whose work takes longer than its peers' again and again, by the times of a flight recorder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.diagnosis.stragglers import launch_intervals, recorded_intervals, sample_lengths, waited_for
from hangdog_models.diagnosis.stragglers.fail_slow import STRAGGLER_PRIOR, Degrader, Slowness
from hangdog_models.diagnosis.stragglers.recorded_intervals import Excess
from hangdog_models.diagnosis.stragglers.sample_lengths import Samples
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, VerdictReason

LOST_TO_SOUND = likelihood("lost_to_sound")
LOST_TO_SOUND_HOSTS = likelihood("lost_to_sound_hosts")
ONE_TIME_MOST = likelihood("one_time_most")
REPEATED_MOST = likelihood("repeated_most")
TURN_OF_HOSTS_NS = likelihood("turn_of_hosts_ns")
LOST_AT_LEAST_NS = likelihood("lost_at_least_ns")
COVERED_SHARE = likelihood("covered_share")
LATE_ALIKE = likelihood("late_alike")
LATE_ON_DUTY = likelihood("late_on_duty")
LATE_UNTOLD = likelihood("late_untold")
#: Work counts as longer by ten times at most: a rank that the others only wait for has no factor.
LONGEST = 0.9
#: A rank was late if it came after its peers by this share of the time since the operation before.
LATE_BY = 0.05


@dataclass(frozen=True, slots=True)
class LatenessSum:
    """All spells of one rank in one group.

    - `share`: of their time, the part that it worked longer than its peers.
    - `repeated`: the number of spells of equal weight that make the sum; 1 where a single one makes it.
    - `late`: of `spells`, how many it came late in, by `late_ns` in all.
    """

    rank: Rank
    group: str
    share: float
    repeated: float
    late: int
    spells: int
    late_ns: int
    lost_ns: int
    span_ns: int


def find(records: Iterable[RankCounters], topology: Topology) -> Slowness | None:
    """The machine that slows the job down, with its probability; None where there is none, or several alike.

    It must work longer than its peers in every group that covers the time, again and again, and be waited for as long.
    No other machine may be half as late. A replica with longer samples makes all its machines late, and a stall is late
    once.

    Linear in the records.
    """
    records = sorted(records, key=lambda record: record.rank)
    spells, usual, turn_ns = list(recorded_intervals.excesses(records, topology)), LOST_TO_SOUND, 0.0
    if not spells:
        spells, usual, turn_ns = (
            list(launch_intervals.excesses(records, topology)),
            LOST_TO_SOUND_HOSTS,
            TURN_OF_HOSTS_NS,
        )
    tallies = {rank: _weighed(theirs) for rank, theirs in _by_rank(spells).items()}
    held_up = tallies
    if usual == LOST_TO_SOUND:
        waits = waited_for.shares(records, topology)
        held_up = {rank: replace(one, share=min(one.share, waits[rank])) for rank, one in tallies.items()}
    units = {rank: _unit(rank, topology) for rank in tallies}
    best: dict[str, LatenessSum] = {}
    for rank, counts in held_up.items():
        if units[rank] not in best or counts.share > best[units[rank]].share:
            best[units[rank]] = counts
    first, *others = sorted(best, key=lambda unit: (-best[unit].share, unit)) or [""]
    if not others or best[first].lost_ns < LOST_AT_LEAST_NS or best[first].late_ns < turn_ns * best[first].late:
        return None
    counts = best[first]
    # a replica with longer samples works longer in all its stages, and the others may wait for only one of them
    mates = sample_lengths.replica(counts.rank, topology)
    late = frozenset(
        rank for rank in tallies if (tallies if rank in mates else held_up)[rank].share > LATE_ALIKE * counts.share
    )
    together = any(units[rank] != first for rank in late)
    if together and not sample_lengths.one_replica(late, tallies, topology):
        return None
    ranks = tuple(sorted(late))
    times = min(counts.repeated, REPEATED_MOST) - 1
    odds = STRAGGLER_PRIOR * min(counts.share / usual, ONE_TIME_MOST) ** times
    load = sample_lengths.load(ranks, 1 / (1 - min(counts.share, LONGEST)), tallies, records, topology)
    most = inf
    if {Rank(0), Rank(topology.world_size - 1)}.issuperset(ranks):
        most = LATE_ON_DUTY
    if load.samples is Samples.UNTOLD:
        most = min(most, LATE_UNTOLD)
    odds = min(odds, most)
    kind = Kind.SOFTWARE if load.samples is Samples.MORE else Kind.SLOW
    degrader = Degrader(ranks, topology.machines_of(ranks), odds / (1 + odds), counts.late, counts.spells)
    reasons = (_reason(counts, topology.machine(counts.rank), ranks), *load.reasons)
    return Slowness(kind, (degrader,), 0, reasons, 1 / (1 + odds), surest=1 - 1 / (1 + most))


def _unit(rank: Rank, topology: Topology) -> str:
    """What is named as one: a machine, or a tensor group where machines are unknown, for it is kept inside one."""
    machine = topology.machine(rank)
    return machine if machine is not None else f"ranks from {(topology.group('tp', rank) or (rank,))[0]}"


def _by_rank(found: Iterable[Excess]) -> dict[Rank, dict[str, list[Excess]]]:
    """The spells of each rank by group. If it has peers on other machines, only comparisons with these count."""
    abroad: dict[Rank, dict[str, list[Excess]]] = {}
    at_home: dict[Rank, dict[str, list[Excess]]] = {}
    for one in found:
        (abroad if one.abroad else at_home).setdefault(one.rank, {}).setdefault(one.group, []).append(one)
    return at_home | abroad


def _weighed(by_group: dict[str, list[Excess]]) -> LatenessSum:
    """The result of the group that accuses the rank least, among those that cover the time.

    `repeated` is the highest of these groups.
    """
    tallies = [_lateness(spells) for spells in by_group.values()]
    longest = max(counts.span_ns for counts in tallies)
    relevant = [sums for sums in tallies if sums.span_ns >= COVERED_SHARE * longest]
    return replace(min(relevant, key=lambda sums: sums.share), repeated=max(sums.repeated for sums in relevant))


def _lateness(spells: Sequence[Excess]) -> LatenessSum:
    span = sum(one.span_ns for one in spells)
    lost = sum(one.own_ns for one in spells)
    late = [one.own_ns for one in spells if one.own_ns > LATE_BY * one.span_ns]
    longer = [float(max(0, one.own_ns)) for one in spells]
    squares = sum(own * own for own in longer)
    return LatenessSum(
        spells[0].rank, spells[0].group, min(1.0, lost / span), sum(longer) ** 2 / squares if squares else 0.0,
        len(late), len(spells), sum(late), lost, span,
    )  # fmt: skip


def _reason(counts: LatenessSum, machine: str | None, ranks: Sequence[Rank]) -> VerdictReason:
    who = f"rank {counts.rank}" if len(ranks) == 1 else f"rank {counts.rank}, like {ranks_of(ranks)},"
    on = "" if machine is None else f" on {machine}"
    text = (
        f"{who}{on} joined {counts.late} of {counts.spells} operations of process group {counts.group} late, on average "
        f"{counts.late_ns / max(1, counts.late) / 1e6:.0f} ms after the ranks that do the same work; "
        f"these waited for it {counts.share:.0%} of the time"
    )
    return VerdictReason("joins-late", text)
