"""An incident that people were done with is open again by itself where its standstill goes on, and only then."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.actions.respond import ResponseDecision
from hangdog_models.incident import Incident, IncidentResponse, IncidentState, ResponseKind, ResponseState, SettledCause
from hangdog_server.auth.audit_log import AuditLog
from hangdog_server.incidents.episode.reopening import GOES_ON_S, Reopening, reason
from hangdog_server.store.history import responses
from support.servers.cast import NOON
from support.servers.cast_acting import world
from support.worded import names

DISMISSED = IncidentResponse(ResponseState.DISMISSED, "ada", NOON, "a drill", verdict="judged undetermined")
OPEN = Incident(
    "0a", "llama", NOON - 60, state=IncidentState.JUDGED, changed=NOON - 30, kind="undetermined", response=DISMISSED
)
NAMES_A = replace(OPEN, kind="machine", evict=("a",), changed=NOON + 5)


@pytest.mark.parametrize(
    ("incident", "after_s", "named"),
    [
        (OPEN, GOES_ON_S - 1, ()),
        (OPEN, GOES_ON_S, ("llama", "10 minutes")),
        (replace(OPEN, went_on_s=99.0), GOES_ON_S, ()),
        (replace(OPEN, response=IncidentResponse()), GOES_ON_S, ()),
        (NAMES_A, 6.0, ("further look", "names a")),
        (replace(NAMES_A, response=replace(DISMISSED, verdict="judged machine a")), 6.0, ()),
        (replace(NAMES_A, kind="software", evict=()), 6.0, ()),
        (replace(NAMES_A, settled=SettledCause("machine", ("a",))), 6.0, ()),
    ],
)
def test_what_opens_it(incident: Incident, after_s: float, named: tuple[str, ...]) -> None:
    why = reason(incident, NOON + after_s)
    assert bool(why) is bool(named) and names(why, *named)


async def test_it_is_opened_once_recorded_and_convicts_again(tmp_path: Path) -> None:
    async with world(tmp_path / "s.db", tmp_path) as on:
        await on.judged("0a", "a")
        await on.store.do(responses.respond, "0a", ResponseDecision(ResponseKind.DISMISSED, "ada", NOON, "no"))
        reopening = Reopening(on.means, AuditLog(tmp_path / "audit.jsonl", lambda: on.now))
        assert reopening.due("0a", 1.0) and not reopening.due("0a", 2.0) and reopening.due("0a", 20.0)
        await reopening.check("0a")
        assert (await on.store.find("0a")).response.closed
        on.now += GOES_ON_S
        for _ in range(2):
            await reopening.check("0a")
        entries = await on.store.ask(responses.of, "0a")
        assert [(one.what, one.who) for one in entries] == [("dismissed", "ada"), ("reopened", "hangdog")]
    lines = [json.loads(one) for one in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [one["outcome"] for one in lines if one["what"] == "reopen"] == ["asked", "reopened"]
