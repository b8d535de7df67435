"""What tells of this machine beside its processes: the kernel's log and nvidia-smi, as they print it."""

import shutil
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hangdog_agent.checks.kmsg import Kmsg
from hangdog_agent.confinement import confined_children
from hangdog_agent.confinement.confined_children import Child, ChildLimits
from hangdog_agent.confinement.subprocesses import run
from hangdog_models.reading.hardware import nvidia_smi

#: Records of the kernel's log that are kept, the newest: the ring holds some ten thousand.
_RECORDS = 20_000
#: Records that are read: a flood must not keep us.
_MOST_RECORDS = 200_000
#: It takes seconds a GPU where the driver is not kept loaded; a driver that hangs never answers.
_SMI_S = 20.0
_SMI_BYTES = 4 << 20
#: Never anywhere else on PATH: who calls us may be root.
_SMI_PATH = "/usr/bin:/bin:/usr/sbin:/usr/local/nvidia/bin"
#: There where the driver is loaded and may be asked. Without it what the tool prints tells nothing of the machine.
_DRIVER = Path("/dev/nvidiactl")


@dataclass(frozen=True, slots=True)
class MachineFile:
    """Text of a file below the machine's folder, or the reason that there is none; `name` is the file's."""

    name: str
    text: str = ""
    problem: str = ""


def machine_files() -> tuple[MachineFile, ...]:
    """Both, each within its own time."""
    return kernel_log(), gpu_query()


def kernel_log(path: Path = Path("/dev/kmsg")) -> MachineFile:
    """The newest lines of the kernel itself: what programs write into its log tells nothing of it, and may hold anything."""
    kmsg = Kmsg(path)
    if why := kmsg.open():
        return MachineFile("kernel.log", problem=f"kernel log: {why}")
    try:
        lines = deque(_lines(kmsg), maxlen=_RECORDS)
    finally:
        kmsg.close()
    return MachineFile("kernel.log", "\n".join((*lines, "")) if lines else "")


def _lines(kmsg: Kmsg) -> Iterator[str]:
    for record in kmsg.records(_MOST_RECORDS):
        if not record.facility:
            yield f"{record.level},{record.seq},{record.usec},-;{record.text}"


def gpu_query(path: str = _SMI_PATH, driver: Path = _DRIVER) -> MachineFile:
    """What `nvidia-smi -q` prints; nothing where no driver is loaded."""
    tool = shutil.which("nvidia-smi", path=path)
    if tool is None or not driver.exists():
        return MachineFile("nvidia-smi.txt")
    limits = Child(ChildLimits(address_bytes=0))  # it maps far more than it takes
    outcome = run(
        (tool, "-q"), _SMI_S, _SMI_BYTES, environ=confined_children.environment() | {"LC_ALL": "C"}, child=limits
    )
    text = outcome.stdout.decode("utf-8", "replace") + outcome.stderr
    if outcome.status is not None and nvidia_smi.recognises(text):
        return MachineFile("nvidia-smi.txt", text)
    why = outcome.why or f"exit status {outcome.status}, nothing that is known"
    return MachineFile("nvidia-smi.txt", problem=f"nvidia-smi -q: {why}")
