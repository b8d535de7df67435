"""What Slurm, kubectl and container runtimes printed on real clusters: public excerpts, shortened, machines renamed.

Each names where it was published. tests/reading/SOURCES.md lists them beside those of all readers.
"""

import pytest

from hangdog_models.findings import Impact
from hangdog_models.reading.logs import container_log, kubernetes_json, kubernetes_text
from hangdog_models.reading.logs.slurm import slurm_text

#: https://slurm.schedmd.com/quickstart.html
QUICKSTART = """adev0: scontrol show node adev1
NodeName=adev1 State=DOWN* CPUs=8 AllocCPUs=0
   RealMemory=4000 TmpDisk=0
   Reason=Not responding [slurm@06/02-14:01:24]
"""
#: https://github.com/awslabs/awsome-distributed-ai/issues/195, Slurm 24.05
NO_GPU_COUNTED = """NodeName=gpu-a Arch=x86_64 CoresPerSocket=1
   Gres=gpu:nvidia-rtx-3090:1
   NodeAddr=gpu-a NodeHostName=gpu-a Version=24.05.0-0rc1
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   AllocTRES=
   CurrentWatts=0 AveWatts=0

   Reason=gres/gpu count reported lower than configured (0 < 1) [slurm@2024-12-19T11:03:34]
"""
#: https://hpc-community.unige.ch/t/3909: a bug of slurmd, all machines were sound
CUT_REASONS = """REASON               USER      TIMESTAMP           NODELIST
issue-5894           root      2025-04-02T16:01:38 cpu242
gres/gpu GRES core s slurm     2025-04-03T15:48:07 gpu[004-005]
gres/gpu count repor slurm     2025-04-02T15:47:44 gpu002
"""
OTHERS = [(name, "out of service", Impact.TELLS_NOTHING) for name in ("cpu242", "gpu004", "gpu005")]
#: https://github.com/awslabs/awsome-distributed-ai/issues/185
KILL_FAILED = """REASON               USER      TIMESTAMP           NODELIST
Kill task failed     root      2024-01-25T15:12:23 gpu-b
"""
#: https://github.com/ArjunaCluster/ArjunaUsers/issues/69
PARTITIONS = """PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
cpu          up 7-00:00:00     55  drng@ d[001-032],f[001-004,006-024]
cpu          up 7-00:00:00      1  fail* f005
gpu          up 14-00:00:0      5  maint c[003,005,011,013,019]
gpu          up 14-00:00:0      3  down* c[020-022]
gpu          up 14-00:00:0      7    mix c[006-007,014-015,017-018,023]
debug*       up      10:00      2   idle e[001-002]
"""
#: https://github.com/clusterinthecloud/terraform/issues/11
DRAINED = """PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
compute*     up   infinite      3  drain compute[001-003]
"""
#: https://github.com/desihub/desispec/issues/2744
ACCOUNTED = """JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
52222788     ztile-573+       resv     desi_g        128  COMPLETED      0:0
52222788.0   desi_zproc                desi_g        128  COMPLETED      0:0
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (QUICKSTART, [("adev1", "node failure", Impact.RESET)]),
        (NO_GPU_COUNTED, [("gpu-a", "GPU count", Impact.SUSPECTS)]),
        (CUT_REASONS, [*OTHERS, ("gpu002", "GPU count", Impact.SUSPECTS)]),
        (CUT_REASONS.replace("gres/gpu count repor", "Node unexpectedly re"), [*OTHERS, ("gpu002", "node failure", Impact.RESET)]),
        (KILL_FAILED, [("gpu-b", "process not killed", Impact.SUSPECTS)]),
        (PARTITIONS, [(name, "node failure", Impact.RESET) for name in ("f005", "c020", "c021", "c022")]),
        (DRAINED, []),
        (ACCOUNTED, []),
    ],
)  # fmt: skip
def test_slurm(text: str, expected: list[tuple[str, str, Impact]]) -> None:
    assert slurm_text.recognises(text)
    assert [(one.machine, one.code, one.impact) for one in slurm_text.read(text)] == expected


#: https://github.com/vmware-archive/kubernetes-archived/issues/113, kubectl of 2017 with tabs
TABS = (
    "Name:\t\t\tnode1\nRole:\t\t\t\nTaints:\t\t\t<none>\nPhase:\t\t\t\nConditions:\n"
    "  Type\t\t\tStatus\t\tLastHeartbeatTime\t\t\tLastTransitionTime\t\t\tReason\t\t\tMessage\n"
    "  OutOfDisk \t\tUnknown \tSat, 04 Mar 2017 07:13:28 +0000 \tSat, 04 Mar 2017 07:14:12 +0000 \tNodeStatusUnknown \tKubelet stopped posting node status.\n"
    "  Ready \t\tUnknown \tSat, 04 Mar 2017 07:13:28 +0000 \tSat, 04 Mar 2017 07:14:12 +0000 \tNodeStatusUnknown \tKubelet stopped posting node status.\n"
)
#: https://github.com/kubernetes/kubernetes/issues/73397: no kubelet of 1.13 writes OutOfDisk any more, and the node is sound
READY_ALL_THE_SAME = """Name:               node-a
Conditions:
  Type                 Status    LastHeartbeatTime                 LastTransitionTime                Reason                       Message
  ----                 ------    -----------------                 ------------------                ------                       -------
  OutOfDisk            Unknown   Mon, 21 Jan 2019 19:29:36 +0000   Fri, 25 Jan 2019 13:57:23 +0000   NodeStatusUnknown            Kubelet stopped posting node status.
  MemoryPressure       False     Mon, 28 Jan 2019 10:06:08 +0000   Fri, 25 Jan 2019 14:00:27 +0000   KubeletHasSufficientMemory   kubelet has sufficient memory available
  Ready                True      Mon, 28 Jan 2019 10:06:08 +0000   Mon, 28 Jan 2019 09:25:31 +0000   KubeletReady                 kubelet is posting ready status. AppArmor enabled
"""
#: https://github.com/microsoft/pai/issues/4589
NODES = """NAME     STATUS     ROLES    AGE   VERSION
p100     NotReady   <none>   17h   v1.15.11
ubuntu   Ready      master   17h   v1.15.11
"""
#: https://github.com/redhat-developer/intellij-kubernetes/issues/778: a pod that is on no machine
PENDING = """Name:             worker-0
Namespace:        default
Node:             <none>
Status:           Pending
Conditions:
  Type           Status
  PodScheduled   False
Events:
  Type     Reason            Age                 From               Message
  ----     ------            ----                ----               -------
  Warning  FailedScheduling  9h (x108 over 18h)  default-scheduler  0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.
"""
#: https://github.com/kubernetes/kubernetes/issues/131530: an exit code of 0 all the same
KILLED = """Name:         worker-1
Node:         gpu-a/10.0.0.1
Containers:
  main:
    State:          Terminated
      Reason:       OOMKilled
      Exit Code:    0
      Started:      Tue, 29 Apr 2025 13:43:32 +0800
      Finished:     Tue, 29 Apr 2025 14:10:51 +0800
    Ready:          False
Conditions:
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TABS, [("node1", "node not ready", Impact.RESET)]),
        (READY_ALL_THE_SAME, []),
        (NODES, [("p100", "node not ready", Impact.RESET)]),
        (PENDING, [("", "no machine for a pod", Impact.SERVICE)]),
        (KILLED, [("gpu-a", "host out of memory", Impact.PROGRAM)]),
    ],
)
def test_kubectl(text: str, expected: list[tuple[str, str, Impact]]) -> None:
    assert kubernetes_text.recognises(text)
    assert [(one.machine, one.code, one.impact) for one in kubernetes_text.read(text)] == expected


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    """As in https://github.com/kubernetes/kubernetes/issues/94020."""
    times = {"lastHeartbeatTime": "2020-08-15T03:48:32Z", "lastTransitionTime": "2020-08-15T03:49:20Z"}
    return {"type": kind, "status": status, **times, "reason": reason, "message": message}


def test_kubectls_json() -> None:
    stopped = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    silent = [
        condition("NetworkUnavailable", "False", "CalicoIsUp", "Calico is running on this node"),
        condition("MemoryPressure", *stopped),
        condition("Ready", *stopped),
    ]
    sound = [
        condition("OutOfDisk", *stopped),  # issue 73397, as above
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status. AppArmor enabled"),
    ]
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": conditions}}
        for name, conditions in (("gpu-a", silent), ("gpu-b", sound))
    ]
    found = kubernetes_json.read({"apiVersion": "v1", "kind": "List", "items": nodes})
    assert [(one.machine, one.code, one.impact) for one in found] == [("gpu-a", "node not ready", Impact.RESET)]


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("Error", []),  # https://github.com/kubernetes/kubernetes/issues/53669: killed, and nothing says by whom
        ("OOMKilled", [("gpu-a", "host out of memory")]),
    ],
)
def test_kubectls_json_of_a_container_that_was_killed(reason: str, told: list[tuple[str, str]]) -> None:
    ended = {
        "containerID": "docker://5954f621", "exitCode": 137, "finishedAt": "2017-10-10T17:41:58Z", "reason": reason,
        "startedAt": "2017-10-10T17:20:37Z",
    }  # fmt: skip
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "lastState": {"terminated": ended}}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "w"},
        "spec": {"nodeName": "gpu-a"},
        "status": status,
    }
    assert [(one.machine, one.code) for one in kubernetes_json.read(pod)] == told


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        # https://grafana.com/docs/loki/latest/send-data/promtail/stages/docker
        ('{"log":"log message\\n","stream":"stderr","time":"2019-04-30T02:12:41.8443515Z"}\n', "log message\n"),
        # https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
        (
            (
                "2016-10-06T00:17:09.669794202Z stdout P log content 1-1\n"
                "2016-10-06T00:17:09.669794203Z stdout F log content 1-2\n"
                "2016-10-06T00:17:09.669794203Z stderr F log content 2\n"
            ),
            "log content 1-1log content 1-2\nlog content 2\n",
        ),
        # https://grafana.com/docs/loki/latest/send-data/promtail/stages/cri
        ("2019-04-30T02:12:41.8443515Z stdout F message\n", "message\n"),
    ],
)
def test_container_runtimes(text: str, plain: str) -> None:
    assert container_log.recognises(text)
    assert container_log.plain(container_log.joined(text)) == plain
