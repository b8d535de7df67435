"""The checks that an agent runs, put together."""

from collections.abc import Callable, Mapping

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_scheduler import Checks
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.disk import Disks
from hangdog_agent.checks.gpus.gpu import Gpus
from hangdog_agent.checks.interfaces import Interfaces
from hangdog_agent.checks.kernel_log import Kernel
from hangdog_agent.checks.memory import MemoryCheck
from hangdog_agent.checks.network import Network
from hangdog_agent.checks.nfs import Nfs
from hangdog_agent.checks.pcie import Pcie
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.tcp import Tcp
from hangdog_models.ranks import Rank


def standard(
    settings: CheckSettings, places: CheckPaths, trainers: Callable[[], Mapping[int, Rank]] = dict
) -> tuple[Checks, Gpus]:
    """All checks of this machine, and that of its GPUs for whoever wants to know their power.

    `trainers` answers the ranks by their pid, whose connections and, beside our own, NFS mounts are looked at.
    """
    boot = places.boot()
    notes = Notes(places.state, boot)
    gpus = Gpus(settings, notes)
    kernel = Kernel(places, settings, notes, gpus.at)
    others = (
        Network(places, settings, notes),
        Interfaces(places, settings),
        Nfs(places, settings, trainers),
        Tcp(places, settings, trainers),
        Disks(places, settings, lambda: tuple(kernel.complaints)),
        MemoryCheck(places, settings),
        Pcie(places, settings, notes),
    )
    return Checks((kernel, gpus, *others), settings, boot), gpus
