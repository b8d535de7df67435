"""The kernel logs of machines: what any machine's says, an old Xid here and there, and what a fault left in them."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.evidence.plan import Plan
from worlds.timed.incident import Incident
from worlds.timed.scenarios.hosts import TwoFaults
from worlds.timed.scenarios.scenario import STORAGE_CALLS, Scenario
from worlds.timed.scenarios.stuck import Stuck

#: The kernel tells of a task that has been blocked for so long.
_HUNG_TASK_S = 122.0
#: Lines that a machine may have from long ago, and that say nothing about now. A GPU that was lost comes back with a new start
#: of the machine only, which begins a new log.
_OLD = (
    "NVRM: Xid (PCI:{bus}): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
    "NVRM: Xid (PCI:{bus}): 31, pid={pid}, name=python, Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_5 faulted @ 0x7f4e_a2000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    "NVRM: Xid (PCI:{bus}): 43, pid={pid}, name=pt_main_thread, Ch 0000000e",
    "NVRM: Xid (PCI:{bus}): 94, pid={pid}, name=python, Contained: SM (0x1). RST: No, D-RST: No",
    "mlx5_core 0000:5e:00.0 ib2: Link down",
)
#: What the driver says of a device that hangs.
_HUNG_DEVICE = (
    "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "119, pid={pid}, name=pt_main_thread, Timeout after 45s of waiting for RPC response from GPU{gpu} GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080a0d5 0x4).",
    "48, pid={pid}, name=pt_main_thread, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physical address 0x5f1cb1000 partition 7, subpartition 1.",
    "74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    "109, pid={pid}, name=pt_main_thread, Ch 00000011, errorString CTX SWITCH TIMEOUT, Info 0x3c046",
)


class KernelLogs:
    """Writes kernel logs. `shows` are the machines whose log tells of their fault."""

    def __init__(self, incident: Incident, plan: Plan, rng: Random) -> None:
        self._incident, self._plan, self._rng = incident, plan, rng
        self._tells = rng.random() < 0.65
        self.shows: set[str] = set()

    def write(self, folder: Path, time: float, epoch: int) -> None:
        """Writes the logs of all machines, or of some."""
        machines = self._incident.layout.machines
        guilty = self._incident.scene.machines
        some = list(machines)
        if len(machines) > 4 and self._rng.random() < 0.4:
            some = self._rng.sample(machines, self._rng.choice((1, 2, 4)))
            some += guilty if len(guilty) <= 2 and self._rng.random() < 0.7 else ()
        old = self._rng.choice(sorted(some)) if self._rng.random() < 0.6 else ""
        for machine in sorted(set(some)):
            if machine in self._incident.engine.devices.frozen:
                continue
            rows = [*self._boot(), *(self._old() if machine == old else ())]
            if self._tells and machine in guilty:
                fresh = list(self._fault(machine, time))
                rows += fresh
                self.shows |= {machine} if fresh else set()
            place = (
                folder / f"machine-{machine}"
                if self._plan.folders == "machines"
                else folder / "kernel" / f"machine-{machine}"
            )
            place.mkdir(parents=True, exist_ok=True)
            lines = [f"[{_date(epoch + at):%a %b %e %H:%M:%S %Y}] {words}" for at, words in sorted(rows) if at <= time]
            (place / "dmesg.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _boot(self) -> Iterator[tuple[float, str]]:
        rng, boot = self._rng, -self._rng.uniform(3e5, 2e6)
        yield boot, f"Linux version 5.15.0-{rng.randint(90, 130)}-generic (buildd@lcy02-amd64-{rng.randint(1, 90):03})"
        yield boot + 9, "nvidia: loading out-of-tree module taints kernel."
        driver = rng.choice(("535.161.08", "550.90.07", "570.86.15"))
        yield boot + 11, f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {driver}"
        yield boot + 31, "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable plugged"
        yield boot + 33, "IPv6: ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready"
        fill = f"/run/log/journal has a fill level at 75.{rng.randint(0, 9)}"
        yield -rng.uniform(2000, 90000), f"systemd-journald[{rng.randint(600, 1400)}]: Data hash table of {fill}"
        if rng.random() < 0.3:
            slow = "perf: interrupt took too long (2513 > 2500), lowering kernel.perf_event_max_sample_rate to 79500"
            yield -rng.uniform(2000, 200000), slow

    def _old(self) -> Iterator[tuple[float, str]]:
        at, words = -self._rng.uniform(9e3, 2.5e5), self._rng.choice(_OLD)
        yield at, words.format(bus=self._bus(), pid=self._rng.randint(9000, 99999))
        if words.endswith("Link down"):
            yield at + 7, words.replace("down", "up")

    def _fault(self, machine: str, time: float) -> Iterator[tuple[float, str]]:
        scene = self._incident.scene
        parts: Sequence[Scenario] = scene.parts if isinstance(scene, TwoFaults) else [scene]
        part = next(part for part in parts if machine in part.machines)
        began = part.began()
        if began is None:
            return
        rank = next(rank for rank in part.ranks if self._incident.layout.machine(rank) == machine)
        match part.kind:
            case "hung-device":
                words = self._rng.choice(_HUNG_DEVICE)
                gpu = rank % self._incident.layout.per_machine
                line = words.format(pid=4000 + rank, gpu=gpu)
                yield began + self._rng.uniform(0.1, 4), f"NVRM: Xid (PCI:{self._bus()}): {line}"
            case "dead-nic":
                yield (
                    began + 0.3,
                    "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, High temperature",
                )
                yield began + 0.5, "mlx5_core 0000:5e:00.0 ib0: Link down"
                yield began + 1.1, "infiniband mlx5_0: Port 1 link state changed to DOWN"
            case "dead" | "out-of-memory":
                yield from self._killed(began, rank)
            case "blocked-in-kernel" | "storage-of-one" | "stuck-loader":
                yield from self._blocked(part, began, rank, time)

    def _killed(self, began: float, rank: Rank) -> Iterator[tuple[float, str]]:
        yield (
            began - 0.4,
            "python invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0",
        )
        kilobytes = self._rng.randint(90_000_000, 200_000_000)
        sizes = f"total-vm:{kilobytes}kB, anon-rss:{kilobytes // 2}kB, file-rss:0kB, shmem-rss:{kilobytes // 90}kB"
        yield (
            began - 0.2,
            f"Out of memory: Killed process {4000 + rank} (pt_main_thread) {sizes}, UID:1000 pgtables:{kilobytes // 300}kB oom_score_adj:0",
        )

    def _blocked(self, part: Scenario, began: float, rank: Rank, time: float) -> Iterator[tuple[float, str]]:
        if part.kind == "stuck-loader" and self._rng.random() < 0.6:
            return
        at = self._incident.seen(rank)
        call = at.wchan if at is not None and at.state == "D" else self._rng.choice(STORAGE_CALLS)
        if "nfs" in call or "rpc" in call:
            yield began + 31, f"nfs: server 10.2.0.{self._rng.randint(2, 60)} not responding, still trying"
        elif call == "request_wait_answer":
            yield began + 31, "fuse: connection to /mnt/fuse-data blocked: no reply from user daemon"
        else:
            yield began + 20, f"nvme nvme1: I/O {self._rng.randint(1, 900)} QID 7 timeout, aborting"
        if isinstance(part, Stuck) and time - began > _HUNG_TASK_S + 3:
            yield began + _HUNG_TASK_S, f"INFO: task pt_main_thread:{4000 + rank} blocked for more than 122 seconds."
            yield began + _HUNG_TASK_S + 0.1, "      Tainted: P           OE     5.15.0-113-generic #123-Ubuntu"

    def _bus(self) -> str:
        return self._rng.choice(("0000:1b:00", "0000:3a:00", "0000:9b:00", "0000:c1:00"))


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
