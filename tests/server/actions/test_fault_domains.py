"""What machines share is read from the labels of their nodes, beside everything else, and bounds what is done to them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from hangdog_models.actions.caps import Mode
from hangdog_models.ranks import Rank
from hangdog_server.actions.backends.backend import BackendFailed, PlaceReader
from hangdog_server.actions.backends.kube_api import KubeApi
from hangdog_server.actions.backends.kubernetes_cordon import Kubernetes
from hangdog_server.actions.fault_domains import AGAIN_S, FaultDomains
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents import judge
from hangdog_server.protocol.jobs import AnnouncedJob, describe
from support.fakes import fake_kube
from support.fakes.fake_kube import POWERLESS, RIGHT, Kube
from support.refused import refused
from support.servers.cast import PATIENT
from support.servers.cast_acting import Played, world

RACK = "topology.kubernetes.io/rack"


@pytest.fixture
async def kube() -> AsyncIterator[Kube]:
    async with fake_kube.serving() as made:
        for name in ("a", "b", "c"):
            made.add_node(name)
            made.nodes[name]["metadata"]["labels"] = {RACK: "r2" if name == "c" else "r1", "other": "x"}
        yield made


def reader(kube: Kube, folder: Path, who: str = RIGHT) -> Kubernetes:
    (token := folder / "token").write_text(who)
    return Kubernetes(KubeApi(kube.url, token, ""), lambda: 0.0)


def running(*machines: str) -> Fleet:
    fleet = Fleet(PATIENT)
    for at, machine in enumerate(machines):
        connection = fleet.connect(machine, "1", "here", 0.0)
        fleet.announce(connection, {"llama": AnnouncedJob("llama", (Rank(at),), len(machines))}, 0.0)
    return fleet


def reads(kube: Kube) -> int:
    return sum("/nodes/" in asked for asked in kube.asked)


async def test_machines_of_a_job_are_read_once_an_hour_and_a_verdict_knows_their_racks(
    kube: Kube, tmp_path: Path
) -> None:
    fleet, actor = running("a", "b", "c"), reader(kube, tmp_path)
    fleet.connect("idle", "1", "here", 0.0)
    asked = FaultDomains(fleet, [Played(), actor])
    assert isinstance(actor, PlaceReader)
    await asked.tick(0.0)
    await asked.tick(AGAIN_S - 1)
    assert reads(kube) == 3, "a machine without a job has nothing to share it with"
    switches = describe("llama", "", fleet.asked("llama"), {})[1].switches
    assert switches == {f"{RACK}=r1": ("a", "b"), f"{RACK}=r2": ("c",)}
    kube.nodes["b"]["metadata"]["labels"][RACK] = "r2"
    await asked.tick(AGAIN_S)
    assert describe("llama", "", fleet.asked("llama"), {})[1].switches[f"{RACK}=r2"] == ("b", "c")
    await actor.close()


async def test_what_is_known_outlives_the_machine_s_connection(kube: Kube, tmp_path: Path) -> None:
    fleet, actor = running("a", "b"), reader(kube, tmp_path)
    await FaultDomains(fleet, [actor]).tick(0.0)
    fleet.disconnect(fleet._connected["a"], 1.0)
    assert fleet.absent("llama", 1.0)["a"].domains == (f"{RACK}=r1",)
    await actor.close()


async def test_what_kubernetes_does_not_know_or_is_labelled_with_rubbish_says_nothing(
    kube: Kube, tmp_path: Path
) -> None:
    kube.nodes["a"]["metadata"]["labels"] = {RACK: "r 1\x1b"}
    kube.nodes["b"]["metadata"]["labels"] = None
    fleet, actor = running("a", "b", "gone", "c"), reader(kube, tmp_path)
    await FaultDomains(fleet, [actor]).tick(0.0)
    assert {name: local.domains for name, local in fleet.asked("llama").items()} == {
        "a": (), "b": (), "gone": (), "c": (f"{RACK}=r2",),
    }  # fmt: skip
    await actor.close()


async def test_a_name_that_is_no_node_s_is_not_asked_for_and_keeps_no_other_from_being_read(
    kube: Kube, tmp_path: Path
) -> None:
    fleet, actor = running("../pods", "c"), reader(kube, tmp_path)
    with refused("wrong-machine-name"):
        await FaultDomains(fleet, [actor]).tick(0.0)
    assert fleet.asked("llama")["c"].domains == (f"{RACK}=r2",)
    assert not any("pods" in asked for asked in kube.asked)
    await actor.close()


async def test_without_the_right_or_an_api_server_it_is_said_and_nothing_is_known(kube: Kube, tmp_path: Path) -> None:
    fleet, actor = running("a", "b"), reader(kube, tmp_path, POWERLESS)
    denied = FaultDomains(fleet, [actor])
    with refused("kubernetes-denied"):
        await denied.tick(0.0)
    await denied.tick(1.0)  # not asked again at once
    assert reads(kube) == 2
    kube.faults.append("GET 503")
    (tmp_path / "token").write_text(RIGHT)
    away = FaultDomains(fleet, [actor])
    with pytest.raises(BackendFailed):
        await away.tick(0.0)
    await away.tick(1.0)  # at once, for it may be back
    assert fleet.asked("llama")["a"].domains == (f"{RACK}=r1",)
    await actor.close()


@pytest.mark.parametrize(
    "told", [{"switch": "leaf-1"}, {"domains": (f"{RACK}=r1",)}], ids=["by Slurm", "by the labels of nodes"]
)
async def test_no_more_machines_of_one_switch_are_taken_than_may_be_out_at_once(
    tmp_path: Path, told: dict[str, object]
) -> None:
    played = Played()
    async with world(tmp_path / "s.db", tmp_path, played) as on:
        on.caps = structs.replace(on.caps, per_domain=1)
        on.mode = Mode.AUTO
        on.begin()
        await on.judged("0a", "a", "b")
        asked, _ = await on.store.kept("0a")
        here = AnnouncedJob("llama", (), 64)
        together = judge._written(replace(here, **told))  # type: ignore[arg-type]
        apart = judge._written(replace(here, switch="leaf-2", domains=(f"{RACK}=r2",)))
        await on.store.remember("0a", {**asked, "asked": {"a": together, "b": together, "c": apart}})
        await on.acting.tick()
        assert await on.states("0a") == {"a": "refused", "b": "refused"} and played.told == []
        assert "per_domain" in await on.words("0a")
