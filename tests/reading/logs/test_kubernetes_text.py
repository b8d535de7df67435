"""What kubectl prints of pods and nodes: a lost machine is named, a pod's end is the program's or nobody's.

Layouts as kubectl 1.30 prints them; reasons and messages as in kubernetes pkg/kubelet/events, pkg/controller/nodelifecycle,
pkg/scheduler and the page on node-pressure eviction.
"""

import time

import pytest

from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.logs.kubernetes_text import read, recognises

HEADER = "LAST SEEN   TYPE      REASON           OBJECT             MESSAGE\n"
POD = """Name:             llama-worker-3
Namespace:        default
Node:             gpu-3/10.0.0.3
Status:           Running
Containers:
  pytorch:
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       {reason}
      Exit Code:    137
Conditions:
  Type              Status
  Ready             False
Events:
  Type     Reason     Age                From     Message
  ----     ------     ----               ----     -------
  Warning  BackOff    2m (x5 over 3m)    kubelet  Back-off restarting failed container pytorch in pod llama-worker-3
"""
NODE = """Name:               gpu-5
Roles:              <none>
Conditions:
  Type             Status    LastHeartbeatTime                 LastTransitionTime                Reason              Message
  ----             ------    -----------------                 ------------------                ------              -------
  MemoryPressure   {status}   Fri, 02 Jan 2026 03:04:05 +0000   Fri, 02 Jan 2026 03:05:05 +0000   NodeStatusUnknown   {says}
  Ready            {status}   Fri, 02 Jan 2026 03:04:05 +0000   Fri, 02 Jan 2026 03:05:05 +0000   NodeStatusUnknown   {says}
Addresses:
  InternalIP:  10.0.0.5
"""


def told(text: str) -> list[tuple[str, Impact, str]]:
    assert recognises(text)
    return [(one.code, one.impact, one.machine) for one in read(text)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("3m   Normal   NodeNotReady   node/gpu-3   Node gpu-3 status is now: NodeNotReady", ("node not ready", Impact.RESET, "gpu-3")),
        ("3m   Warning  Rebooted       node/gpu-3   Node gpu-3 has been rebooted, boot id: 1", ("node restarted", Impact.RESET, "gpu-3")),
        ("3m   Warning  OOMKilling     node/gpu-3   Memory cgroup out of memory: Killed process 71", ("host out of memory", Impact.PROGRAM, "gpu-3")),
        ("3m   Warning  Evicted        pod/w-3      The node was low on resource: memory. Threshold quantity: 100Mi", ("evicted for memory", Impact.PROGRAM, "")),
        ("3m   Warning  Evicted        pod/w-3      The node was low on resource: ephemeral-storage.", ("evicted for disk", Impact.SERVICE, "")),
        ("3m   Normal   TaintManagerEviction   pod/w-3   Marking for deletion Pod default/w-3", ("preempted", Impact.VICTIM, "")),
        ("3m   Warning  FailedScheduling   pod/w-3   0/64 nodes are available: 64 Insufficient nvidia.com/gpu.", ("no machine for a pod", Impact.SERVICE, "")),
        ("3m   Warning  FailedMount    pod/w-3      MountVolume.SetUp failed for volume pvc-1", ("volume not mounted", Impact.SERVICE, "")),
        ("3m   Warning  Failed         pod/w-3      Failed to pull image x: not found", ("image not pulled", Impact.SERVICE, "")),
        ("3m   Warning  UnexpectedAdmissionError   pod/w-3   Allocate failed: no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu", ("no GPU for a pod", Impact.SUSPECTS, "")),
        ("3m   Warning  BackOff        pod/w-3      Back-off restarting failed container", ("ended with an error", Impact.VICTIM, "")),
    ],
)  # fmt: skip
def test_an_event_means_its_row(line: str, expected: tuple[str, Impact, str]) -> None:
    assert told(HEADER + line + "\n") == [expected]


@pytest.mark.parametrize(
    "line",
    [
        "3m   Normal   Pulled     pod/w-3   Container image already present on machine",
        "3m   Normal   NodeReady  node/gpu-3   Node gpu-3 status is now: NodeReady",
        "3m   Normal   Starting   node/gpu-3   Starting kubelet.",
        "3m   Warning  NodeNotReady   pod/w-3   Node is not ready",  # whose machine nothing tells
    ],
)
def test_innocent_events_say_nothing(line: str) -> None:
    assert told(HEADER + line + "\n") == []


def test_the_machine_of_a_pod_is_told_by_the_scheduler() -> None:
    events = (
        "9m   Normal   Scheduled      pod/w-3   Successfully assigned default/w-3 to gpu-7\n"
        "3m   Warning  NodeNotReady   pod/w-3   Node is not ready\n"
    )
    assert told(HEADER + events) == [("node not ready", Impact.RESET, "gpu-7")]


def test_a_machine_that_was_ready_again_later_was_not_lost() -> None:
    lost = "5m   Normal   NodeNotReady   node/gpu-3   Node gpu-3 status is now: NodeNotReady\n"
    ready = "{age}   Normal   NodeReady   node/gpu-3   Node gpu-3 status is now: NodeReady\n"
    assert told(HEADER + lost + ready.format(age="4m")) == [("node not ready", Impact.TELLS_NOTHING, "gpu-3")]
    assert told(HEADER + lost + ready.format(age="3h")) == [("node not ready", Impact.RESET, "gpu-3")]


def test_a_pod_that_was_killed_for_memory_is_the_programs_and_on_its_machine() -> None:
    found = told(POD.format(reason="OOMKilled"))
    assert ("host out of memory", Impact.PROGRAM, "gpu-3") in found
    assert {impact for _, impact, _ in found} <= {Impact.PROGRAM, Impact.VICTIM}


def test_a_described_node_is_lost_where_its_kubelet_is_silent() -> None:
    silent = NODE.format(status="Unknown", says="Kubelet stopped posting node status.")
    assert told(silent) == [("node not ready", Impact.RESET, "gpu-5")]
    assert told(NODE.format(status="True   ", says="kubelet is posting ready status")) == []


def test_a_condition_that_a_health_monitor_set_makes_suspect() -> None:
    """NVIDIA/NVSentinel and kubernetes/node-problem-detector set conditions of their own."""
    marked = "Name:   gpu-5\nConditions:\n  {kind}   True   Fri, 02 Jan 2026 03:04:05 +0000   Fri, 02 Jan 2026 03:05:05 +0000   R   words\n"
    assert told(marked.format(kind="GpuXidError")) == [("marked by a health monitor", Impact.SUSPECTS, "gpu-5")]
    assert told(marked.format(kind="MemoryPressure")) == []


def test_the_list_of_nodes() -> None:
    text = "NAME    STATUS                     ROLES    AGE   VERSION\ngpu-1   Ready                      <none>   9d    v1.30.1\ngpu-2   NotReady                   <none>   9d    v1.30.1\ngpu-3   Ready,SchedulingDisabled   <none>   9d    v1.30.1\n"
    assert told(text) == [("node not ready", Impact.RESET, "gpu-2")]


def test_the_list_of_pods() -> None:
    text = (
        "NAME             READY   STATUS      RESTARTS      AGE   IP         NODE    NOMINATED NODE   READINESS GATES\n"
        "llama-worker-0   1/1     Running     0             3h    10.0.0.1   gpu-0   <none>           <none>\n"
        "llama-worker-3   0/1     OOMKilled   1 (2m ago)    3h    10.0.0.3   gpu-3   <none>           <none>\n"
    )
    assert told(text) == [("host out of memory", Impact.PROGRAM, "gpu-3")]


def test_what_is_no_output_of_kubectl_is_left_alone() -> None:
    assert not recognises("step 3 loss 0.5\nWarning: NodeNotReady is a word\n")
    assert read("Warning  NodeNotReady\n") == ()


def test_the_words_are_quoted() -> None:
    (finding,) = read(HEADER + "3m   Warning  FailedMount    pod/w-3      MountVolume.SetUp failed\n")
    assert isinstance(finding, Finding) and 'pod w-3 ("MountVolume.SetUp failed")' in finding.what


EVENTS = """Events:
  Type     Reason     Age                 From               Message
  ----     ------     ----                ----               -------
  Normal   Scheduled  9m                  default-scheduler  Successfully assigned team/llama-worker-3 to gpu-3
  Warning  {reason}   2m49s (x3 over 9m)  kubelet            {message}
"""


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("BackOff", "Back-off restarting failed container init-pytorch in pod llama-worker-3_team(8d)", ("master not reached", Impact.VICTIM, "gpu-3")),
        ("BackOff", "Back-off restarting failed container pytorch in pod llama-worker-3_team(8d)", ("ended with an error", Impact.VICTIM, "gpu-3")),
        ("NodeNotReady", "Node is not ready", ("node not ready", Impact.RESET, "gpu-3")),
        ("FailedMount", "MountVolume.SetUp failed for volume pvc-1", ("volume not mounted", Impact.SERVICE, "gpu-3")),
    ],
)  # fmt: skip
def test_a_table_of_events_alone_names_its_pod(reason: str, message: str, expected: tuple[str, Impact, str]) -> None:
    assert told(EVENTS.format(reason=reason, message=message)) == [expected]


def test_events_of_nobody_accuse_no_machine() -> None:
    lines = EVENTS.format(reason="Rebooted", message="Node has been rebooted, boot id: 1").splitlines(keepends=True)
    assert told("".join(lines[:3] + lines[4:])) == []


OCCURRED = 'I0102 03:04:{second}.281798       1 event.go:291] "Event occurred" object="{name}" kind="{kind}" apiVersion="v1" type="Warning" reason="{reason}" message="Node is not ready"\n'


def occurred(kind: str, name: str, reason: str = "NodeNotReady", second: str = "05") -> str:
    return OCCURRED.format(kind=kind, name=name, reason=reason, second=second)


def test_the_controller_names_the_pod_of_a_machine_that_it_lost() -> None:
    text = occurred("Pod", "kube-system/proxy-7x") + occurred("Pod", "team/llama-worker-3")
    assert told(text) == [("node not ready", Impact.VICTIM, "")]
    assert "pod llama-worker-3" in read(text)[0].what


@pytest.mark.parametrize(("second", "impact"), [("04", Impact.RESET), ("09", Impact.TELLS_NOTHING)])
def test_the_controller_names_a_machine_that_it_lost(second: str, impact: Impact) -> None:
    text = occurred("Node", "gpu-3") + occurred("Node", "gpu-3", "NodeReady", second)
    assert told(text) == [("node not ready", impact, "gpu-3")]


def test_the_text_of_hostile_events_is_read_in_no_time() -> None:
    text = ('"Event occurred" object="' * 100 + "\n" + 'kind="Pod" reason="' * 100 + "\n") * 200
    begin = time.process_time()
    assert read('"Event occurred" object="a" kind="Pod" reason="b"\n' + text) == ()
    assert time.process_time() - begin < 5
