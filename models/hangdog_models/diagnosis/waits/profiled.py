"""Counters by NCCL's profiler, and which source counts where the flight recorder has counters as well."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hangdog_models.collectives import BY_HOSTS, EXCHANGE, FLIGHT_RECORDER, PROFILER, CollectiveRecord, RankCounters
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.progress.collective_progress import CollectiveProgress, NcclCall, Operation, Phase, RankProgress
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.topology import WORLD, Topology
from hangdog_models.verdict import Activity

#: States of a process that neither runs nor waits.
_GONE = (Activity.STOPPED, Activity.DEAD)
RING_MOMENT_S = likelihood("ring_moment_s")
#: How PyTorch writes the operations of NCCL's groups.
_NCCL = "nccl:"
#: Backends whose operations hosts carry out. `hangdog.trace()` writes them where NCCL has its algorithm.
_HOSTS = {"gloo", "mpi", "ucc"}
#: NCCL's names of operations as PyTorch writes them.
_SNAKE = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter", "Broadcast": "broadcast",
    "Reduce": "reduce", "AlltoAll": "all_to_all", "AllToAll": "all_to_all", "Gather": "gather", "Scatter": "scatter",
    "Send": "send", "Recv": "recv",
}  # fmt: skip


class Member(NamedTuple):
    """One rank of a communicator; `kernels`: NCCL records the kernels of its process."""

    rank: Rank
    progress: CollectiveProgress
    kernels: bool


class Profiled(NamedTuple):
    """Counters of the ranks that have a ring.

    `doubtful`: a communicator with operations under way is left out, for its members are not all known or not all
    counted. `libraries`: whose operations the rings hold, as prefixes of recorded operations.
    """

    records: tuple[RankCounters, ...] = ()
    doubtful: bool = False
    libraries: frozenset[str] = frozenset({_NCCL})


def moved(rings: Sequence[RankProgress]) -> tuple[Rank, ...]:
    """The ranks on which an operation has just moved."""
    return tuple(sorted(ring.rank for ring in rings if any(map(_moves, ring.communicators))))


def count(rings: Sequence[RankProgress], look: Look, topology: Topology) -> Profiled:
    """The counters of all communicators that are stalled or idle.

    A communicator in which an operation has just moved, on any rank, is at work and left out. Its members differ by
    what happened between the readings of their rings. A dead or stopped process is inside no operation, whatever its
    ring shows: it is a member that has not come.
    """
    gone = {rank for rank, state in look.items() if state.activity in _GONE}
    communicators: dict[int, dict[int, list[Member]]] = {}
    for ring in rings:
        kernels = any(one.started for one in ring.communicators)
        for one in ring.communicators:
            if one.ranks > 1:
                numbered = communicators.setdefault(one.communicator, {})
                numbered.setdefault(one.rank, []).append(Member(ring.rank, one, kernels))
    with_ring = {ring.rank for ring in rings} - gone
    groups: dict[Rank, list[tuple[str, tuple[Rank, ...], Member, bool]]] = {rank: [] for rank in with_ring}
    doubtful = False
    for number, found in communicators.items():
        here = [member for members in found.values() for member in members if member.rank not in gone]
        if all(member.progress.ended for member in here):
            continue
        ranks = _members(found, topology)
        lacking = ranks is not None and any(rank in with_ring for rank in set(ranks).difference(m.rank for m in here))
        if ranks is None or lacking or any(_uncountable(member.progress) for member in here):
            doubtful = doubtful or any(_under_way(member.progress) for member in here)
        elif not any(_moves(member.progress) for member in here):
            begun = any(member.progress.started for member in here)
            for member in here:
                groups[member.rank].append((f"{number:016x}", ranks, member, begun))
    records = tuple(_record(rank, groups[rank]) for rank in sorted(groups))
    calls = [one.last for ring in rings for one in ring.communicators if one.last is not None]
    return Profiled(records, doubtful, frozenset(map(_library, calls)) or Profiled().libraries)


def believed(records: Sequence[RankCounters], profiled: Profiled) -> list[RankCounters]:
    """The counters to trust, each operation by one source only: two would count as two faults.

    The rings win. They are read without a request, all at one moment, and show what the device has begun. The flight
    recorders win if they cover more ranks, or if a communicator was left out of the rings. The recorders' groups of
    libraries that no ring holds, such as gloo, are kept in any case.
    """
    with_ring = {record.rank for record in profiled.records}
    recorded = {record.rank for record in records if record.source == FLIGHT_RECORDER}
    if not with_ring or (recorded - with_ring and len(recorded) > len(with_ring)) or (recorded and profiled.doubtful):
        return list(records)
    rings = {record.rank: record for record in profiled.records}
    for other in (_without(record, profiled.libraries) for record in records):
        rings[other.rank] = _joined(rings[other.rank], other) if other.rank in rings else other
    return [rings[rank] for rank in sorted(rings)]


def _members(found: Mapping[int, Sequence[Member]], topology: Topology) -> tuple[Rank, ...] | None:
    """The members of a communicator by their numbers in it: by their rings, else by the job's layout; None if unknown."""
    sizes = {member.progress.ranks for members in found.values() for member in members}
    known = {number: members[0].rank for number, members in found.items()}
    if len(sizes) > 1 or any(len(members) > 1 for members in found.values()) or len(set(known.values())) < len(known):
        return None
    size = sizes.pop()
    if len(known) == size:
        return tuple(known[number] for number in range(size))
    for dim in (WORLD, *topology.dims):
        ranks = topology.group(dim, next(iter(known.values())))
        if ranks is not None and len(ranks) == size and all(ranks[number] == rank for number, rank in known.items()):
            return tuple(ranks)
    return None


def _uncountable(one: CollectiveProgress) -> bool:
    """Whether its numbers do not show what is under way: it was aborted, or operations did not fit into the ring."""
    return one.ended or (one.left_out > 0 and (not one.in_flight or one.point_to_points > 0))


def _under_way(one: CollectiveProgress) -> list[Operation]:
    """What the host has launched and the device has not finished, oldest first."""
    under_way = [each for each in one.in_flight if each.phase in (Phase.LAUNCHED, Phase.RUNNING)]
    return sorted(under_way, key=lambda each: each.order)


def _moves(one: CollectiveProgress) -> bool:
    """Whether its oldest operation has just moved. What is launched after it does not count."""
    return any(each.idle_s < RING_MOMENT_S for each in _under_way(one)[:1])


def _record(rank: Rank, groups: Iterable[tuple[str, tuple[Rank, ...], Member, bool]]) -> RankCounters:
    enqueued: dict[str, int] = {}
    started: dict[str, int] = {}
    completed: dict[str, int] = {}
    members: dict[str, tuple[Rank, ...]] = {}
    entries: list[tuple[float, CollectiveRecord]] = []
    for name, ranks, member, begun in groups:
        one, known = member.progress, member.kernels and begun
        numbers = _numbers(one)
        waiting = [numbers[each.order] for each in _under_way(one) if each.call.collective]
        running = [
            numbers[each.order] for each in one.in_flight if each.call.collective and each.phase is Phase.RUNNING
        ]
        members[name] = ranks
        enqueued[name] = one.collectives - 1 - sum(_unlaunched(each) for each in one.in_flight)
        if known:
            completed[name] = min(waiting) - 1 if waiting else enqueued[name]
            started[name] = max(running, default=completed[name])
        if one.last is not None and _library(one.last) == BY_HOSTS and not one.in_flight:
            entries.append((0.0, _last(name, one.last, enqueued[name])))
        exchange = _is_exchange(one)
        for each in _under_way(one):
            entries.append((each.age_s, _entry(name, one, each, numbers[each.order], known, exchange)))
    entries.sort(key=lambda entry: -entry[0])
    return RankCounters(rank, enqueued, completed, tuple(e for _, e in entries), members, {}, started, PROFILER)


def _numbers(one: CollectiveProgress) -> dict[int, int]:
    """The number of each operation in flight: a collective's among those of its communicator, from 0."""
    orders = {each.order: each.order for each in one.in_flight}
    if not one.point_to_points:
        return orders
    collectives = sorted(each.order for each in one.in_flight if each.call.collective)
    first = one.collectives - len(collectives)
    return orders | {order: first + at for at, order in enumerate(collectives)}


def _library(call: NcclCall) -> str:
    return BY_HOSTS if call.algorithm in _HOSTS else _NCCL


def _unlaunched(operation: Operation) -> bool:
    """Whether the host is about to launch this collective: it is not yet where its peers wait for it."""
    return operation.call.collective and operation.phase is Phase.ENQUEUED


def _is_exchange(one: CollectiveProgress) -> bool:
    """Whether its sends and receives under way are an all-to-all, which NCCL makes of both for each member."""
    others = set(range(one.ranks)) - {one.rank}
    calls = [each.call for each in _under_way(one) if not each.call.collective]
    ways = ("Send", "Recv")
    return one.ranks > 2 and all(others <= {call.peer for call in calls if call.function == way} for way in ways)


def _entry(
    name: str, one: CollectiveProgress, operation: Operation, number: int, known: bool, exchange: bool
) -> CollectiveRecord:
    call = operation.call
    library = _library(call)
    called = library + _SNAKE.get(call.function, call.function.lower())
    if not call.collective:
        arrow = "<-" if call.function == "Recv" else "->"
        called = f"{library + EXCHANGE if exchange else called} {one.rank}{arrow}{call.peer}"
    return CollectiveRecord(
        name, number, called, False, input_sizes=((call.count,),), dtypes=(call.datatype,),
        p2p=not call.collective, started=operation.phase is Phase.RUNNING if known else None, transfers=operation.transfers,
    )  # fmt: skip


def _last(name: str, call: NcclCall, number: int) -> CollectiveRecord:
    """What hosts carried out last: it shows that no device is waited for, where nothing is under way."""
    called = BY_HOSTS + _SNAKE.get(call.function, call.function.lower())
    return CollectiveRecord(name, number, called, True, p2p=not call.collective, started=True)


def _without(record: RankCounters, libraries: frozenset[str]) -> RankCounters:
    """A record without the groups of these libraries, and without those not known to be another library's."""
    theirs = tuple(libraries)
    others = {e.group for e in record.entries if not e.operation.startswith(theirs)}
    others -= {e.group for e in record.entries if e.operation.startswith(theirs)}

    def kept(counts: Mapping[str, int]) -> dict[str, int]:
        return {group: number for group, number in counts.items() if group in others}

    return replace(
        record,
        enqueued=kept(record.enqueued), completed=kept(record.completed), started=kept(record.started),
        entries=tuple(entry for entry in record.entries if entry.group in others),
    )  # fmt: skip


def _joined(ring: RankCounters, other: RankCounters) -> RankCounters:
    """The counters of one rank: those of its ring, and another library's groups."""
    return replace(
        ring,
        enqueued=ring.enqueued | other.enqueued, completed=ring.completed | other.completed,
        started=ring.started | other.started, entries=ring.entries + other.entries,
        members=other.members | ring.members, descriptions=other.descriptions,
    )  # fmt: skip
