"""Before anything is done people are told what the job's restart will lack; who tells it is waited for by nothing and nobody."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hangdog_models.actions.caps import Mode
from hangdog_server.actions import policy, restart_preview
from hangdog_server.actions.backends.backend import BackendFailed, IsolationCase
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.actions.backends.kube_api import KubeApi
from hangdog_server.actions.backends.kubernetes_cordon import Kubernetes
from hangdog_server.store import actions
from hangdog_server.store.actions import ActionState, describe
from support.fakes import fake_kube
from support.fakes.fake_kube import RIGHT, Kube
from support.fakes.kube_jobs import job, jobset, pod
from support.servers.cast_acting import World, world

#: What the agents tell: a pod of the job on each of its two machines.
PODS = {machine: [f"uid of {machine}"] for machine in "ab"}
FAILS = "JobSet llama will fail, and not start again: it has no failurePolicy"


async def told(on: World, incident: str) -> str:
    async with asyncio.timeout(60):
        while not (words := await on.words(incident)):
            await on.acting.tick()
            await asyncio.sleep(0.01)
    return words


async def approve(on: World, incident: str) -> None:
    facts, rule = await on.acting.facts(incident), on.acting.rule()
    await on.store.do(policy.approve, incident, facts, rule, "alice")


@dataclass
class Cluster:
    """A JobSet with a Job of one pod on machine a, and one on b."""

    kube: Kube
    server: World


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    (tmp_path / "token").write_text(RIGHT)
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(fake_kube.serving())
        label = {"jobset.sigs.k8s.io/jobset-name": "llama"}
        for machine in "ab":
            kube.add_node(machine)
            kube.pods["train", machine] = pod(machine, machine, "batch/v1", "Job", f"llama-{machine}", labels=label)
            kube.add("jobs", job(f"llama-{machine}", "llama", backoffLimit=0))
        kube.add("jobsets", jobset("llama"))
        actor = Kubernetes(KubeApi(kube.url, tmp_path / "token", ""), lambda: 0.0)
        server = await stack.enter_async_context(
            world(tmp_path / "s.db", tmp_path, actor, mode=getattr(request, "param", Mode.APPROVE))
        )
        yield Cluster(kube, server)


@pytest.mark.parametrize("cluster", [Mode.DRY_RUN, Mode.APPROVE], indirect=True)
async def test_who_decides_is_told_that_the_job_will_not_start_again(cluster: Cluster) -> None:
    await cluster.server.judged("0a", "a", pods=PODS)
    words = await told(cluster.server, "0a")
    assert words.startswith(FAILS) and "In its manifest: failurePolicy.maxRestarts" in words
    (row,) = await cluster.server.store.ask(actions.of, "0a")
    assert describe(row).endswith(words) and row.state in (ActionState.WAITING, ActionState.DRY_RUN) and not row.marked
    assert all(asked.startswith("GET") for asked in cluster.kube.asked), "it only looks"
    if cluster.server.mode is Mode.APPROVE:
        await approve(cluster.server, "0a")
        await cluster.server.until("0a", ActionState.DONE)
        assert "deletionTimestamp" in cluster.kube.pods["train", "a"]["metadata"], "it forbids nothing"
        words = await cluster.server.words("0a")
        assert words.startswith("out of use, ") and "elsewhere" in words


@pytest.mark.parametrize("gone", [False, True])
async def test_it_is_asked_once_for_an_incident(cluster: Cluster, gone: bool) -> None:
    if gone:
        cluster.kube.others = {path: one for path, one in cluster.kube.others.items() if "jobsets" not in path}
    else:
        cluster.kube.add(
            "jobsets", jobset("llama", {"maxRestarts": 1, "rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]})
        )
    await cluster.server.judged("0a", "a", pods=PODS)
    await cluster.server.acting.tick()
    await told_of(cluster, "GET /apis/jobset.x-k8s.io/v1alpha2/namespaces/train/jobsets/llama")
    await cluster.server.judged("0b", "b", job="other")
    words = await told(cluster.server, "0b")
    assert "agent on b " in words and " pods " in words and " job other " in words
    assert await cluster.server.words("0a") == "", "it starts again at no cost, or nobody knows"
    assert len([one for one in cluster.kube.asked if one.endswith("/jobsets/llama")]) == 1


async def told_of(cluster: Cluster, asked: str) -> None:
    async with asyncio.timeout(60):
        while asked not in cluster.kube.asked:
            await asyncio.sleep(0.01)


async def test_an_api_server_that_is_away_is_asked_again(cluster: Cluster) -> None:
    cluster.kube.faults = ["GET 503", "GET reset"]
    await cluster.server.judged("0a", "a", pods=PODS)
    assert (await told(cluster.server, "0a")).startswith(FAILS)


@pytest.mark.parametrize("denied", ["jobs", "jobsets"])
async def test_a_missing_right_means_nothing_is_foreseen_and_is_said_once(
    cluster: Cluster, denied: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.kube.denied = {denied}
    with caplog.at_level(logging.WARNING, "hangdog_server.actions.backends.kube_owners"):
        for number, machine in enumerate("ab"):
            await cluster.server.judged(f"0{machine}", machine, pods=PODS)
            async with asyncio.timeout(60):
                while len([one for one in cluster.kube.asked if f"/{denied}/" in one]) <= number:
                    await cluster.server.acting.tick()
                    await asyncio.sleep(0.01)
    await cluster.server.acting.close()
    (line,) = (one.getMessage() for one in caplog.records if one.name == "hangdog_server.actions.backends.kube_owners")
    assert "answers 403" in line and "deploy/kubernetes/acting.yaml" in line
    assert await cluster.server.words("0a") == ""


@dataclass
class Slow(ExcludeFile):
    """One that is asked and does not answer until it is let; then it says that this costs a restart."""

    path: Path
    let: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0
    fails: BackendFailed | None = None

    def __post_init__(self) -> None:
        super().__init__(self.path)

    async def preview_restart(self, cases: Sequence[IsolationCase]) -> str:
        self.asked += 1
        await self.let.wait()
        if self.fails:
            raise self.fails
        return f"costs 1 of 2: {cases[0].job}"


async def test_nothing_waits_for_whoever_is_asked(tmp_path: Path) -> None:
    slow = Slow(tmp_path / "excluded")
    async with world(tmp_path / "s.db", tmp_path, slow, mode=Mode.APPROVE) as on:
        await on.judged("0a", "a")
        await on.acting.tick()
        async with asyncio.timeout(60):
            while not slow.asked:
                await asyncio.sleep(0.01)
        for _ in range(5):
            await on.acting.tick()
        await approve(on, "0a")
        await on.until("0a", ActionState.DONE)
        assert slow.asked == 1, "one incident at a time"
        slow.let.set()
        await on.judged("0b", "b")
        assert await told(on, "0b") == "costs 1 of 2: llama"
        assert await on.words("0a") == "out of use", "somebody decided meanwhile"


async def test_whoever_does_not_answer_in_time_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_preview, "WITHIN_S", 0.01)
    slow = Slow(tmp_path / "excluded")
    async with world(tmp_path / "s.db", tmp_path, slow, mode=Mode.APPROVE) as on:
        await on.judged("0a", "a")
        async with asyncio.timeout(60):
            while slow.asked < 2:
                await on.acting.tick()
                await asyncio.sleep(0.01)
        assert await on.words("0a") == ""
        slow.let.set()
        assert "costs 1 " in await told(on, "0a")


async def test_what_it_says_is_bounded_and_in_mode_auto_nobody_is_asked(tmp_path: Path) -> None:
    slow = Slow(tmp_path / "excluded", fails=BackendFailed("x" * 5000, "y"))
    slow.let.set()
    async with world(tmp_path / "s.db", tmp_path, slow, mode=Mode.DRY_RUN) as on:
        await on.judged("0a", "a")
        assert len(await told(on, "0a")) <= restart_preview.WORDS
    slow.asked = 0
    async with world(tmp_path / "auto.db", tmp_path, slow) as on:
        await on.judged("0a", "a")
        await on.until("0a", ActionState.DONE)
        assert slow.asked == 0
