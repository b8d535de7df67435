"""Tells programs that start ranks from the ranks themselves, by name and command line."""

import re
from collections.abc import Sequence

#: Scripts and modules of launchers, and our own: the rank they carry, if any, is a node's or a task's.
_LAUNCHERS = frozenset(
    (
        *("torchrun", "torch.distributed.run", "torch.distributed.launch", "torch.distributed.launcher"),
        *("accelerate", "accelerate-launch", "accelerate.commands.accelerate_cli", "accelerate.commands.launch"),
        # `ds` is the script behind the link `deepspeed`; launcher_helper waits for the rank that it starts under MPICH
        *("deepspeed", "deepspeed.pt", "ds", "deepspeed.launcher.runner"),
        *("deepspeed.launcher.launch", "deepspeed.launcher.launcher_helper"),
        *("horovodrun", "mpirun", "mpiexec", "ft_launcher", "ray"),
        *("fleetrun", "paddle.distributed.launch", "paddle.distributed.launch.main", "msrun"),
        *("hangdog", "hangdog-agent"),
    )
)
#: Modules of ours: an agent that a task of Slurm or a pod of ranks runs has their rank, and so have the helpers it starts.
_OURS = "hangdog_agent."
#: torch names the main thread of torchrun so; a launcher started from a notebook has no telling command line.
_ELASTIC_COMM = "pt_elastic"
#: Ray's own helpers: scripts of its package, which the `ray` command leaves behind, and what they call themselves later.
_OF_RAY = re.compile(
    r".*/ray/(_private/(log_monitor|runtime_env/agent/main)|autoscaler/_private/monitor|dashboard/(agent|dashboard))\.py"
    r"|ray-dashboard.*"
)
#: multiprocessing's own helpers: started by a launcher, they have its rank.
_TRACKERS = ("from multiprocessing.resource_tracker import", "from multiprocessing.semaphore_tracker import")
#: A script stands among the first arguments, after options such as `-u` and `-X dev`.
_FIRST = 4

#: Name of the daemon that starts Ray's workers; `ray.init()` starts one below the program that called it.
RAYLET = "raylet"


def launches(comm: str, arguments: Sequence[str]) -> bool:
    """Whether a Python process starts ranks, or serves those that do, and is none itself."""
    if comm == _ELASTIC_COMM or any(_OF_RAY.fullmatch(argument) for argument in arguments[:_FIRST]):
        return True
    rest = arguments[1:]
    for at, argument in enumerate(rest):
        if argument == "-m":
            return bool(rest[at + 1 :]) and (rest[at + 1] in _LAUNCHERS or rest[at + 1].startswith(_OURS))
        if argument == "-c":
            return any(program.startswith(_TRACKERS) for program in rest[at + 1 : at + 2])
        if not argument.startswith("-"):
            # the script, or the value of an option such as -X: then the next one is looked at
            if argument.rpartition("/")[2] in _LAUNCHERS:
                return True
            if argument.endswith(".py") or "/" in argument:
                return False
    return False
