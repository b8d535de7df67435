"""What makes pods anew, as an API server holds it: Job, JobSet, PyTorchJob and Volcano's Job, with the fields that decide of restarts.

By their schemas: batch/v1 of Kubernetes 1.34, jobset.x-k8s.io/v1alpha2, kubeflow.org/v1 of the training-operator, and
batch.volcano.sh/v1alpha1. Where an API server fills in a default (backoffLimit 6) so do these; the operators' own defaults are
left out as they are there (restartPolicy of a PyTorchJob, maxRetry of Volcano).
"""

from typing import Any

Object = dict[str, Any]
JOBSET, KUBEFLOW, VOLCANO = "jobset.x-k8s.io/v1alpha2", "kubeflow.org/v1", "batch.volcano.sh/v1alpha1"
#: Rules for pods that are evicted, and the rule of a JobSet that does not count their restart.
IGNORED: Object = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
FATAL: Object = {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
FREE: Object = {
    "name": "evicted", "action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"],
}  # fmt: skip


def made_by(api: str, kind: str, name: str) -> list[Object]:
    """The reference to whoever controls an object."""
    return [{"apiVersion": api, "kind": kind, "name": name, "uid": f"uid of {name}", "controller": True}]


def pod(name: str, machine: str, *owner: str, labels: Object | None = None, **spec: Any) -> Object:
    """A pod that runs on a machine; `owner`: API, kind and name."""
    metadata: Object = {"name": name, "namespace": "train", "uid": f"uid of {name}", "labels": labels or {}}
    if owner:
        metadata["ownerReferences"] = made_by(*owner)
    return {"metadata": metadata, "spec": {"nodeName": machine, **spec}, "status": {"phase": "Running"}}


def job(name: str, jobset: str = "", replicated: str = "node", failed: int = 0, **spec: Any) -> Object:
    """One of batch/v1, of its own or one of a JobSet's."""
    metadata: Object = {"name": name, "namespace": "train"}
    if jobset:
        metadata["ownerReferences"] = made_by(JOBSET, "JobSet", jobset)
        metadata["labels"] = {"jobset.sigs.k8s.io/replicatedjob-name": replicated}
    status = {"failed": failed} if failed else {}
    return _of("batch/v1", "Job", metadata, {"backoffLimit": 6, "completionMode": "Indexed", **spec}, status)


def jobset(name: str, policy: Object | None = None, restarts: int = 0, trainjob: str = "") -> Object:
    metadata: Object = {"name": name, "namespace": "train"}
    if trainjob:
        metadata["ownerReferences"] = made_by("trainer.kubeflow.org/v1alpha1", "TrainJob", trainjob)
    spec: Object = {"replicatedJobs": [{"name": "node", "replicas": 2}]}
    if policy is not None:
        spec["failurePolicy"] = {"restartStrategy": "Recreate", **policy}
    status = {"restarts": restarts, "restartsCountTowardsMax": restarts} if restarts else {"restarts": 0}
    return _of(JOBSET, "JobSet", metadata, spec, status)


def pytorchjob(name: str, worker: str = "", **policy: Any) -> Object:
    """`worker`: the restartPolicy of its workers."""
    replicas = {"replicas": 2, **({"restartPolicy": worker} if worker else {})}
    spec = {"runPolicy": policy, "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": replicas}}
    return _of(KUBEFLOW, "PyTorchJob", {"name": name, "namespace": "train"}, spec, {})


def volcano(name: str, *policies: Object, task: Object | None = None, retries: int = 0, **spec: Any) -> Object:
    """`task` is the policy of its one task."""
    tasks = [{"name": "worker", "replicas": 2, **({"policies": [task]} if task else {})}]
    told = {"minAvailable": 2, "policies": list(policies), "tasks": tasks, **spec}
    return _of(VOLCANO, "Job", {"name": name, "namespace": "train"}, told, {"retryCount": retries} if retries else {})


def _of(api: str, kind: str, metadata: Object, spec: Object, status: Object) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec, "status": status}
