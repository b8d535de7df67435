"""What NCCL RAS reports of a simulated job: launches of every member of every communicator, and whom it cannot reach."""

from accuracy.simulator.faults.scene import Scene
from accuracy.simulator.groups import Group
from accuracy.simulator.kernel import pid_of
from accuracy.simulator.process import Process
from accuracy.simulator.program import Code
from hangdog_models.collectives import RasCommunicator, RasMember, RasReport, RasStatus
from hangdog_models.ranks import Rank
from hangdog_models.stack import Reason

#: The five kinds that RAS counts, by our names: sends, receives and what is made of them are not counted.
KINDS = {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_gather_into_tensor": "AllGather",
    "all_gather": "AllGather",
    "reduce_scatter_tensor": "ReduceScatter",
    "all_reduce": "AllReduce",
    "barrier": "AllReduce",
}


def report(scene: Scene, steps_before: int) -> RasReport:
    """The report at the last look. A process that is gone for a while is dead, a stopped one does not answer either."""
    time = scene.instant(scene.looks[-1])
    groups = {id(group): group for process in scene.processes for group in process.groups.values()}
    members: dict[int, list[RasMember]] = {key: [] for key in groups}
    lost = []
    for process in scene.processes:
        status = _status(scene, process)
        if status is not RasStatus.RUNNING:
            lost.append(_member(scene, process, process.rank, status, {}))
        for slot, group in process.groups.items():
            if group.slot != slot and slot != "dp":
                continue
            counts = (
                {} if status is not RasStatus.RUNNING else _launched(scene, process, slot, group, time, steps_before)
            )
            members[id(group)].append(_member(scene, process, group.index[process.rank], status, counts))
    communicators = [
        RasCommunicator(f"{0xAE94423CFBB2EF4A + int(group.name):#x}", len(group.ranks), tuple(_once(members[key])))
        for key, group in groups.items()
        if _used(scene, group)
    ]
    return RasReport(tuple(communicators), tuple(lost))


def _used(scene: Scene, group: Group) -> bool:
    """NCCL makes a communicator at the first operation."""
    first = scene.processes[group.ranks[0]]
    return any(op.slot in first.groups and first.groups[op.slot] is group for op in first.ops if op.slot)


def _once(members: list[RasMember]) -> list[RasMember]:
    """A group that serves as two (the world as data-parallel group) has one communicator and one count."""
    found: dict[int, RasMember] = {}
    for member in members:
        found.setdefault(member.number, member)
    return [found[number] for number in sorted(found)]


def _status(scene: Scene, process: Process) -> RasStatus:
    if process.rank in scene.gone:
        # An exit is declared dead at 60 s, a freeze at 80 s (real-stacks.md section 6.4); looks come later than that.
        return RasStatus.DEAD if scene.gone[process.rank] in (Reason.EXITED, Reason.ZOMBIE) else RasStatus.UNRESPONSIVE
    return RasStatus.UNRESPONSIVE if process.rank in scene.stopped else RasStatus.RUNNING


def _member(scene: Scene, process: Process, number: int, status: RasStatus, counts: dict[str, int]) -> RasMember:
    machine = scene.machine(process.rank)
    local = scene.job.topology.machines[machine].index(Rank(process.rank))
    return RasMember(number, status, machine, pid_of(process.rank), local, counts)


def _launched(
    scene: Scene, process: Process, slot: str, group: Group, time: float, steps_before: int
) -> dict[str, int]:
    counts = dict.fromkeys(("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"), 0)
    begins = scene.marks[process.rank]
    slots = [name for name, one in process.groups.items() if one is group]
    for op in process.usual[begins[0] : begins[1]] if len(begins) > 1 else ():
        if op.code is Code.COLLECTIVE and op.slot in slots and op.kind in KINDS:
            counts[KINDS[op.kind]] += steps_before
    for name in slots:
        for item in process.log.get(name, ()):
            if item.launched <= time and item.op.kind in KINDS:
                counts[KINDS[item.op.kind]] += 1
    return counts
