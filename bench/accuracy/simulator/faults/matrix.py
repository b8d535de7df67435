"""The fault matrix (field.md section 12): every fault of the benchmark by name."""

from accuracy.simulator.faults import hosts, living, phases, physical, services, software
from accuracy.simulator.faults.scene import Fault
from accuracy.simulator.faults.stalls import HOST
from accuracy.simulator.phases.duties import DUTIES
from accuracy.simulator.phases.together import TOGETHER
from hangdog_models.verdict import Kind

_MACHINE = (Kind.MACHINE,)
#: What is inside one machine and shows only in operations that do not complete may be named by machine or by group.
_NARROW = (Kind.MACHINE, Kind.GROUP)
#: Who holds the job up is known, and why is not: an evaluation, a loop that does not end, a server that does not answer.
_OWN_WORK = (Kind.SOFTWARE, Kind.DEPENDENCY, Kind.SLOW, Kind.MACHINE, Kind.UNDETERMINED)
_SOFTWARE, _SERVICE, _NONE = (Kind.SOFTWARE,), (Kind.DEPENDENCY,), (Kind.NONE, Kind.UNDETERMINED)
#: A phase that takes long may be told as such, as of recorded frameworks: whoever is at it holds the job up for that time.
_PHASE = (*_NONE, Kind.SLOW)
#: Long phases: the job is healthy, or one rank never comes back from its duty.
PHASES = {
    fault.name: fault
    for fault in (
        *(
            Fault(
                one.name,
                "healthy",
                (*_NONE, Kind.DEPENDENCY) if one.service else _NONE,
                phases.healthy(one),
                steps=("train",) * (phases.TRAINED + phases.GOES_ON - 2),
                faults=0,
            )
            for one in (*DUTIES, *TOGETHER)
        ),
        *(
            Fault(f"stuck {one.name}", "own work", _OWN_WORK, phases.stuck(one), steps=("train",))
            for one in DUTIES
            if one.stuck
        ),
    )
}

MATRIX = {
    fault.name: fault
    for fault in (
        *(
            Fault(
                name,
                "own work" if what.own_work else "host",
                _OWN_WORK if what.own_work else _MACHINE,
                hosts.stall(name),
                steps=("save",) if what.anchor == "save" else (),
            )
            for name, what in HOST.items()
        ),
        Fault("stopped process", "host", _MACHINE, hosts.stop),
        Fault("dead process", "own work", _OWN_WORK, hosts.die),
        Fault("frozen machine", "host", _MACHINE, hosts.freeze),
        Fault("device hang", "device", _NARROW, physical.device_hang, gloo=False),
        Fault("nvlink", "device", _NARROW, physical.nvlink, gloo=False),
        Fault("link", "link", (Kind.GROUP,), physical.link, gloo=False),
        Fault("nic", "link", _NARROW, physical.nic, gloo=False),
        Fault("switch", "link", (Kind.GROUP,), physical.switch, gloo=False),
        Fault("size mismatch", "software", _SOFTWARE, software.size, faults=1),
        Fault("dtype mismatch", "software", _SOFTWARE, software.dtype),
        Fault("other collective", "software", _SOFTWARE, software.kind),
        Fault("skipped collective", "software", _SOFTWARE, software.skipped),
        Fault("extra barrier", "software", _SOFTWARE, software.extra),
        Fault("crossed order", "software", _SOFTWARE, software.crossed, gloo=False),
        Fault("uneven data", "software", _SOFTWARE, software.uneven),
        Fault("storage storm", "dependency", _SERVICE, services.outage("storage storm", (0.2, 0.9)), steps=("save",)),
        Fault("data service", "dependency", _SERVICE, services.outage("data service", (0.4, 1.0))),
        Fault("name service", "dependency", _SERVICE, services.outage("name service", (0.4, 1.0))),
        Fault("store", "dependency", _SERVICE, services.store),
        Fault("healthy training", "healthy", _NONE, living.healthy, faults=0),
        Fault("healthy evaluation", "healthy", _PHASE, living.healthy, steps=("eval", "eval"), faults=0),
        Fault("healthy checkpoint", "healthy", (*_PHASE, Kind.DEPENDENCY), living.healthy, steps=("save",), faults=0),
        Fault("healthy start", "healthy", _PHASE, living.healthy, steps=("start",), faults=0),
        Fault("slow device", "slow", (Kind.SLOW,), living.slow_device),
        Fault("slow machine", "slow", (Kind.SLOW,), living.slow_machine),
        Fault("two hosts", "two", _MACHINE, hosts.two, faults=2),
    )
} | PHASES
#: What stands beside the matrix: judged where it is asked for by name, and in no set.
BESIDE = {
    fault.name: fault
    for fault in (
        Fault("longer samples", "healthy", (Kind.SOFTWARE, *_NONE), living.longer_samples, faults=0),
    )
}  # fmt: skip
