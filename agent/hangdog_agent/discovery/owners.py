"""Reads from the kernel whose a process is and which container it runs in: its user and its control group, which it cannot choose; never its environment."""

import re

from hangdog_agent.procfs import Proc
from hangdog_models.owner import UNKNOWN, Owner, owner_of

#: cgroup v1 writes `/kubepods/besteffort/podUID/ID`, the systemd driver `kubepods-pod1f_2e.slice/cri-containerd-ID.scope`.
#: From a pod's own control group namespace the path to another pod begins with `/..`, and may name no `kubepods`.
POD = re.compile(
    r"(?:\bkubepods\S*?[/-]|(?:/\.\.)+/(?:besteffort/|burstable/)?)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
)
CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
_SLURM_JOB = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)
#: As much of a container's id as `docker ps` and `crictl ps` show and take.
_SHOWN = 12
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


def container(proc: Proc, pid: int) -> str:
    """`pod UID, container ID`, `container ID` or `Slurm job N`; empty on the bare machine, or when the process is gone."""
    text = proc.setting(f"{pid}/cgroup") or ""
    pod, inner, job = POD.search(text), CONTAINER.search(text), _SLURM_JOB.search(text)
    words = []
    if pod:
        words.append(f"pod {pod[1].replace('_', '-')}")
    if inner:
        words.append(f"container {inner[1][:_SHOWN]}")
    if job:
        words.append(f"Slurm job {job[1]}")
    return ", ".join(words)


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
