"""The flight recorder of every rank of a simulated job: numbers and newest operations of each process group."""

from collections.abc import Iterable
from random import Random

from accuracy.simulator.experts import Experts
from accuracy.simulator.faults.scene import Scene
from accuracy.simulator.groups import Group
from accuracy.simulator.process import Item, Process
from accuracy.simulator.program import Code, Op
from hangdog_models.collectives import CollectiveRecord, RankCounters
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.flight_recorder import recent

#: Dumps are written within so many seconds of each other: all are asked for by one signal.
_SKEW_S = 0.05
#: How ProcessGroupNCCL and ProcessGroupGloo name their operations in the recorder.
_NAMES = {
    "all_gather_into_tensor": "_all_gather_base",
    "reduce_scatter_tensor": "_reduce_scatter_base",
    "all_to_all_single": "all_to_all",
    "barrier": "all_reduce_barrier",
    "gather_object": "gather",
}
#: Unix time at which the simulated part begins, in nanoseconds: any date will do.
_EPOCH_NS = 1_780_000_000_000_000_000
#: How far the clock of a machine may be from the right time, either way: NTP that lost its server drifts so far in weeks.
_CLOCK_S = 2.0
#: PyTorch's watchdog looks so often; of what ended since its last look no duration is known yet (kWatchdogThreadSleepMillis).
_WATCHDOG_S = 0.1
#: An event and the kernel beside it are so far apart at most.
_EVENT_S = 2e-5


def counters(scene: Scene, rng: Random, steps_before: int, missing: float) -> tuple[RankCounters, ...]:
    """The records of all processes that can still write one at the last look, but for a share that is missing.

    A stopped, dead or frozen process writes none; one that waits for a lock or a disk does, from a thread of C++.
    """
    skew = {machine: rng.uniform(0.0, _SKEW_S) for machine in scene.job.topology.machines}
    clocks, experts = Random(f"{scene.salt} clocks"), Experts(scene.salt)
    ahead = {machine: clocks.uniform(-_CLOCK_S, _CLOCK_S) for machine in scene.job.topology.machines}
    records = []
    for process in scene.processes:
        rank = process.rank
        if rng.random() < missing or rank in scene.gone or rank in scene.stopped:
            continue
        if rank in scene.stalls and scene.stalls[rank].name == "store":
            continue
        time = scene.instant(scene.looks[-1], skew[scene.machine(rank)])
        watch = Watch(time - clocks.uniform(0.0, _WATCHDOG_S), ahead[scene.machine(rank)], clocks)
        records.append(_record(scene, process, time, steps_before, watch, experts))
    return tuple(records)


class Watch:
    """What tells a process the time: its host's clock, `ahead` seconds wrong, and its watchdog, which `looked` last then."""

    def __init__(self, looked: float, ahead: float, rng: Random) -> None:
        self._looked, self._ahead, self._rng = looked, ahead, rng

    def created_ns(self, item: Item) -> int:
        return _EPOCH_NS + int((item.launched + self._ahead) * 1e9)

    def took_ns(self, item: Item) -> int:
        """What the events around an operation on the device measure, 0 where the watchdog has not seen it end."""
        done = item.done()
        if item.start is None or done is None or done > self._looked:
            return 0
        return int((done - item.start + self._rng.uniform(0.0, _EVENT_S)) * 1e9)


def _record(
    scene: Scene, process: Process, time: float, steps_before: int, watch: Watch, experts: Experts
) -> RankCounters:
    enqueued: dict[str, int] = {}
    started: dict[str, int] = {}
    completed: dict[str, int] = {}
    entries: list[CollectiveRecord] = []
    gloo, old = scene.job.gloo, scene.job.old_batches
    for slot, group in process.groups.items():
        if group.slot != slot:
            continue  # a group that serves as two has one numbering
        log = [item for item in process.log.get(slot, ()) if item.launched <= time]
        base = before(process, scene.marks[process.rank], slot, old) * steps_before
        number, p2p = base, before(process, scene.marks[process.rank], slot, old, p2p=True) * steps_before
        if not log and not base and not p2p:
            continue
        name = group.name
        enqueued[name] = started[name] = completed[name] = base or -1
        for item in log:
            done, begun = _over(item, time, process), item.start is not None and item.start <= time
            collective = item.op.code is Code.COLLECTIVE or (old and not _single(item.op))
            number, p2p = (number + 1, p2p) if collective else (number, p2p + 1)
            if collective:
                enqueued[name] = number
                if begun:
                    started[name] = number
                if done and completed[name] == max(number - 1, base or -1):
                    completed[name] = number
            entries.extend(
                _entries(
                    item, name, number if collective else p2p, collective, begun, done, gloo, process, watch, experts
                )
            )
    if gloo:
        started = {}  # gloo's recorder knows no beginnings
    entries.sort(key=lambda entry: entry.created_ns)
    used = [group for group in process.groups.values() if group.name in enqueued]
    members = {} if gloo else {group.name: group.ranks for group in used}
    return RankCounters(
        Rank(process.rank), enqueued, completed, recent(entries), members,
        {group.name: group.description for group in used}, started,
    )  # fmt: skip


def before(process: Process, marks: tuple[int, ...], slot: str, old: bool, *, p2p: bool = False) -> int:
    """Operations of one step on a group that its numbering counts. A batch of sends counts as a collective before
    torch 2.7 (startCoalescing adds to the collective number), which is why stages of a pipeline differ there."""
    ops: Iterable[Op] = process.usual[marks[0] : marks[1]] if len(marks) > 1 else ()
    mine = [op for op in ops if op.slot in process.groups and process.groups[op.slot].slot == slot]
    single = sum(op.code is Code.P2P and _single(op) for op in mine)
    batches = sum(op.code is Code.P2P for op in mine) - single
    if p2p:
        return single + (0 if old else batches)
    return sum(op.code is Code.COLLECTIVE for op in mine) + (batches if old else 0)


def _single(op: Op) -> bool:
    """A send or receive of its own, with a communicator for the pair, as Megatron's overlapped pipeline uses."""
    return len(op.peers) == 1 and op.peers[0][2] != ""


def _over(item: Item, time: float, process: Process) -> bool:
    done = item.done()
    return done is not None and done <= time and done <= process.device_stop


def _entries(
    item: Item,
    group: str,
    number: int,
    collective: bool,
    begun: bool,
    done: bool,
    gloo: bool,
    process: Process,
    watch: Watch,
    experts: Experts,
) -> Iterable[CollectiveRecord]:
    op, backend = item.op, "gloo" if gloo else "nccl"
    created, took = watch.created_ns(item), watch.took_ns(item) if done and not gloo else 0
    started = None if gloo else begun
    single = _single(op)
    for at, (offset, send, _) in enumerate(op.peers):
        # Inside a batch sends and receives are recorded without state: only the batch itself knows when it runs
        # (ProcessGroupNCCL::pointToPoint passes no events to the recorder while it coalesces).
        me = process.groups[op.slot].index[process.rank]
        peer = (me + offset) % len(process.groups[op.slot].ranks)
        way = f"send {me}->{peer}" if send else f"recv {me}<-{peer}"
        yield CollectiveRecord(
            group, 0 if collective else number, f"{backend}:{way}", done and single, ((op.size,),), (op.dtype,), True,
            started if single else None, ((op.size,),), created + at, took if single else 0,
        )  # fmt: skip
    if op.peers:
        if not single:
            yield CollectiveRecord(
                group,
                number,
                f"{backend}:coalesced",
                done,
                (),
                (),
                not collective,
                started,
                (),
                created + len(op.peers),
                took,
            )
    else:
        taken, given = _sizes(op, process.groups[op.slot], process.rank, number, experts)
        yield CollectiveRecord(
            group, number, f"{backend}:{_NAMES.get(op.kind, op.kind)}", done, ((taken,),), (op.dtype,), False, started,
            ((given,),), created, took,
        )  # fmt: skip


def _sizes(op: Op, group: Group, rank: int, number: int, experts: Experts) -> tuple[int, int]:
    """Elements that a member gives and gets. What experts send back is what they got in the operation before."""
    size = len(group.ranks)
    taken = op.size * size if op.kind.startswith("reduce_scatter") else op.size
    given = op.size * size if op.kind.startswith("all_gather") else op.size
    if op.sends:
        taken = experts.elements(group, group.index[rank], number - 1, op.sends)
    elif op.gets:
        given = experts.elements(group, group.index[rank], number, op.gets)
    return taken, given
