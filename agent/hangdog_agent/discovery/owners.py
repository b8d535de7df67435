"""Reads whose a process is from the kernel: its user and its control group, which it cannot choose; never its environment."""

import re

from hangdog_agent.discovery.container import CONTAINER, POD
from hangdog_agent.procfs import Proc
from hangdog_models.owner import UNKNOWN, Owner, owner_of

#: Where slurmd keeps its jobs: below a folder that only root can make. A user may well make a folder `job_7` below their own,
#: so the path has to begin with Slurm's. Seen from a control group namespace the path begins with `/..`.
_SLURM = re.compile(
    r"^\d{1,4}:[^:\n]*:(?:/\.\.)*/(?:slurm[^/\n]*/uid_\d+|(?:system\.slice/)?(?:[^/\n]+_)?slurmstepd\.scope)/job_(\d{1,10})(?:/|$)",
    re.MULTILINE,
)
#: Where users may make folders as they like, also such as kubelet makes.
_USERS = re.compile(r"^\d{1,4}:[^:\n]*:(?:/\.\.)*/user\.slice(?:/|$)", re.MULTILINE)
#: The real user: a program with the set-user-id bit runs for whoever called it. The kernel escapes line ends in a name.
_USER = re.compile(r"^Uid:\s+(\d{1,10})\s", re.MULTILINE)
#: As much of a control group as is looked at: the kernel's longest path is 4 KiB, one for each of a dozen hierarchies.
_MOST = 64 << 10


def owner(proc: Proc, pid: int) -> tuple[Owner, str]:
    """Whose a process is, and the pod (by its UID) or container that it runs in (empty: none); UNKNOWN when it is gone."""
    user = _USER.search(proc.setting(f"{pid}/status") or "")
    groups = (proc.setting(f"{pid}/cgroup") or "")[:_MOST]
    if user is None:
        return UNKNOWN, ""
    job, inner = _SLURM.search(groups), CONTAINER.search(groups)
    pod = None if _USERS.search(groups) else POD.search(groups)
    inside = pod[1].replace("_", "-") if pod else inner[1] if inner else ""
    return owner_of(int(user[1]), job[1] if job else "", pod is not None), inside


def job_key(job: str, owner: Owner) -> str:
    """The name of a job on this machine, with its owner where the kernel tells one."""
    return f"{job} of {owner}" if owner.known else job
