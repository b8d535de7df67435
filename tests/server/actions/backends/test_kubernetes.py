"""Kubernetes, against a pretend API server: others' taints survive every race, evictions heed budgets, bad days pass."""

from collections.abc import AsyncIterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hangdog_models.owner import UNKNOWN, Owner, OwnerKind
from hangdog_server.actions.backends.backend import BackendFailed, IsolationCase, JobPlacement, Mark
from hangdog_server.actions.backends.kube_api import KubeApi
from hangdog_server.actions.backends.kube_pods import PAGE
from hangdog_server.actions.backends.kubernetes_cordon import CONDITION, TRIES, Kubernetes
from support.fakes import fake_kube
from support.fakes.fake_kube import POWERLESS, RIGHT, Kube
from support.refused import refused

JOB = Owner(OwnerKind.PODS, "0", 0)
CASE = IsolationCase("0a1b", "gpu-a17", "llama", "rank 3 is in gc_collect, outside any collective", JOB, ("u1",))
USER = Owner(OwnerKind.USER, "1000", 1000)
Pods = dict[str, tuple[str, ...]]
OTHER = {"key": "ops/slow", "value": "x", "effect": "NoSchedule"}


@dataclass
class Stage:
    kube: Kube
    actor: Kubernetes
    token: Path


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stage]:
    (token := tmp_path / "token").write_text(f"{RIGHT}\n")
    async with fake_kube.serving() as kube:
        kube.add_node("gpu-a17")
        actor = Kubernetes(KubeApi(kube.url, token, ""), lambda: 1_800_000_000.0)
        yield Stage(kube, actor, token)
        await actor.close()


async def test_a_mark_is_a_cordon_a_taint_and_words_and_leaves_all_else(on: Stage) -> None:
    before = deepcopy(on.kube.nodes["gpu-a17"]["spec"])
    await on.actor.mark(CASE)
    node = on.kube.nodes["gpu-a17"]
    assert node["spec"]["unschedulable"] and on.kube.taints("gpu-a17") == ["nvidia.com/gpu", "hangdog/isolated"]
    assert node["metadata"]["labels"] == {"hangdog/incident": "0a1b"}
    assert node["metadata"]["annotations"] == {"hangdog/reason": CASE.reason}
    conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
    assert conditions == {"Ready": "True", CONDITION: "True"}
    version = node["metadata"]["resourceVersion"]
    await on.actor.mark(CASE)
    assert on.kube.nodes["gpu-a17"]["metadata"]["resourceVersion"] == version, "a second mark changes nothing"
    await on.actor.unmark(CASE)
    node = on.kube.nodes["gpu-a17"]
    assert node["spec"] == before and node["metadata"]["labels"] == {} == node["metadata"]["annotations"]
    assert {one["type"]: one["status"] for one in node["status"]["conditions"]}[CONDITION] == "False"


async def test_taints_that_others_write_in_between_survive(on: Stage) -> None:
    def write() -> None:
        taints = on.kube.nodes["gpu-a17"]["spec"]["taints"]
        on.kube.change("gpu-a17", taints=[*taints, {**OTHER, "key": f"ops/{len(taints)}"}])

    on.kube.between = [write] * 3
    await on.actor.mark(CASE)
    assert on.kube.taints("gpu-a17") == ["nvidia.com/gpu", "ops/1", "ops/2", "ops/3", "hangdog/isolated"]
    on.kube.between = [write]
    await on.actor.unmark(CASE)
    assert on.kube.taints("gpu-a17") == ["nvidia.com/gpu", "ops/1", "ops/2", "ops/3", "ops/5"]
    on.kube.between = [write] * TRIES
    with pytest.raises(BackendFailed) as caught:
        await on.actor.mark(CASE)
    assert caught.value.code == "changed-meanwhile"
    assert caught.value.again and (await on.actor.look(CASE)).mark is Mark.NONE


async def test_a_node_that_another_cordons_in_between_is_left_alone(on: Stage) -> None:
    on.kube.between = [lambda: on.kube.change("gpu-a17", unschedulable=True)]
    with pytest.raises(BackendFailed, match=r"\(cordoned\)") as caught:
        await on.actor.mark(CASE)
    assert caught.value.code == "already-isolated"
    assert on.kube.taints("gpu-a17") == ["nvidia.com/gpu"]


async def test_a_node_that_is_being_replaced_is_never_touched(on: Stage) -> None:
    labels = on.kube.nodes["gpu-a17"]["metadata"]["labels"]
    labels["sagemaker.amazonaws.com/node-health-status"] = "UnschedulablePendingReplacement"
    for act in (on.actor.mark, on.actor.unmark):
        with pytest.raises(BackendFailed, match="UnschedulablePendingReplacement") as caught:
            await act(CASE)
        assert caught.value.code == "already-isolated"


@pytest.mark.parametrize("fault", ["PATCH reset", "PATCH 503", "PATCH 429", "GET 500", "GET reset"])
async def test_after_a_bad_day_it_is_looked_at_first_and_marked_once(on: Stage, fault: str) -> None:
    on.kube.faults = [fault]
    with pytest.raises(BackendFailed) as caught:
        await on.actor.mark(CASE)
    assert caught.value.again and caught.value.hint
    await on.actor.mark(CASE)
    standing = await on.actor.look(CASE)
    assert (standing.mark, standing.incident, standing.reason) == (Mark.OURS, "0a1b", CASE.reason)
    assert on.kube.taints("gpu-a17") == ["nvidia.com/gpu", "hangdog/isolated"]
    assert any(one["type"] == CONDITION for one in on.kube.nodes["gpu-a17"]["status"]["conditions"])


@pytest.mark.parametrize(
    "node",
    [
        {}, {"metadata": []}, {"metadata": {"labels": [1]}}, {"metadata": {}, "spec": {"taints": ["x"]}},
        {"metadata": {"name": "gpu-a17"}, "spec": {}},
    ],
)  # fmt: skip
async def test_what_is_no_node_is_not_written_to(on: Stage, node: dict[str, object]) -> None:
    on.kube.nodes["gpu-a17"] = node
    with pytest.raises(BackendFailed) as caught:
        await on.actor.mark(CASE)
    assert caught.value.code == "backend-answer-unreadable"
    assert caught.value.again and not any(asked.startswith("PATCH") for asked in on.kube.asked)


async def test_what_are_no_pods_are_not_evicted(on: Stage) -> None:
    on.kube.add_pod("llama-0", "gpu-a17", "u1", **{"job-name": "llama"})
    del on.kube.pods["train", "llama-0"]["metadata"]["uid"]
    with refused("backend-answer-unreadable"):
        await on.actor.run_of(CASE)


async def test_the_jobs_pods_are_evicted_and_no_others_nor_the_next_ones(on: Stage) -> None:
    """However another tenant's pod on the machine is labelled."""
    label = {"jobset.sigs.k8s.io/jobset-name": "llama"}
    on.kube.add_pod("bait", "gpu-a17", "u4", namespace="others", **label, **{"hangdog/job": "llama"})
    on.kube.add_pod("llama-0", "gpu-a17", "u1", **label)
    on.kube.add_pod("llama-1", "gpu-b02", "u2", **label)
    on.kube.add_pod("dcgm", "gpu-a17", "u3", app="dcgm")
    run = await on.actor.run_of(CASE)
    assert run == '[["train", "llama-0", "u1"]]'
    on.kube.budgets = {"llama-0"}
    assert not await on.actor.move(CASE, run, ["gpu-a17"]), "a budget is waited for, never overruled"
    on.kube.budgets = set()
    assert await on.actor.move(CASE, run, ["gpu-a17"])
    assert [name for (_, name), pod in on.kube.pods.items() if "deletionTimestamp" in pod["metadata"]] == ["llama-0"]
    assert not any(asked.startswith("DELETE") for asked in on.kube.asked)
    on.kube.add_pod("llama-0", "gpu-c03", "u9", **label)
    assert await on.actor.move(CASE, run, ["gpu-a17"])
    assert "deletionTimestamp" not in on.kube.pods["train", "llama-0"]["metadata"], "it is another pod by now"
    del on.kube.pods["train", "llama-0"]
    assert await on.actor.move(CASE, run, ["gpu-a17"]) and await on.actor.run_of(replace(CASE, machine="gpu-z")) == ""


async def test_pods_whose_job_nobody_tells_are_not_evicted(on: Stage) -> None:
    """Their names and labels are their owners' choice."""
    on.kube.add_pod("llama-0", "gpu-a17", "u1", **{"job-name": "llama"})
    untold = replace(CASE, owner=UNKNOWN, pods=())
    with pytest.raises(BackendFailed, match="llama") as caught:
        await on.actor.run_of(untold)
    assert caught.value.code == "pods-unknown" and "update the agent" in caught.value.hint
    assert await Kubernetes(KubeApi(on.kube.url, on.token, ""), lambda: 0.0, evict=False).run_of(untold) == ""
    assert await on.actor.run_of(replace(CASE, owner=USER, pods=())) == "", "a process outside of pods has none"
    on.kube.pods["train", "llama-0"]["status"]["phase"] = "Failed"
    assert await on.actor.run_of(CASE) == "", "it ended"


@pytest.mark.parametrize(
    ("owner", "pods", "values"),
    [
        (JOB, {"gpu-a17": ("u1",), "gpu-b02": ("u2", "u3")}, []),
        (JOB, {"gpu-a17": ("u1",)}, []),
        (JOB, {"gpu-a17": ("u1",), "liar": ("u2",)}, ["no such pods", " on liar"]),
        (JOB, {"gpu-a17": ("u1",), "liar": ("u9",)}, ["no such pods", " on liar"]),
        (JOB, {"gpu-a17": ("u1",), "gpu-b02": ("u4",)}, ["no such pods", " on gpu-b02"]),
        (JOB, {"gpu-a17": ("u1",), "gpu-b02": ("u5",)}, ["no such pods", " on gpu-b02"]),
        (JOB, {"gpu-a17": ("u1",), "liar": ()}, ["runs in pods, ", " liar tell "]),
        (JOB, {"gpu-a17": ("u2",), "gpu-b02": ("u2",)}, ["no pod u2 ", " on gpu-a17"]),
        (JOB, {"gpu-a17": ("u1", "u6")}, ["pods on gpu-a17 ", "several jobs"]),
        (JOB, {"gpu-b02": ("u2",)}, ["no agent ", " on gpu-a17"]),
        (USER, {"gpu-a17": ()}, ["no pod on gpu-a17", "its agent"]),
        (UNKNOWN, {"gpu-a17": ()}, []),
        (Owner(OwnerKind.SLURM, "77", 0), {"gpu-a17": ()}, []),
    ],
)
async def test_kubernetes_says_where_a_job_runs(on: Stage, owner: Owner, pods: Pods, values: list[str]) -> None:
    """By the UIDs of pods: u4 is labelled alike in another namespace, u5 is another job's."""
    mine, other = {"training.kubeflow.org/job-name": "llama"}, {"job-name": "other"}
    on.kube.add_pod("llama-0", "gpu-a17", "u1", **mine)
    on.kube.add_pod("llama-1", "gpu-b02", "u2", **mine)
    on.kube.add_pod("llama-2", "gpu-b02", "u3", **mine)
    on.kube.add_pod("llama-1", "gpu-b02", "u4", namespace="others", **mine)
    on.kube.add_pod("other-0", "gpu-b02", "u5", **other)
    on.kube.add_pod("other-1", "gpu-a17", "u6", **other)
    for number in range(2 * PAGE):
        on.kube.add_pod(f"many-{number}", "gpu-z", f"z{number}")
    for namespaced in list(on.kube.pods)[:3]:  # those that are looked for stand on the last page
        on.kube.pods[namespaced] = on.kube.pods.pop(namespaced)
    found = await on.actor.contradicts(JobPlacement(owner, pods, ("gpu-a17",)))
    assert len(found) == bool(values), "one sentence, which says all of it"
    assert all(value in found[0] for value in values), found


async def test_what_nobody_can_be_asked_about_is_not_taken_for_so(on: Stage) -> None:
    on.token.write_text(POWERLESS)
    with refused("kubernetes-denied"):
        await on.actor.contradicts(JobPlacement(JOB, {"gpu-a17": ("u1",)}, ("gpu-a17",)))


@pytest.mark.parametrize(
    ("token", "machine", "status", "code", "hint"),
    [
        ("wrong", "gpu-a17", "401", "kubernetes-denied", "token"),
        (POWERLESS, "gpu-a17", "403", "kubernetes-denied", "acting.yaml"),
        (RIGHT, "gpu-x", "404", "kubernetes-not-found", "--machine"),
    ],
)
async def test_refusals_say_what_to_do(on: Stage, token: str, machine: str, status: str, code: str, hint: str) -> None:
    on.token.write_text(token)
    with pytest.raises(BackendFailed, match=status) as caught:
        await on.actor.mark(replace(CASE, machine=machine))
    assert caught.value.code == code and hint in caught.value.hint and not caught.value.again


async def test_a_token_that_is_not_there_yet_is_waited_for(on: Stage) -> None:
    on.token.unlink()
    with pytest.raises(BackendFailed, match=str(on.token)) as caught:
        await on.actor.look(CASE)
    assert caught.value.again and caught.value.code == "unreadable-file"
