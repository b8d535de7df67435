"""Says of pods that are about to be evicted what becomes of their job: whether it starts again, and what that costs it.

A pure reading of what the API server holds: the pods, and whoever makes them anew. What is said is what these controllers do:

- Job (batch/v1): a pod that is being deleted counts as failed, more of them than backoffLimit fail the Job; a podFailurePolicy may
  say otherwise of the condition DisruptionTarget, which the eviction API sets (kubernetes 1.34, pkg/controller/job).
- JobSet (jobset.x-k8s.io/v1alpha2): fails with its first failed Job, unless it has a failurePolicy; of that the first rule
  that fits counts, and RestartJobSet where none does (kubernetes-sigs/jobset, pkg/controllers/failure_policy.go).
- PyTorchJob (kubeflow.org/v1): makes an evicted pod anew, unless its restartPolicy is Never or runPolicy.backoffLimit is 0
  (kubeflow/training-operator v1, pkg/controller.v1/common and /pytorch).
- Job of Volcano (batch.volcano.sh/v1alpha1): a pod that is deleted is the event PodEvicted; without a policy for it that
  pod alone is made anew, and the restart that reaches maxRetry is not made (volcano-sh/volcano, pkg/controllers/job).

Whatever is not understood of an object is nothing said of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from hangdog_models.reading.printable import printable

Object = Mapping[str, Any]
#: What is read of those who make pods anew: API group and kind, and the word for them in a path.
READ = {
    ("batch", "Job"): "jobs", ("jobset.x-k8s.io", "JobSet"): "jobsets", ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
    ("batch.volcano.sh", "Job"): "jobs",
}  # fmt: skip
#: What meets who reads an object that is built otherwise than its kind's are.
MISSHAPEN = (KeyError, TypeError, AttributeError, ValueError)
#: With what a process ends that SIGTERM ends, as an eviction does (128 + 15): which rules for exit codes it meets.
TERMINATED = 143
#: Defaults of the API: backoffLimit of batch/v1, maxRetry of Volcano.
BACKOFF, RETRIES = 6, 3
#: Events of Volcano that an evicted pod may come as: a kubelet says that it failed before it is gone.
EVENTS = {"PodEvicted", "PodFailed", "*"}
#: What Volcano's policies call an end, and what they call a restart of all.
ENDS, RESTART = ("AbortJob", "TerminateJob", "CompleteJob"), "RestartJob"
#: The label by which Kueue says that it bound a pod to its machine, and will bind the next one to another.
PLACED = "kueue.x-k8s.io/tas"
#: Where the line stands that is to be changed.
SHOWN = "docs/acting.md shows it"
_FAILS = "will fail, and not start again"


class Ref(NamedTuple):
    """An object by its name: `api` is group and version."""

    api: str
    kind: str
    namespace: str
    name: str

    @property
    def known(self) -> str:
        """The word for its kind in a path; empty for kinds that nothing is known of."""
        return READ.get((self.api.rpartition("/")[0], self.kind), "")


def owner(thing: Object) -> Ref | None:
    """Who controls an object, and would make it anew."""
    metadata = thing["metadata"]
    for one in metadata.get("ownerReferences") or ():
        if one.get("controller"):
            return Ref(one["apiVersion"], one["kind"], metadata["namespace"], one["name"])
    return None


def foreseen(pods: Sequence[Object], owners: Mapping[Ref, Object]) -> tuple[str, ...]:
    """What is to be known before these pods of one job are evicted, each once; nothing where it starts again at no cost."""
    groups: dict[Ref | None, list[Object]] = {}
    for pod in pods:
        groups.setdefault(owner(pod), []).append(pod)
    stated: dict[Ref | None, str] = {}
    for ref, group in groups.items():
        with suppress(*MISSHAPEN):
            top = _top(ref, owners)
            words = _of_group(ref, group, owners)
            if words and (top not in stated or (_FAILS in words and _FAILS not in stated[top])):
                stated[top] = words  # of the Jobs of one JobSet the worst, once
    with suppress(*MISSHAPEN):
        return tuple(dict.fromkeys((*stated.values(), *_placed(pods))))
    return tuple(stated.values())


def _top(ref: Ref | None, owners: Mapping[Ref, Object]) -> Ref | None:
    made = owners.get(ref) if ref is not None else None
    above = owner(made) if made is not None else None
    return above if above in owners else ref


def _of_group(ref: Ref | None, pods: Sequence[Object], owners: Mapping[Ref, Object]) -> str:
    if ref is None:
        return f"nobody makes pod {_name(pods[0])} anew: it has no controller"
    made = owners.get(ref)
    if made is None:
        return ""
    if ref.kind == "PyTorchJob":
        return next(filter(None, (_pytorch(made, pod) for pod in pods)), "")
    if ref.api.startswith("batch.volcano.sh/"):
        return next(filter(None, (_volcano(made, pod) for pod in pods)), "")
    above = owner(made)
    return _job(made, len(pods), above, owners.get(above) if above is not None else None)


def _job(job: Object, lost: int, above: Ref | None, jobset: Object | None) -> str:
    """Of a Job that loses so many pods: of its own, or one of a JobSet's."""
    spec, name = job["spec"], _name(job)
    limit, failed = _count(spec.get("backoffLimit"), BACKOFF), _count(job.get("status", {}).get("failed"), 0)
    action, why = _policy(spec.get("podFailurePolicy") or {})
    uncounted = action == "Count" and spec.get("backoffLimitPerIndex") is not None
    if action not in ("Count", "FailJob") or uncounted or (above is not None and jobset is None):
        return ""
    if action == "Count":
        why = f"backoffLimit {limit}, {failed} failed so far"
    if action == "Count" and failed + lost <= limit:
        counted = f"Job {name} makes the evicted pods anew and counts them as failed ({why})"
        if jobset is None:
            return f"{counted}. In its manifest: podFailurePolicy, Ignore for DisruptionTarget ({SHOWN})"
        then = f"JobSet {_name(jobset)} does not restart the others"
        return f"{counted}: {then}. {_where(jobset)}: podFailurePolicy and failurePolicy ({SHOWN})"
    if jobset is None:
        return f"Job {name} {_FAILS} ({why}). In its manifest: podFailurePolicy, Ignore for DisruptionTarget ({SHOWN})"
    reason = "PodFailurePolicy" if action == "FailJob" else "BackoffLimitExceeded"
    return _jobset(jobset, job, reason, f"an evicted pod fails its Job {name} ({why})")


def _policy(policy: Object) -> tuple[str, str]:
    """What a podFailurePolicy does with an evicted pod, and by which of its rules."""
    for rule in policy.get("rules") or ():
        codes = rule.get("onExitCodes") or {}
        if codes and (TERMINATED in codes["values"]) is (codes["operator"] == "In"):
            return str(rule["action"]), f"podFailurePolicy {printable(rule['action'], 20)}, exit code {TERMINATED}"
        for one in rule.get("onPodConditions") or ():
            if one["type"] == "DisruptionTarget" and one.get("status", "True") == "True":
                return str(rule["action"]), f"podFailurePolicy {printable(rule['action'], 20)}, DisruptionTarget"
    return "Count", ""


def _jobset(jobset: Object, job: Object, reason: str, why: str) -> str:
    """Of a JobSet that one of its Jobs fails, for this reason."""
    name, where = f"JobSet {_name(jobset)}", _where(jobset)
    free = f"{where}: the rule RestartJobSetAndIgnoreMaxRestarts for PodFailurePolicy ({SHOWN})"
    policy = jobset["spec"].get("failurePolicy")
    if policy is None:
        return f"{name} {_FAILS}: it has no failurePolicy, and {why}. {where}: failurePolicy.maxRestarts ({SHOWN})"
    action = _rule(policy, job["metadata"].get("labels") or {}, reason)
    if action == "FailJobSet":
        return f"{name} {_FAILS}: its failurePolicy says FailJobSet for {reason}, and {why}. {free}"
    if action != "RestartJobSet":
        return ""
    status = jobset.get("status", {})
    uncounted = 0 if policy.get("rules") else status.get("restarts")  # a count of 0 is left out
    most = _count(policy.get("maxRestarts"), 0)
    left = most - _count(status.get("restartsCountTowardsMax", uncounted), 0)
    if left <= 0:
        return f"{name} {_FAILS}: no restart of its maxRestarts {most} is left, and {why}. {free}"
    return f"this takes 1 of {left} restarts that {name} has left: {why}. {free}"


def _rule(policy: Object, labels: Mapping[str, str], reason: str) -> str:
    """The action of the first rule of a failurePolicy that fits; empty where that is not known."""
    for rule in policy.get("rules") or ():
        reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
        fits = not targets or labels.get("jobset.sigs.k8s.io/replicatedjob-name") in targets
        if fits and (not reasons or reason in reasons):
            return "" if rule.get("onJobFailureMessagePatterns") else str(rule["action"])
    return "RestartJobSet"


def _where(jobset: Object) -> str:
    above = owner(jobset)
    if above is not None and above.kind == "TrainJob":
        return f"In the runtime of TrainJob {printable(above.name, 63)}"
    return "In its manifest"


def _pytorch(job: Object, pod: Object) -> str:
    spec, name = job["spec"], _name(job)
    mine = (pod["metadata"].get("labels") or {}).get("training.kubeflow.org/replica-type", "")
    for kind, replicas in spec["pytorchReplicaSpecs"].items():
        if kind.lower() == mine.lower() and replicas.get("restartPolicy") == "Never":
            return f"PyTorchJob {name} {_FAILS}: restartPolicy of its {printable(kind, 20)} is Never. In its manifest: OnFailure"
    if (spec.get("runPolicy") or {}).get("backoffLimit") == 0:
        return f"PyTorchJob {name} {_FAILS}, once a pod is seen to have failed: runPolicy.backoffLimit is 0. In its manifest: more"
    return ""


def _volcano(job: Object, pod: Object) -> str:
    spec, name = job["spec"], f"Volcano's job {_name(job)}"
    task = (pod["metadata"].get("annotations") or {}).get("volcano.sh/task-spec")
    mine = [
        policy for one in spec.get("tasks") or () if one.get("name") == task for policy in one.get("policies") or ()
    ]
    for policy in (*mine, *(spec.get("policies") or ())):
        if EVENTS & {policy.get("event"), *(policy.get("events") or ())}:
            break
    else:
        return f"{name} makes the evicted pods anew, and the others are not restarted. In its manifest: {RESTART} on PodEvicted"
    if policy["action"] in ENDS:
        return f"{name} {_FAILS}: its policy for evicted pods is {policy['action']}. In its manifest: {RESTART}"
    if policy["action"] != RESTART:
        return ""
    most = _count(spec.get("maxRetry"), RETRIES)
    left = most - 1 - _count(job.get("status", {}).get("retryCount"), 0)
    if left <= 0:
        return f"{name} {_FAILS}: this restart would reach its maxRetry {most}. In its manifest: a larger maxRetry"
    return f"this takes 1 of {left} restarts that {name} has left (maxRetry {most})"


def _placed(pods: Iterable[Object]) -> Iterator[str]:
    """Of pods that would be put on the same machine again, or nowhere else."""
    for pod in pods:
        spec, labels = pod["spec"], pod["metadata"].get("labels") or {}
        machine = printable(spec["nodeName"], 63)
        bears = [one for one in spec.get("tolerations") or () if one.get("operator") == "Exists" and not one.get("key")]
        if any(one.get("effect") in (None, "", "NoSchedule") for one in bears):
            yield f"its pods tolerate every taint, and may be put on {machine} again. In the pod's template: name the taints"
        bound = (spec.get("nodeSelector") or {}).get("kubernetes.io/hostname")
        if bound == spec["nodeName"] and PLACED not in labels:
            yield f"its pods are bound to {machine} by their nodeSelector, and will wait for it"


def _name(thing: Object) -> str:
    return printable(thing["metadata"]["name"], 63)


def _count(reported: object, otherwise: int) -> int:
    return reported if isinstance(reported, int) and not isinstance(reported, bool) else otherwise
