"""Kubernetes: cordons and taints a machine, shows why as a node condition, and evicts the job's pods from it.

The list of taints is written as a whole, whichever kind of patch: other owners' taints survive because what was read is
written back with ours, against the version that was read, and from the beginning when somebody wrote in between. Whoever
runs the job (Job, JobSet, Kubeflow) starts it again; pods are evicted by the API that heeds disruption budgets, never deleted.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hangdog_models.rules.node_labels import fault_domains
from hangdog_server.actions.backends.backend import (
    BackendFailed,
    IsolationCase,
    JobPlacement,
    MachineMark,
    Mark,
    left_alone,
)
from hangdog_server.actions.backends.kube_api import KubeApi, Unknown, named, understood
from hangdog_server.actions.backends.kube_owners import Owners
from hangdog_server.actions.backends.kube_pods import JOB_LABELS, Pod, Pods, labels
from hangdog_server.actions.backends.kube_restarts import foreseen

#: Our names on a node: the taint's key, which says that it is ours, and what stands beside it.
TAINT, REASON, INCIDENT = "hangdog/isolated", "hangdog/reason", "hangdog/incident"
CONDITION = "HangdogIsolated"
#: Labels by which others say that a node is theirs to replace, and the words that mean now (HyperPod).
REPLACED = {"sagemaker.amazonaws.com/node-health-status": re.compile("UnschedulablePending.*")}
#: Values as it allows them for labels and taints.
VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
#: Seconds for one eviction. Where the pod's uid is another by then, an API server tries for ten seconds before it says so (1.20:
#: 10.03 s).
EVICTED_S = 30.0
#: Machines whose pods are looked at before an act: what holds of those of a verdict's eight holds of more.
MACHINES = 8
#: Tries against writers in between: eight at once all came through in five.
TRIES = 10


class Kubernetes:
    """The cluster behind one API server."""

    name = "kubernetes"
    again_s = 0.0

    def __init__(self, api: KubeApi, clock: Callable[[], float], evict: bool = True) -> None:
        """`clock` gives Unix seconds; `evict`: the job's pods are evicted, else they are left to whoever runs it."""
        self._api = api
        self._clock = clock
        self._evict = evict
        self._owners = Owners(api)
        self._pods = Pods(api)

    async def look(self, case: IsolationCase) -> MachineMark:
        """Cordoned, and whether by us."""
        node = await self._node(case)
        with understood(case.machine):
            return _mark_of(node)

    async def mark(self, case: IsolationCase) -> None:
        """Cordons and taints it (NoSchedule: what runs there goes on until it is evicted), and says why."""
        if not VALUE.fullmatch(case.incident):
            raise BackendFailed(f"{case.incident!r} is no value of a label", code="bad-name")

        def change(node: dict[str, Any]) -> dict[str, Any]:
            state = _mark_of(node)
            if state.mark is Mark.ANOTHERS:
                raise left_alone("Kubernetes", case.machine, state)
            if state.mark is Mark.OURS:
                return {}
            ours = {"key": TAINT, "value": case.incident, "effect": "NoSchedule"}
            spec = {"unschedulable": True, "taints": [*_taints(node), ours]}
            labels, annotations = {INCIDENT: case.incident}, {REASON: case.reason}
            return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}

        changed = await self._change(case, change)
        if changed or (await self.look(case)).incident == case.incident:  # a server may have ended between the two
            await self._tell(case, "True", case.reason)

    async def unmark(self, case: IsolationCase) -> None:
        """Takes our taint, our cordon and our words away."""

        def change(node: dict[str, Any]) -> dict[str, Any]:
            state = _mark_of(node)
            if state.mark is Mark.ANOTHERS:
                raise left_alone("Kubernetes", case.machine, state)
            if state.mark is Mark.NONE or state.incident != case.incident:
                return {}
            spec = {"unschedulable": None, "taints": [one for one in _taints(node) if one.get("key") != TAINT] or None}
            return {"metadata": {"labels": {INCIDENT: None}, "annotations": {REASON: None}}, "spec": spec}

        if await self._change(case, change):
            await self._tell(case, "False", "")

    async def contradicts(self, stated: JobPlacement) -> tuple[str, ...]:
        """Pods that are not where agents say, or are another job's."""
        return await self._pods.contradicts(stated)

    async def shares(self, machine: str) -> tuple[str, ...]:
        """By the labels of its node; nothing where there is no such node."""
        try:
            node = await self._api.get(f"/api/v1/nodes/{named(machine)}")
        except Unknown:
            return ()
        with understood(machine):
            return fault_domains(dict(node["metadata"].get("labels") or {}))

    async def run_of(self, case: IsolationCase) -> str:
        """The job's pods on it, by namespace, name and uid, as JSON."""
        if not self._evict:
            return ""
        mine = await self._mine(case)
        with understood(f"the pods on {case.machine}"):
            pods = [[pod["metadata"][key] for key in ("namespace", "name", "uid")] for pod in mine]
        return json.dumps(sorted(pods)) if pods else ""

    async def preview_restart(self, cases: Sequence[IsolationCase]) -> str:
        """What becomes of the job once its pods are evicted, where it does not start again as it was, at no cost."""
        if not self._evict:
            return ""
        pods = [pod for case in cases[:MACHINES] for pod in await self._mine(case)]
        with understood("the owners of pods"):
            return "; ".join(foreseen(pods, await self._owners.of(pods)))

    async def move(self, case: IsolationCase, run: str, machines: Sequence[str]) -> bool:
        """Evicts these very pods: one of the same name that was made since has another uid, and stays."""
        came, found = True, await self._pods.on(case.machine)
        with understood(f"the pods on {case.machine}"):
            there = {pod["metadata"]["uid"] for pod in found}
        for namespace, name, uid in json.loads(run):
            if uid not in there:  # it ended; asked to evict it, an API server answers only after ten seconds
                continue
            body = {
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
                "deleteOptions": {"preconditions": {"uid": uid}},
            }  # fmt: skip
            path = f"/api/v1/namespaces/{named(namespace)}/pods/{named(name)}/eviction"
            status, words = await self._api.post(path, body, EVICTED_S)
            # 429 is a disruption budget: it may have room later, and what it protects is not ours to overrule.
            if status == 429:
                came = False
            elif status not in (200, 201, 404, 409):
                raise self._api.failed(status, path, words)
        return came

    async def close(self) -> None:
        """Closes its connections."""
        await self._api.close()

    async def _mine(self, case: IsolationCase) -> list[Pod]:
        """The job's pods on it that run; raises BackendFailed where pods there are jobs', and its agent does not tell which it has."""
        found = await self._pods.on(case.machine)
        with understood(f"the pods on {case.machine}"):
            there = [pod for pod in found if _runs(pod)]
            mine = [pod for pod in there if pod["metadata"]["uid"] in case.pods]
            others = any(name in labels(pod) for pod in there for name in JOB_LABELS)
        if not case.pods and not case.owner.known and others:
            what = f"the agent on {case.machine} does not tell which pods job {case.job} has there"
            raise BackendFailed(what, "update the agent, and evict these by hand", code="pods-unknown")
        return mine

    async def _node(self, case: IsolationCase) -> dict[str, Any]:
        return await self._api.get(f"/api/v1/nodes/{named(case.machine)}")

    async def _change(self, case: IsolationCase, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
        """Reads, changes and writes until nobody wrote in between; whether anything was to be changed."""
        for _ in range(TRIES):
            node = await self._node(case)
            with understood(case.machine):
                patch = change(node)
                if not patch:
                    return False
                patch["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"]
            if await self._api.patch(f"/api/v1/nodes/{named(case.machine)}", patch, "merge"):
                return True
        what = f"{TRIES} tries to mark {case.machine} met somebody else's writing"
        raise BackendFailed(
            what, "which controller writes this node without pause?", again=True, code="changed-meanwhile"
        )

    async def _tell(self, case: IsolationCase, status: str, message: str) -> None:
        """Says it as a condition of the node, merged by its type: a plain merge would replace all other conditions."""
        at = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": CONDITION, "status": status, "reason": "HangdogVerdict" if message else "HangdogReleased",
            "message": message, "lastHeartbeatTime": at, "lastTransitionTime": at,
        }  # fmt: skip
        path = f"/api/v1/nodes/{named(case.machine)}/status"
        await self._api.patch(path, {"status": {"conditions": [condition]}}, "strategic-merge")


def _mark_of(node: Mapping[str, Any]) -> MachineMark:
    metadata = node.get("metadata", {})
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for label, words in REPLACED.items():
        if words.fullmatch(labels.get(label, "")):
            return MachineMark(Mark.ANOTHERS, f"{label}={labels[label]}")
    for taint in _taints(node):
        if taint.get("key") == TAINT:
            return MachineMark(Mark.OURS, annotations.get(REASON, ""), taint.get("value", ""))
    if node.get("spec", {}).get("unschedulable"):
        stated = [f"{key}={value}" for key, value in sorted({**annotations, **labels}.items()) if "cordon" in key]
        return MachineMark(Mark.ANOTHERS, ", ".join(stated) or "cordoned")
    return MachineMark(Mark.NONE)


def _taints(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(node.get("spec", {}).get("taints") or [])


def _runs(pod: Pod) -> bool:
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
