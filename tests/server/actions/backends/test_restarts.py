"""What is said before pods are evicted: whether their job starts again, by each rule of whoever makes them anew, and at what cost."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hangdog_server.actions.backends.kube_restarts import READ, Ref, foreseen, owner
from support.cases.goldens import differing
from support.fakes.kube_jobs import (
    FATAL,
    FREE,
    IGNORED,
    JOBSET,
    KUBEFLOW,
    VOLCANO,
    job,
    jobset,
    pod,
    pytorchjob,
    volcano,
)

GUIDE = Path(__file__).resolve().parents[4] / "docs" / "acting.md"

Object = dict[str, Any]
FAILS = "will fail"
GOLDEN = Path(__file__).parent / "golden" / "restarts.txt"


def said(pods: list[Object], *made: Object) -> str:
    owners = {Ref(one["apiVersion"], one["kind"], "train", one["metadata"]["name"]): one for one in made}
    return " | ".join(foreseen(pods, owners))


def of_job(made: Object, pods: int = 1) -> str:
    mine = [pod(f"p{number}", "gpu-a17", "batch/v1", "Job", made["metadata"]["name"]) for number in range(pods)]
    return said(mine, made)


def of_set(made: Object, above: Object, pods: int = 1) -> str:
    mine = [pod(f"p{number}", "gpu-a17", "batch/v1", "Job", made["metadata"]["name"]) for number in range(pods)]
    return said(mine, made, above)


def of_pytorch(made: Object, kind: str) -> str:
    labels = {"training.kubeflow.org/replica-type": kind}
    return said([pod("t-worker-0", "gpu-a17", KUBEFLOW, "PyTorchJob", "t", labels=labels)], made)


def of_volcano(made: Object) -> str:
    mine = pod("v-worker-0", "gpu-a17", VOLCANO, "Job", "v")
    mine["metadata"]["annotations"] = {"volcano.sh/task-spec": "worker"}
    return said([mine], made)


def of_pods(labels: Object, spec: Object) -> str:
    return said([pod(f"p{number}", "gpu-a17", KUBEFLOW, "MPIJob", "m", labels=labels, **spec) for number in (1, 2)])


EXIT_CODES = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42]}}]}
OTHER_CODES = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}, *IGNORED["rules"]]}


#: A Job, so many pods of it, and what of the words tells it.
JOBS: list[tuple[Object, int, str]] = [
    (job("j", backoffLimit=0), 1, f"Job j {FAILS}"),
    (job("j"), 1, "(backoffLimit 6, 0 failed "),
    (job("j", failed=5), 1, "(backoffLimit 6, 5 failed "),
    (job("j", failed=5), 2, FAILS),
    (job("j", failed=6), 1, FAILS),
    (job("j", backoffLimit=0, podFailurePolicy=IGNORED), 9, ""),
    (job("j", podFailurePolicy=FATAL), 1, "(podFailurePolicy FailJob, DisruptionTarget)"),
    (job("j", podFailurePolicy=EXIT_CODES), 1, "(podFailurePolicy FailJob, exit code 143)"),
    (job("j", podFailurePolicy=OTHER_CODES), 1, ""),
    (job("j", backoffLimit=2147483647, backoffLimitPerIndex=1), 1, ""),
]  # fmt: skip


@pytest.mark.parametrize(("made", "pods", "words"), JOBS)
def test_a_job_of_its_own(made: Object, pods: int, words: str) -> None:
    told = of_job(made, pods)
    assert words in told and bool(words) is bool(told)


NO_MORE: Object = {
    "maxRestarts": 3,
    "rules": [{"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
}
ELSEWHERE: Object = {"maxRestarts": 3, "rules": [{**FREE, "targetReplicatedJobs": ["driver"]}]}
BY_MESSAGE: Object = {
    "maxRestarts": 3,
    "rules": [{**FREE, "action": "FailJobSet", "onJobFailureMessagePatterns": [".*NCCL.*"]}],
}
FIRST, LIMITED = job("j", "s", podFailurePolicy=FATAL), job("j", "s", backoffLimit=0)


#: A Job, its JobSet, and what of the words tells them.
SETS: list[tuple[Object, Object, str]] = [
    (LIMITED, jobset("s"), f"JobSet s {FAILS}"),
    (FIRST, jobset("s"), "Job j (podFailurePolicy FailJob, DisruptionTarget)"),
    (LIMITED, jobset("s", {"maxRestarts": 3}, 1), "takes 1 of 2 restarts"),
    (LIMITED, jobset("s", {"maxRestarts": 3}, 3), f"JobSet s {FAILS}"),
    (LIMITED, jobset("s", {}), FAILS),
    (FIRST, jobset("s", {"maxRestarts": 3, "rules": [FREE]}, 3), ""),
    (LIMITED, jobset("s", {"maxRestarts": 3, "rules": [FREE]}, 3), "maxRestarts 3 "),
    (LIMITED, {**jobset("s", {"maxRestarts": 3, "rules": [FREE]}), "status": {"restarts": 99}}, "takes 1 of 3 restarts"),
    (LIMITED, {**jobset("s", {"maxRestarts": 3}), "status": {"restarts": 2}}, "takes 1 of 1 restarts"),
    (FIRST, jobset("s", NO_MORE), "FailJobSet for PodFailurePolicy"),
    (FIRST, jobset("s", ELSEWHERE), "takes 1 of 3 restarts"),
    (FIRST, jobset("s", BY_MESSAGE), ""),
    (job("j", "s"), jobset("s", {"maxRestarts": 3}), ": JobSet s does not"),
    (job("j", "s", podFailurePolicy=IGNORED), jobset("s"), ""),
    (LIMITED, jobset("s", trainjob="llama"), "TrainJob llama: failurePolicy.maxRestarts"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "above", "words"), SETS)
def test_a_job_of_a_jobset(made: Object, above: Object, words: str) -> None:
    told = of_set(made, above)
    assert words in told and bool(words) is bool(told)


def test_of_the_jobs_of_one_jobset_the_worst_is_said_once() -> None:
    calm, bad = job("a", "s"), job("b", "s", backoffLimit=0)
    pods = [pod(f"p-{name}", "gpu-a17", "batch/v1", "Job", name) for name in ("a", "b", "c")]
    for order in (pods, pods[::-1]):
        told = said(order, calm, bad, job("c", "s"), jobset("s"))
        assert told.count("JobSet s") == 1 and FAILS in told


def test_a_jobset_that_cannot_be_read_is_not_guessed_at() -> None:
    assert of_job(LIMITED) == "" and said([pod("p", "gpu-a17", "batch/v1", "Job", "j")]) == ""


#: A PyTorchJob, which of its pods, and what of the words tells it.
PYTORCH: list[tuple[Object, str, str]] = [
    (pytorchjob("t"), "worker", ""),
    (pytorchjob("t", "Never"), "worker", f"PyTorchJob t {FAILS}"),
    (pytorchjob("t", "Never"), "master", ""),
    (pytorchjob("t", "ExitCode"), "worker", ""),
    (pytorchjob("t", "OnFailure", backoffLimit=0), "worker", "runPolicy.backoffLimit is 0"),
    (pytorchjob("t", "OnFailure", backoffLimit=3), "worker", ""),
]


@pytest.mark.parametrize(("made", "kind", "words"), PYTORCH)
def test_a_pytorchjob(made: Object, kind: str, words: str) -> None:
    told = of_pytorch(made, kind)
    assert words in told and bool(words) is bool(told)


AGAIN, END = {"event": "PodEvicted", "action": "RestartJob"}, {"events": ["PodEvicted"], "action": "AbortJob"}


#: A job of Volcano, and what of the words tells it.
VOLCANOS: list[tuple[Object, str]] = [
    (volcano("v"), "not restarted"),
    (volcano("v", AGAIN), "job v has left (maxRetry 3)"),
    (volcano("v", AGAIN, retries=2), "reach its maxRetry 3"),
    (volcano("v", AGAIN, maxRetry=9, retries=2), "1 of 6 restarts"),
    (volcano("v", END), "AbortJob"),
    (volcano("v", END, task=AGAIN), "1 of 2 restarts"),
    (volcano("v", {"event": "*", "action": "RestartJob"}), "1 of 2 restarts"),
    (volcano("v", {"event": "PodEvicted", "action": "RestartTask"}), ""),
    (volcano("v", {"event": "TaskCompleted", "action": "CompleteJob"}), "are not restarted"),
]


@pytest.mark.parametrize(("made", "words"), VOLCANOS)
def test_a_job_of_volcano(made: Object, words: str) -> None:
    told = of_volcano(made)
    assert words in told and bool(words) is bool(told)


#: Labels and specs of pods, and what of the words tells them.
PODS: list[tuple[Object, Object, str]] = [
    ({}, {"tolerations": [{"operator": "Exists"}]}, " on gpu-a17 again"),
    ({}, {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}, {"key": "nvidia.com/gpu", "operator": "Exists"}]}, ""),
    ({}, {"nodeSelector": {"kubernetes.io/hostname": "gpu-a17"}}, " gpu-a17 by their nodeSelector"),
    ({"kueue.x-k8s.io/tas": "true"}, {"nodeSelector": {"kubernetes.io/hostname": "gpu-a17"}}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "spec", "words"), PODS)
def test_pods_that_would_come_back_or_go_nowhere_else(labels: Object, spec: Object, words: str) -> None:
    told = of_pods(labels, spec)
    assert words in told and bool(words) is bool(told) and told.count("gpu-a17") <= 1


def test_all_that_is_said_is_the_golden_text() -> None:
    told = [
        *(of_job(made, pods) for made, pods, _ in JOBS),
        *(of_set(made, above) for made, above, _ in SETS),
        *(of_pytorch(made, kind) for made, kind, _ in PYTORCH),
        *(of_volcano(made) for made, _ in VOLCANOS),
        *(of_pods(labels, spec) for labels, spec, _ in PODS),
        said([pod("p", "gpu-a17")]),
    ]
    assert not differing(GOLDEN, "".join(f"{line or '(nothing)'}\n" for line in told))


def test_the_manifest_in_the_guide_restarts_at_no_cost() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    shown = yaml.safe_load(text)
    (replicated,) = shown["spec"]["replicatedJobs"]
    made = job("llama-node-0", "llama", replicated["name"], **replicated["template"]["spec"])
    assert made["spec"]["backoffLimit"] == 0 and of_set(made, {**shown, "status": {"restarts": 99}}, 8) == ""
    del shown["spec"]["failurePolicy"]["rules"]
    assert FAILS in of_set(made, {**shown, "status": {"restarts": 99}}, 8)


def test_a_pod_that_nobody_makes_anew() -> None:
    told = said([pod("p", "gpu-a17")])
    assert "nobody makes pod p " in told and "controller" in told and " | " not in told


@pytest.mark.parametrize(
    "spec",
    [
        None, [], {"podFailurePolicy": {"rules": 3}}, {"podFailurePolicy": {"rules": [{"onExitCodes": {"values": "143"}}]}},
        {"backoffLimit": "many", "podFailurePolicy": {"rules": [[]]}},
    ],
)  # fmt: skip
def test_an_object_of_another_shape_is_passed_over_and_the_rest_is_said(spec: Any) -> None:
    broken = {**job("j"), "spec": spec}
    pods = [pod("p", "gpu-a17", "batch/v1", "Job", "j"), pod("q", "gpu-a17", "batch/v1", "Job", "k")]
    assert said(pods, broken, job("k", backoffLimit=0)).startswith(f"Job k {FAILS}")


def test_what_is_shown_of_a_hostile_name_is_one_short_line() -> None:
    made = job("j", backoffLimit=0)
    made["metadata"]["name"] = "x\n\x1b[2J" * 500
    told = said([pod("p", "gpu-a17", "batch/v1", "Job", "j")], {**made})
    assert told == ""  # nobody is asked by that name
    (words,) = foreseen([pod("p", "gpu-a17", "batch/v1", "Job", "j")], {Ref("batch/v1", "Job", "train", "j"): made})
    assert "\n" not in words and "\x1b" not in words and len(words) < 400


def test_the_kinds_that_are_read_are_those_that_are_known() -> None:
    refs = [
        owner(pod("p", "m", api, kind, "x"))
        for api, kind in (("batch/v1", "Job"), (JOBSET, "JobSet"), (KUBEFLOW, "PyTorchJob"))
    ]
    assert [ref.known for ref in refs if ref] == ["jobs", "jobsets", "pytorchjobs"] and len(READ) == 4
    assert (
        Ref("ray.io/v1", "RayCluster", "train", "x").known == "" == Ref("batch/v1/../../x", "Job", "train", "x").known
    )
