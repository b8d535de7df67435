"""Several actors: what a later one would refuse is known before an earlier one marks anything; who is only away is waited for."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.actions.backends.kube_api import KubeApi
from hangdog_server.actions.backends.kubernetes_cordon import Kubernetes
from hangdog_server.actions.backends.nvsentinel import OPTED_OUT, NVSentinel
from hangdog_server.store.actions import ActionState
from support.fakes import fake_kube, fake_nvsentinel
from support.fakes.fake_kube import POWERLESS, RIGHT, Kube
from support.fakes.fake_nvsentinel import Connector
from support.servers.cast_acting import World, world


@dataclass
class Stage:
    server: World
    first: Path
    later: Path

    @property
    def taken(self) -> str:
        return self.first.read_text() if self.first.exists() else ""


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stage]:
    first, later = tmp_path / "first", tmp_path / "disk" / "later"
    later.parent.mkdir()
    async with world(tmp_path / "s.db", tmp_path, ExcludeFile(first), ExcludeFile(later)) as server:
        yield Stage(server, first, later)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a # ops: fan 3\n", "exclude-file (ops: fan 3)"),
        ("a # hangdog: 0f machine (97%)\n", "incident 0f already"),
    ],
)
async def test_what_a_later_actor_would_refuse_is_left_unmarked_by_all(on: Stage, line: str, words: str) -> None:
    on.later.write_text(line)
    await on.server.judged("0a", "a")
    await on.server.until("0a", ActionState.FAILED)
    assert on.taken == "" and on.later.read_text() == line
    assert words in await on.server.words("0a")
    assert (await on.server.states("0a")) == {"a": "failed"}


async def test_one_machine_that_is_refused_keeps_no_other_from_being_taken(on: Stage) -> None:
    on.later.write_text("a # ops: fan 3\n")
    await on.server.judged("0a", "a", "b")
    await on.server.until("0a", ActionState.FAILED, ActionState.DONE)
    assert await on.server.states("0a") == {"a": "failed", "b": "done"} and on.taken.startswith("b ")


async def test_a_later_actor_that_is_away_holds_back_no_mark(on: Stage) -> None:
    on.later.parent.rmdir()
    await on.server.judged("0a", "a")
    await on.server.acting.tick()
    assert await on.server.states("0a") == {"a": "pending"} and on.taken.startswith("a ")
    on.later.parent.mkdir()
    await on.server.until("0a", ActionState.DONE)
    assert on.later.read_text().startswith("a ")


@dataclass
class Cluster:
    server: World
    kube: Kube
    connector: Connector
    token: Path


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Kubernetes first, then NVSentinel, which has a token of its own."""
    (own := tmp_path / "own").write_text(RIGHT)
    (token := tmp_path / "token").write_text(RIGHT)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())  # a socket's path has 107 characters
        connector = await stack.enter_async_context(fake_nvsentinel.serving(Path(folder) / "s"))
        kube = await stack.enter_async_context(fake_kube.serving())
        kube.add_node("a")
        first = Kubernetes(KubeApi(kube.url, own, ""), lambda: 0.0)
        later = NVSentinel(KubeApi(kube.url, token, ""), lambda: 0.0, str(connector.socket))
        server = await stack.enter_async_context(world(tmp_path / "s.db", tmp_path, first, later))
        yield Cluster(server, kube, connector, token)


async def test_a_node_that_opted_out_of_nvsentinel_is_not_cordoned(cluster: Cluster) -> None:
    cluster.kube.nodes["a"]["metadata"]["labels"][OPTED_OUT] = "false"
    await cluster.server.judged("0a", "a")
    await cluster.server.until("0a", ActionState.FAILED)
    assert f"{OPTED_OUT}=false" in await cluster.server.words("0a")
    assert not any(asked.startswith("PATCH") for asked in cluster.kube.asked) and cluster.connector.events == []


async def test_a_right_that_a_later_actor_lacks_is_known_before_the_cordon(cluster: Cluster) -> None:
    cluster.token.write_text(POWERLESS)
    await cluster.server.judged("0a", "a")
    await cluster.server.until("0a", ActionState.FAILED)
    assert "answers 403" in await cluster.server.words("0a")
    assert not any(asked.startswith("PATCH") for asked in cluster.kube.asked)


async def test_where_nobody_refuses_both_act_in_turn(cluster: Cluster) -> None:
    await cluster.server.judged("0a", "a")
    await cluster.server.until("0a", ActionState.DONE)
    assert cluster.kube.taints("a") == ["nvidia.com/gpu", "hangdog/isolated"] and len(cluster.connector.events) == 1
