"""NVSentinel, against a pretend platform connector: events by its numbers, healthy ones on release, opted-out nodes left alone."""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from hangdog_server.actions.backends.actions_config import chosen
from hangdog_server.actions.backends.backend import BackendFailed, IsolationCase, Mark
from hangdog_server.actions.backends.kube_api import KubeApi
from hangdog_server.actions.backends.nvsentinel import OPTED_OUT, NVSentinel
from support.fakes import fake_kube, fake_nvsentinel
from support.fakes.fake_kube import RIGHT, Kube
from support.fakes.fake_nvsentinel import CONTACT_SUPPORT, EXECUTE_REMEDIATION, STORE_ONLY, Connector

CASE = IsolationCase("0a1b", "gpu-a17", "llama", "rank 3 is in gc_collect")
NOON = 1_800_000_000.5


@dataclass
class Stage:
    kube: Kube
    connector: Connector
    api: KubeApi
    actor: NVSentinel

    def events(self) -> list[dict[str, Any]]:
        return [MessageToDict(event) for event in self.connector.events]


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stage]:
    (token := tmp_path / "token").write_text(RIGHT)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())  # a socket's path has 107 characters
        connector = await stack.enter_async_context(fake_nvsentinel.serving(Path(folder) / "s"))
        kube = await stack.enter_async_context(fake_kube.serving())
        kube.add_node("gpu-a17")
        api = KubeApi(kube.url, token, "")
        actor = NVSentinel(api, lambda: NOON, str(connector.socket))
        stack.push_async_callback(actor.close)
        yield Stage(kube, connector, api, actor)


async def test_a_mark_is_an_event_and_a_release_a_healthy_one_of_the_same_part(on: Stage) -> None:
    await on.actor.mark(CASE)
    await on.actor.unmark(CASE)
    unwell, well = on.events()
    same = {
        "version": 1, "agent": "hangdog", "componentClass": "Node", "checkName": "HangdogVerdict", "nodeName": "gpu-a17",
        "entitiesImpacted": [{"entityType": "INCIDENT", "entityValue": "0a1b"}], "processingStrategy": STORE_ONLY,
        "generatedTimestamp": {"seconds": "1800000000", "nanos": 500_000_000},
    }  # fmt: skip
    assert unwell.items() >= same.items() and well.items() >= same.items()
    assert unwell["isFatal"] and "isHealthy" not in unwell and unwell["recommendedAction"] == CONTACT_SUPPORT
    assert unwell["message"] == CASE.reason and unwell["errorCode"] == ["HangdogVerdict"]
    assert {one["key"]: one["value"] for one in unwell["metadata"]} == {"incident": "0a1b", "job": "llama"}
    assert well["isHealthy"] and not {"isFatal", "recommendedAction", "errorCode"} & well.keys()


async def test_it_may_act_only_where_an_operator_says_so(on: Stage) -> None:
    acting = NVSentinel(on.api, lambda: NOON, str(on.connector.socket), act=True)
    await acting.mark(CASE)
    assert on.events()[0]["processingStrategy"] == EXECUTE_REMEDIATION


async def test_a_node_that_is_out_of_its_hands_is_left_alone(on: Stage) -> None:
    labels = on.kube.nodes["gpu-a17"]["metadata"]["labels"]
    labels[OPTED_OUT] = "false"
    assert (await on.actor.look(CASE)).mark is Mark.ANOTHERS
    for act in (on.actor.mark, on.actor.unmark):
        with pytest.raises(BackendFailed, match="ManagedByNVSentinel=false") as caught:
            await act(CASE)
        assert not caught.value.again and caught.value.code == "already-isolated"
    assert on.events() == []
    labels[OPTED_OUT] = "true"
    await on.actor.mark(CASE)
    assert len(on.events()) == 1


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (grpc.StatusCode.UNAVAILABLE, True), (grpc.StatusCode.RESOURCE_EXHAUSTED, True), (grpc.StatusCode.UNKNOWN, True),
        (grpc.StatusCode.UNIMPLEMENTED, False), (grpc.StatusCode.INVALID_ARGUMENT, False),
    ],
)  # fmt: skip
async def test_refusals_say_what_to_do(on: Stage, code: grpc.StatusCode, again: bool) -> None:
    on.connector.refuses = code
    with pytest.raises(BackendFailed, match=f"{code.name} what it says") as caught:
        await on.actor.mark(CASE)
    assert caught.value.code == "nvsentinel-failed" and caught.value.again is again and caught.value.hint


async def test_one_who_does_not_answer_is_not_waited_for_and_heard_again_when_it_is_back(on: Stage) -> None:
    on.connector.mute = True
    hasty = NVSentinel(on.api, lambda: NOON, str(on.connector.socket), within_s=0.3)
    with pytest.raises(BackendFailed, match="DEADLINE_EXCEEDED") as caught:
        await hasty.mark(CASE)
    assert caught.value.again
    on.connector.mute = False
    await on.actor.mark(CASE)
    assert on.events()


async def test_a_socket_that_nobody_reads_from_is_not_waited_for(on: Stage) -> None:
    """Its owner is stopped: the kernel takes the connection, and what is said over it."""
    path = f"{on.connector.socket}-stopped"
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(path)
        stopped.listen()
        hasty = NVSentinel(on.api, lambda: NOON, path, within_s=0.3)
        async with asyncio.timeout(60):
            with pytest.raises(BackendFailed, match="DEADLINE_EXCEEDED") as caught:
                await hasty.mark(CASE)
    assert caught.value.again


async def test_a_node_nobody_knows_is_told_of_to_nobody(on: Stage) -> None:
    with pytest.raises(BackendFailed, match="404") as caught:
        await on.actor.mark(replace(CASE, machine="gpu-x"))
    assert caught.value.code == "kubernetes-not-found"
    assert not caught.value.again and "--machine" in caught.value.hint and on.events() == []


def test_it_is_chosen_by_name(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(RIGHT)
    file = tmp_path / "acting.toml"
    said = f"url = 'http://127.0.0.1:9'\ntoken_file = '{tmp_path}/token'\nsocket = '/run/s'\nact = true"
    file.write_text(f"actors = ['nvsentinel']\n[nvsentinel]\n{said}\n")
    (actor,) = chosen(file, lambda: 0.0).actors
    assert isinstance(actor, NVSentinel)
