"""The pods of a Kubernetes: which run on a machine, and whether a job has those that agents say it has.

Agents read the UIDs of pods from control groups, which no tenant chooses; names and labels are a tenant's choice. A label only
tells apart the jobs of one namespace, after the UIDs were found right.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hangdog_models.owner import OwnerKind
from hangdog_server.actions.backends.backend import JobPlacement
from hangdog_server.actions.backends.kube_api import KubeApi, named, understood

Pod = Mapping[str, Any]
#: Labels whose value names the job, by who runs it: ours first, then JobSet, Kubeflow, Volcano, LeaderWorkerSet, Ray, plain Jobs.
JOB_LABELS = (
    "hangdog/job", "jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name", "volcano.sh/job-name",
    "leaderworkerset.sigs.k8s.io/name", "ray.io/cluster", "batch.kubernetes.io/job-name", "job-name",
)  # fmt: skip
#: Pods an API server is asked for at once, as kubectl does.
PAGE = 500
#: Machines that one sentence names.
NAMED = 8


class Pods:
    """The pods behind one API server; every method raises BackendFailed when it cannot be asked."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def on(self, machine: str) -> list[Pod]:
        """All pods of a machine, those that ended included."""
        return await self._listed("/api/v1/pods", machine, fieldSelector=f"spec.nodeName={named(machine)}")

    async def contradicts(self, stated: JobPlacement) -> tuple[str, ...]:
        """What of the placement is not so: UIDs that are no pods there, another job's, or none where the job runs in pods."""
        if stated.owner.kind is OwnerKind.USER:
            return tuple(f"the job runs in no pod on {machine}, its agent says" for machine in stated.accused)
        if stated.owner.kind is not OwnerKind.PODS or not stated.accused:
            return ()
        if silent := [machine for machine in stated.machines if not stated.pods[machine]]:
            return (f"the job runs in pods, and {_named(silent)} tell of none",)
        jobs: dict[tuple[str, str, str], str] = {}
        for machine in stated.accused:
            there = _by_uid(await self.on(machine), machine)
            for uid in stated.pods.get(machine, ()):
                if uid not in there:
                    return (f"Kubernetes knows no pod {uid} on {machine}",)
                with understood(f"pod {uid}"):
                    jobs.setdefault(_job(there[uid]), machine)
        if len(jobs) > 1:
            return (f"the pods on {_named(sorted(set(jobs.values())))} are of several jobs, Kubernetes says",)
        for job in jobs:
            outside = await self._outside(job, stated)
            return (f"Kubernetes knows of no such pods of this job on {_named(outside)}",) if outside else ()
        return (f"no agent tells which pods the job has on {_named(stated.accused)}",)

    async def _outside(self, job: tuple[str, str, str], stated: JobPlacement) -> list[str]:
        """The machines whose pods are not all of this job, and there."""
        namespace = job[0]
        known = _by_uid(await self._listed(f"/api/v1/namespaces/{named(namespace)}/pods", namespace), namespace)

        def there(machine: str, uid: str) -> bool:
            pod = known.get(uid)
            return pod is not None and pod["spec"].get("nodeName") == machine and _job(pod) == job

        with understood(f"the pods of {namespace}"):
            return [
                machine for machine in stated.machines if not all(there(machine, uid) for uid in stated.pods[machine])
            ]

    async def _listed(self, path: str, of: str, **query: str) -> list[Pod]:
        """A list, page by page."""
        items: list[Pod] = []
        query |= {"limit": str(PAGE)}
        while True:
            found = await self._api.get(path, query)
            with understood(f"the pods of {of}"):
                items += found["items"] or ()
                more = (found.get("metadata") or {}).get("continue")
            if not more:
                return items
            query["continue"] = more


def labels(pod: Pod) -> Mapping[str, str]:
    """A pod's labels."""
    return dict(pod.get("metadata", {}).get("labels") or {})


def _job(pod: Pod) -> tuple[str, str, str]:
    """What tells its job from others: its namespace, and the first label that names one."""
    of = labels(pod)
    label = next((name for name in JOB_LABELS if name in of), "")
    return pod["metadata"]["namespace"], label, of.get(label, "")


def _by_uid(pods: Sequence[Pod], of: str) -> dict[str, Pod]:
    with understood(f"the pods of {of}"):
        return {pod["metadata"]["uid"]: pod for pod in pods}


def _named(machines: Sequence[str]) -> str:
    more = f" and {len(machines) - NAMED} more" if len(machines) > NAMED else ""
    return f"{', '.join(machines[:NAMED])}{more}"
