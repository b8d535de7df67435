"""Those who are told of acts over HTTP: what they are sent, signed how, and what an answer of theirs means."""

import hashlib
import hmac
import json
import time
from datetime import datetime

import pytest

from hangdog_server.actions.backends.alertmanager import Alertmanager
from hangdog_server.actions.backends.backend import BackendFailed, IsolationCase
from hangdog_server.actions.backends.http_client import HttpAnswer, opened, send, shown
from hangdog_server.actions.backends.webhook import Webhook
from support.fakes.receiver import receiving
from support.refused import refused

NOON = 1_800_000_000.0
CASE = IsolationCase("0a1b", "gpu-a17", "llama", "rank 3 is in gc_collect")


async def test_a_webhook_is_signed_over_time_and_body_and_keyed_by_the_act() -> None:
    async with receiving() as receiver:
        hook = Webhook(receiver.url, b"s" * 32, lambda: NOON)
        await hook.mark(CASE)
        await hook.mark(CASE)
        await hook.unmark(CASE)
        await hook.close()
    (what, headers, body), again, end = receiver.requests
    assert what == "POST /hook" and again[2] == body
    assert json.loads(body) == {
        "schema": "hangdog.act/1", "act": "mark", "key": "0a1b/gpu-a17/mark", "incident": "0a1b",
        "machine": "gpu-a17", "job": "llama", "because": "rank 3 is in gc_collect",
    }  # fmt: skip
    expected = hmac.new(b"s" * 32, b"1800000000." + body, hashlib.sha256).hexdigest()
    assert headers["x-hangdog-signature"] == f"sha256={expected}" and headers["x-hangdog-timestamp"] == "1800000000"
    assert headers["idempotency-key"] == "0a1b/gpu-a17/mark"
    assert json.loads(end[2])["act"] == "unmark"


@pytest.mark.parametrize(
    ("status", "again"), [(500, True), (503, True), (429, True), (302, False), (400, False), (401, False), (404, False)]
)
async def test_only_a_status_of_success_is_delivery(status: int, again: bool) -> None:
    async with receiving() as receiver:
        receiver.status, receiver.headers = status, "Location: http://127.0.0.1:9/\r\n"
        with pytest.raises(BackendFailed, match=f"{status}: what") as caught:
            await Webhook(receiver.url, b"s" * 32, lambda: NOON).mark(CASE)
    assert caught.value.code == "backend-answered-error" and caught.value.again is again
    assert caught.value.hint and len(receiver.requests) == 1


async def test_one_who_hangs_up_is_tried_again() -> None:
    async with receiving() as receiver:
        receiver.silent = True
        with pytest.raises(BackendFailed) as caught:
            await Webhook(receiver.url, b"s" * 32, lambda: NOON).mark(CASE)
    assert caught.value.again


async def test_one_who_answers_a_byte_at_a_time_is_not_waited_for() -> None:
    async with receiving() as receiver, opened() as client:
        receiver.slow = True
        with pytest.raises(BackendFailed, match=r"0\.5 s") as caught:
            await send(client, "POST", receiver.url, within_s=0.5)
    assert caught.value.code == "backend-unreachable" and caught.value.again and caught.value.hint


def test_what_is_no_json_is_said() -> None:
    for content in (b"[" * 100_000, b"{", b"\xff"):
        with refused("backend-answer-unreadable"):
            HttpAnswer(200, content).json()


async def test_an_alert_is_sent_with_labels_that_never_change_and_resolved() -> None:
    async with receiving() as receiver:
        alerts = Alertmanager(receiver.url.removesuffix("/hook") + "/", lambda: NOON, "north")
        await alerts.mark(CASE)
        await alerts.unmark(CASE)
        await alerts.close()
    (up,), (down,) = (json.loads(body) for _, _, body in receiver.requests)
    assert receiver.requests[0][0] == "POST /api/v2/alerts" and up["labels"] == down["labels"]
    assert up["labels"] == {
        "alertname": "HangdogMachineOut", "incident": "0a1b", "machine": "gpu-a17", "job": "llama", "cluster": "north",
    }  # fmt: skip
    assert datetime.fromisoformat(up["endsAt"]).timestamp() == NOON + 240
    assert datetime.fromisoformat(down["endsAt"]).timestamp() == NOON


@pytest.mark.slow
@pytest.mark.parallel
async def test_a_real_alertmanager_lets_an_alert_end_that_is_not_sent_again(alerts: str) -> None:
    behind = time.time() - 238.0  # noqa: TID251  # it goes by the clock of this machine
    actor = Alertmanager(alerts, lambda: behind)
    await actor.mark(CASE)
    assert (await actor.look(CASE)).mark == "ours"
    until = time.monotonic() + 60
    while (await actor.look(CASE)).mark != "none":
        assert time.monotonic() < until
    await actor.close()


def test_an_address_is_shown_without_its_secrets() -> None:
    assert shown("https://u:secret@h:1/path?token=secret#x") == "https://h:1/path"
