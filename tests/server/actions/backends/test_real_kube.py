"""Kubernetes on a real kube-apiserver, where one is named: others' writes survive, our rights suffice, the pretend one answers alike."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_models.owner import Owner, OwnerKind
from hangdog_server.actions.backends.backend import BackendFailed, IsolationCase, JobPlacement, Mark
from hangdog_server.actions.backends.kube_api import KubeApi
from hangdog_server.actions.backends.kube_restarts import BACKOFF
from hangdog_server.actions.backends.kubernetes_cordon import CONDITION, Kubernetes
from support.fakes import fake_kube
from support.fakes.fake_kube import RIGHT
from support.fakes.kube_jobs import job, jobset, pod
from support.real.real_kube import ACTING, POWERLESS, ROOT, Object, RealKube

pytestmark = pytest.mark.slow

CASE = IsolationCase("0a1b", "gpu-a17", "llama", "rank 3 is in gc_collect", Owner(OwnerKind.PODS, "0", 0))
#: Owners who write taints at once.
WRITERS = 8
PLAIN, MERGE, STRATEGIC, JSON = "json", "merge-patch+json", "strategic-merge-patch+json", "json-patch+json"


@pytest.fixture
def kube(apiserver: RealKube) -> Iterator[RealKube]:
    """One node that another owner tainted."""
    apiserver.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "train"}})
    apiserver.add_node("gpu-a17")
    yield apiserver
    apiserver.restore()


@pytest.fixture
async def actor(kube: RealKube, tmp_path: Path) -> AsyncIterator[Kubernetes]:
    """One with the rights of deploy/kubernetes/acting.yaml."""
    (tmp_path / "token").write_text(ACTING)
    made = Kubernetes(KubeApi(kube.url, tmp_path / "token", str(kube.ca)), lambda: 1_800_000_000.0)
    yield made
    await made.close()


def taints(node: Object) -> list[str]:
    return [taint["key"] for taint in node["spec"].get("taints", [])]


def conditions(node: Object) -> dict[str, str]:
    return {one["type"]: one["status"] for one in node["status"].get("conditions", [])}


async def test_a_mark_is_a_cordon_a_taint_and_words_and_leaves_all_else(kube: RealKube, actor: Kubernetes) -> None:
    before = kube.node("gpu-a17")
    await actor.mark(CASE)
    node = kube.node("gpu-a17")
    assert node["spec"]["unschedulable"] and {"nvidia.com/gpu", "hangdog/isolated"} <= set(taints(node))
    assert conditions(node) == {"Ready": "True", CONDITION: "True"}
    assert node["metadata"]["annotations"]["hangdog/reason"] == CASE.reason
    await actor.mark(CASE)
    assert kube.node("gpu-a17")["metadata"]["resourceVersion"] == node["metadata"]["resourceVersion"]
    await actor.unmark(CASE)
    node = kube.node("gpu-a17")
    assert taints(node) == taints(before) and "unschedulable" not in node["spec"]
    assert conditions(node) == {"Ready": "True", CONDITION: "False"}
    assert "hangdog" not in json.dumps(
        [node["metadata"].get("annotations"), node["metadata"].get("labels"), node["spec"]]
    )


async def test_taints_of_owners_who_write_at_once_survive(kube: RealKube, actor: Kubernetes) -> None:
    def write(number: int) -> None:
        mine = {"key": f"ops/{number}", "value": "x", "effect": "NoSchedule"}
        while True:
            node = kube.node("gpu-a17")
            patch = {
                "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                "spec": {"taints": [*node["spec"].get("taints", []), mine]},
            }
            status, _ = kube.ask("PATCH", "/api/v1/nodes/gpu-a17", patch, f"application/{MERGE}")
            if status == 200:
                return
            assert status == 409

    theirs = {"nvidia.com/gpu", *(f"ops/{number}" for number in range(WRITERS))}
    await asyncio.gather(actor.mark(CASE), *(asyncio.to_thread(write, number) for number in range(WRITERS)))
    assert {*theirs, "hangdog/isolated"} <= set(taints(kube.node("gpu-a17")))
    await actor.unmark(CASE)
    assert theirs <= set(taints(kube.node("gpu-a17"))) and (await actor.look(CASE)).mark is Mark.NONE


async def test_pods_are_found_by_our_rights_and_evicted_where_the_server_knows_how(
    kube: RealKube, actor: Kubernetes
) -> None:
    container = {"name": "train", "image": "none"}
    for name, node in (("llama-0", "gpu-a17"), ("llama-1", "gpu-b02")):
        metadata = {"name": name, "labels": {"job-name": "llama"}}
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 30}
        kube.did("POST", "/api/v1/namespaces/train/pods", {"metadata": metadata, "spec": spec})
    try:
        uid, other = (kube.did("GET", f"{PODS}/llama-{number}")["metadata"]["uid"] for number in range(2))
        case = replace(CASE, pods=(uid,))
        run = await actor.run_of(case)
        both = {"gpu-a17": (uid,), "gpu-b02": (other,)}
        assert await actor.contradicts(JobPlacement(CASE.owner, both, ("gpu-a17",))) == ()
        swapped = JobPlacement(CASE.owner, {**both, "liar": (other,)}, ("gpu-a17",))
        (said,) = await actor.contradicts(swapped)
        assert "no such pods" in said and said.endswith(" on liar")
        assert json.loads(run) == [["train", "llama-0", uid]]
        if kube.ask("GET", "/apis/policy/v1")[0] == 200:
            assert await actor.move(case, run, ["gpu-a17"])
            assert "deletionTimestamp" in kube.did("GET", "/api/v1/namespaces/train/pods/llama-0")["metadata"]
        else:  # before 1.22: said, and not passed over
            with pytest.raises(BackendFailed, match="400") as caught:
                await actor.move(case, run, ["gpu-a17"])
            assert not caught.value.again and caught.value.code == "kubernetes-failed"
    finally:
        now = {"gracePeriodSeconds": 0}
        for name in ("llama-0", "llama-1"):
            kube.ask("DELETE", f"/api/v1/namespaces/train/pods/{name}", now)


#: As kubernetes-sigs/jobset defines it, but for the schema.
JOBSETS = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobsets.jobset.x-k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved"}},
    "spec": {
        "group": "jobset.x-k8s.io", "scope": "Namespaced",
        "names": {"plural": "jobsets", "singular": "jobset", "kind": "JobSet", "listKind": "JobSetList"},
        "versions": [{
            "name": "v1alpha2", "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}  # fmt: skip


async def test_whoever_makes_pods_anew_is_read_by_our_rights(kube: RealKube, actor: Kubernetes) -> None:
    crds, jobs = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/batch/v1/namespaces/train/jobs"
    sets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/train/jobsets"
    made = job("llama-0", "llama", backoffLimit=0)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "train", "image": "none"}]}}
    made["spec"] |= {"template": template, "completions": 1, "parallelism": 1}
    del made["spec"]["completionMode"]  # younger than this server
    plain = {**made, "metadata": {"name": "plain"}, "spec": {"template": template}}
    mine = pod("p", "gpu-a17", "batch/v1", "Job", "llama-0", labels={"job-name": "llama"})
    del mine["metadata"]["uid"]
    mine["spec"]["containers"] = template["spec"]["containers"]
    try:
        assert kube.did("POST", jobs, plain)["spec"]["backoffLimit"] == BACKOFF
        kube.did("POST", jobs, made)
        uid = kube.did("POST", PODS, mine)["metadata"]["uid"]
        case = replace(CASE, pods=(uid,))
        assert await actor.preview_restart([case]) == "", "no JobSets are known here"
        kube.did("POST", crds, JOBSETS)
        async with asyncio.timeout(60):
            while kube.ask("GET", sets)[0] != 200:
                await asyncio.sleep(0.1)
            while kube.ask("POST", sets, jobset("llama"))[0] not in (201, 409):
                await asyncio.sleep(0.1)
        said = await actor.preview_restart([case])
        assert said.startswith("JobSet llama will fail") and "no failurePolicy" in said
        status = {
            "status": {"restarts": 2, "restartsCountTowardsMax": 2},
            "spec": {"failurePolicy": {"maxRestarts": 3}},
        }
        kube.did("PATCH", f"{sets}/llama", status, f"application/{MERGE}")
        kube.did("PATCH", f"{sets}/llama/status", status, f"application/{MERGE}")
        said = await actor.preview_restart([case])
        assert "takes 1 of 1 " in said and "JobSet llama" in said
    finally:
        kube.ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
        for path in (f"{jobs}/plain", f"{jobs}/llama-0", f"{sets}/llama", f"{crds}/jobsets.jobset.x-k8s.io"):
            kube.ask("DELETE", path)


@pytest.mark.parametrize(
    ("token", "machine", "status", "code"),
    [
        ("wrong", "gpu-a17", "401", "kubernetes-denied"),
        (POWERLESS, "gpu-a17", "403", "kubernetes-denied"),
        (ACTING, "gpu-x", "404", "kubernetes-not-found"),
    ],
)
async def test_refusals_are_known(
    actor: Kubernetes, tmp_path: Path, token: str, machine: str, status: str, code: str
) -> None:
    (tmp_path / "token").write_text(token)
    with pytest.raises(BackendFailed, match=status) as caught:
        await actor.mark(IsolationCase("0a1b", machine, "llama"))
    assert caught.value.code == code and caught.value.hint and not caught.value.again


OURS = {"key": "hangdog/isolated", "value": "0a1b", "effect": "NoSchedule"}
NODE, STATUS = "/api/v1/nodes/gpu-a17", "/api/v1/nodes/gpu-a17/status"
PODS = "/api/v1/namespaces/train/pods"
SAID = {"type": "X", "status": "True", "reason": "R", "message": "m"}
#: What both are asked for, one after the other: method, path, kind of content, content, token.
SCRIPT: list[tuple[str, str, str, Any, str]] = [
    ("GET", NODE, PLAIN, None, ROOT),
    ("GET", "/api/v1/nodes/none", PLAIN, None, ROOT),
    ("GET", NODE, PLAIN, None, "wrong"),
    ("GET", NODE, PLAIN, None, POWERLESS),
    ("PATCH", NODE, PLAIN, {"spec": {"unschedulable": True}}, ROOT),
    ("PATCH", NODE, MERGE, {"spec": {"unschedulable": True, "taints": [OURS]}}, ROOT),
    ("PATCH", NODE, MERGE, {"spec": {"unschedulable": True, "taints": [OURS]}}, ROOT),
    ("PATCH", NODE, STRATEGIC, {"spec": {"taints": [{**OURS, "key": "ops/slow"}]}}, ROOT),
    ("PATCH", NODE, MERGE, {"metadata": {"resourceVersion": "1"}, "spec": {"taints": []}}, ROOT),
    ("PATCH", NODE, MERGE, {"spec": {"taints": [OURS, OURS]}}, ROOT),
    ("PATCH", NODE, MERGE, {"spec": {"taints": [{**OURS, "effect": "Never"}]}}, ROOT),
    ("PATCH", NODE, MERGE, {"metadata": {"labels": {"hangdog/incident": "a b"}}}, ROOT),
    ("PATCH", NODE, MERGE, {"metadata": {"labels": {"hangdog/incident": "x" * 64}}}, ROOT),
    ("PATCH", NODE, MERGE, {"metadata": {"labels": {"hangdog/incident": "0a1b"}, "annotations": {"a/b": "c d"}}}, ROOT),
    ("PATCH", NODE, MERGE, {"status": {"conditions": [SAID]}}, ROOT),
    ("PATCH", STATUS, STRATEGIC, {"status": {"conditions": [SAID]}}, ROOT),
    ("PATCH", STATUS, STRATEGIC, {"status": {"conditions": [{"type": "X", "status": "False"}]}, "spec": {"taints": []}}, ROOT),
    ("PATCH", STATUS, MERGE, {"status": {"conditions": [{**SAID, "type": "Y"}]}}, ROOT),
    ("PATCH", NODE, MERGE, {"spec": {"unschedulable": False}}, ROOT),
    ("PATCH", NODE, MERGE, {"metadata": {"labels": {"hangdog/incident": None}}, "spec": {"taints": None}}, ROOT),
    ("PATCH", "/api/v1/nodes/none", MERGE, {"spec": {"unschedulable": True}}, ROOT),
    ("PATCH", NODE, MERGE, {"spec": {"unschedulable": True}}, POWERLESS),
]  # fmt: skip


async def test_the_pretend_one_answers_as_the_real_one(kube: RealKube) -> None:
    """Status, and what stands there afterwards; whether the version moved."""
    pretend = fake_kube.Kube()
    pretend.add_node("gpu-a17")
    differ = []
    for method, path, kind, body, token in SCRIPT:
        before = kube.node("gpu-a17"), deepcopy(pretend.nodes["gpu-a17"])
        status, _ = kube.ask(method, path, body, f"application/{kind}", token)
        theirs = {ROOT: RIGHT, POWERLESS: fake_kube.POWERLESS}.get(token, token)
        headers = {"authorization": f"Bearer {theirs}", "content-type": f"application/{kind}"}
        played, _ = pretend.answer(method, path, headers, json.dumps(body).encode())
        after = kube.node("gpu-a17"), pretend.nodes["gpu-a17"]
        real, fake = ((code, _shown(*nodes)) for code, *nodes in zip((status, played), before, after, strict=True))
        if real != fake:
            differ.append(f"{method} {path} {kind} {body}\n  real {real}\n  fake {fake}")
    assert not differ, "\n".join(differ)


async def test_the_pretend_one_evicts_as_the_real_one(kube: RealKube) -> None:
    version = "policy/v1" if kube.ask("GET", "/apis/policy/v1")[0] == 200 else "policy/v1beta1"
    metadata, spec = {"name": "llama-0"}, {"nodeName": "gpu-a17", "containers": [{"name": "train", "image": "none"}]}
    uid = kube.did("POST", PODS, {"metadata": metadata, "spec": spec})["metadata"]["uid"]
    pretend = fake_kube.Kube()
    pretend.add_pod("llama-0", "gpu-a17", uid)
    try:
        for name, wanted in (("none", uid), ("llama-0", "another"), ("llama-0", uid), ("llama-0", uid)):
            eviction = {"kind": "Eviction", "metadata": {"name": name, "namespace": "train"}}
            eviction |= {"deleteOptions": {"preconditions": {"uid": wanted}}}
            path, headers = f"{PODS}/{name}/eviction", {"authorization": f"Bearer {RIGHT}"}
            status, _ = kube.ask("POST", path, {**eviction, "apiVersion": version})
            content = json.dumps({**eviction, "apiVersion": "policy/v1"}).encode()
            played, _ = pretend.answer("POST", path, headers, content)
            assert status == played, (name, wanted)
    finally:
        kube.ask("DELETE", f"{PODS}/llama-0", {"gracePeriodSeconds": 0})


def _shown(before: Object, node: Object) -> Object:
    """What acts go by."""
    moved = before["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"]
    words = [node["metadata"].get(key) or {} for key in ("labels", "annotations")]
    told = [(one["type"], one["status"], one.get("reason", "")) for one in node["status"].get("conditions", [])]
    return {
        "moved": moved,
        "taints": taints(node),
        "out": node["spec"].get("unschedulable"),
        "words": words,
        "told": sorted(told),
    }
