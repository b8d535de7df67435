"""Names the container of a process by its control group, as Kubernetes, Docker, Podman and Slurm write it."""

import re

from hangdog_agent.procfs import Proc

#: cgroup v1 writes `/kubepods/besteffort/podUID/ID`, the systemd driver `kubepods-pod1f_2e.slice/cri-containerd-ID.scope`.
#: From a pod's own control group namespace the path to another pod begins with `/..`, and may name no `kubepods`.
POD = re.compile(
    r"(?:\bkubepods\S*?[/-]|(?:/\.\.)+/(?:besteffort/|burstable/)?)pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
)
CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
_SLURM = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)
#: As much of a container's id as `docker ps` and `crictl ps` show and take.
_SHOWN = 12


def container(proc: Proc, pid: int) -> str:
    """`pod UID, container ID`, `container ID` or `Slurm job N`; empty on the bare machine, or when the process is gone."""
    text = proc.setting(f"{pid}/cgroup") or ""
    pod, inner, job = POD.search(text), CONTAINER.search(text), _SLURM.search(text)
    words = []
    if pod:
        words.append(f"pod {pod[1].replace('_', '-')}")
    if inner:
        words.append(f"container {inner[1][:_SHOWN]}")
    if job:
        words.append(f"Slurm job {job[1]}")
    return ", ".join(words)
