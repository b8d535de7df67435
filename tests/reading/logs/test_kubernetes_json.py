"""What `kubectl get … -o json` gives: the same as its texts, with the times of events.

Objects as in the API reference of Kubernetes 1.30 (core/v1 Pod, Node, Event; events.k8s.io/v1 Event), reduced to what is read and
what a cluster's answer has beside it; reasons and messages as in pkg/controller/nodelifecycle and pkg/kubelet.
"""

from typing import Any

from hangdog_models.findings import Impact
from hangdog_models.reading.logs.kubernetes_json import read, recognises

AT, AT_S = "2026-01-02T03:04:05Z", 1767323045.0
LATER = "2026-01-02T03:09:05Z"


def listed(*items: dict[str, Any], kind: str = "List") -> dict[str, Any]:
    return {"apiVersion": "v1", "items": list(items), "kind": kind, "metadata": {"resourceVersion": ""}}


def event(kind: str, name: str, reason: str, message: str, at: str = AT) -> dict[str, Any]:
    about = {"kind": kind, "name": name, "namespace": "default"}
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{name}.17"}, "involvedObject": about, "type": "Warning",
        "reason": reason, "message": message, "firstTimestamp": AT, "lastTimestamp": at, "eventTime": None, "count": 3,
    }  # fmt: skip


def node(name: str, ready: str, since: str = AT) -> dict[str, Any]:
    conditions = [
        {"type": "MemoryPressure", "status": "False" if ready == "True" else "Unknown", "reason": "r", "message": "m"},
        {"type": "Ready", "status": ready, "reason": "r", "message": "Kubelet says", "lastTransitionTime": since},
    ]
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"conditions": conditions, "nodeInfo": {"kernelVersion": "5.15"}},
    }  # fmt: skip


def pod(name: str, on: str, last: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": last,
    }
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": on},
        "status": {"phase": "Running", "containerStatuses": [container], **(status or {})},
    }  # fmt: skip


def told(document: object) -> list[tuple[str, Impact, str, float | None]]:
    assert recognises(document)
    return [(one.code, one.impact, one.machine, one.at_s) for one in read(document)]


def test_an_event_of_a_node_has_its_time() -> None:
    lost = event("Node", "gpu-3", "NodeNotReady", "Node gpu-3 status is now: NodeNotReady")
    assert told(listed(lost)) == [("node not ready", Impact.RESET, "gpu-3", AT_S)]
    assert told(lost) == [("node not ready", Impact.RESET, "gpu-3", AT_S)]


def test_a_node_that_was_ready_again_was_not_lost() -> None:
    lost = event("Node", "gpu-3", "NodeNotReady", "Node gpu-3 status is now: NodeNotReady")
    for back in (event("Node", "gpu-3", "NodeReady", "", LATER), node("gpu-3", "True", LATER)):
        assert told(listed(lost, back)) == [("node not ready", Impact.TELLS_NOTHING, "gpu-3", AT_S)]


def test_conditions_hold_now() -> None:
    items = [node("gpu-3", "True"), node("gpu-4", "Unknown"), node("gpu-5", "False")]
    expected = [("node not ready", Impact.RESET, name, None) for name in ("gpu-4", "gpu-5")]
    assert told(listed(*items)) == expected == told(listed(*items, kind="NodeList"))


def test_a_pods_end_is_of_its_node() -> None:
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": AT}}
    found = told(listed(pod("worker-3", "gpu-3", killed)))
    assert ("host out of memory", Impact.PROGRAM, "gpu-3", AT_S) in found
    assert ("ended with an error", Impact.VICTIM, "gpu-3", None) in found
    evicted = pod("worker-4", "gpu-4", {}, {"reason": "Evicted", "message": "The node was low on resource: memory."})
    assert ("evicted for memory", Impact.PROGRAM, "gpu-4", None) in told(listed(evicted))


def test_the_newer_interface_of_events_is_read() -> None:
    about = {"kind": "Pod", "name": "worker-3"}
    newer = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": about, "reason": "FailedScheduling", "eventTime": AT,
        "note": "0/64 nodes are available: 64 Insufficient nvidia.com/gpu.", "series": {"lastObservedTime": LATER},
    }  # fmt: skip
    assert told(newer) == [("no machine for a pod", Impact.SERVICE, "", AT_S + 300)]


def test_items_of_a_list_of_one_kind_need_not_name_it() -> None:
    bare = {key: value for key, value in node("gpu-4", "Unknown").items() if key not in ("kind", "apiVersion")}
    assert told(listed(bare, kind="NodeList")) == [("node not ready", Impact.RESET, "gpu-4", None)]


def test_other_documents_are_not_taken_for_one() -> None:
    assert not recognises({"kind": "Pod"}) and not recognises({"apiVersion": "v1", "kind": "ConfigMap"})
    assert not recognises({"apiVersion": "v1", "kind": "List"}) and not recognises([]) and not recognises(3)
