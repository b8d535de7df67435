"""Closing the breaker and ending a campaign from a page: said first, for those who may, from a page of ours, and once."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import jsonschema

from hangdog_models.verdict import Eviction, Suspect, from_json
from hangdog_server.actions import policy
from hangdog_server.auth.tokens import Role
from hangdog_server.store import actions, campaigns
from hangdog_server.store.campaigns import Campaign, CampaignState
from support.servers.cast import NOON
from support.servers.deciding import Deciding, deciding, shown
from support.servers.tested import machine

WHY = "half of all machines were asked for"
CLOSE = "/breaker/close"


async def opened(on: Deciding, why: str = WHY, at: float = NOON) -> None:
    await on.site.on.store.do(policy.set_breaker, why, "", at)


async def test_the_breaker_is_closed_once_and_only_the_one_that_was_shown(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        assert (await on.alice.get(CLOSE)).status_code == 409, "it is not open"
        assert (await on.alice.post(f"/api{CLOSE}")).status_code == 409
        await opened(on)
        page = (await on.alice.get("/")).text
        assert WHY in page and f'href="{CLOSE}"' in page
        assert f'href="{CLOSE}"' in (await on.alice.get(f"/incidents/{on.incident}")).text
        asks = (await on.alice.get(CLOSE)).text
        assert "Close the breaker?" in asks and f"It opened because: {WHY}" in asks
        form = {"seen": shown(asks), "because": "the switch is repaired"}
        assert (await on.alice.post(CLOSE, data={"because": "x"})).status_code == 400, "no form of ours"
        await opened(on, "again, for another reason", NOON + 1)
        late = await on.alice.post(CLOSE, data=form)
        assert late.status_code == 409 and "were shown it" in late.text
        assert "another reason" in (await on.acts())["breaker"]
        form["seen"] = shown((await on.alice.get(CLOSE)).text)
        both = await asyncio.gather(*(on.alice.post(CLOSE, data=form) for _ in range(2)))
        assert [(one.status_code, one.headers["location"]) for one in both] == [(303, "/")] * 2
        assert (await on.acts())["breaker"] == "" and CLOSE not in (await on.alice.get("/")).text
        await opened(on, "a third time", NOON + 2)
        told = await on.alice.post(f"/api{CLOSE}", json={"because": "seen to"})
        assert told.status_code == 200 and told.json()["breaker"] == ""
    outcomes = [outcome for what, who, outcome in on.recorded() if (what, who) == ("close-breaker", "alice")]
    assert outcomes.count("closed") == 2 and sum("nothing was done" in one for one in outcomes) == 2


async def test_an_open_breaker_is_seen_where_nothing_was_done_lately(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        await on.site.on.store.do(actions.forget, NOON + 1e6)
        await opened(on)
        assert WHY in (await on.people[Role.VIEW].get("/")).text


async def test_neither_is_for_those_who_may_not_nor_for_anothers_page(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        await opened(on)
        asked = {"prior": [["a", 0.5]]}
        await on.site.on.store.do(campaigns.begin, Campaign("c0ffee", NOON, "bob", "", on.incident, asked))
        end = "/campaigns/c0ffee/abort"
        for path in (CLOSE, end):
            form = {"seen": shown((await on.alice.get(path)).text), "because": "x"}
            for role in (Role.VIEW, Role.TRIGGER):
                assert (await on.people[role].get(path)).status_code == 403
                assert (await on.people[role].post(path, data=form)).status_code == 403
                assert (await on.people[role].post(f"/api{path}", json={"because": "x"})).status_code == 403
                for page in ("/", f"/incidents/{on.incident}"):
                    assert path not in (await on.people[role].get(page)).text
            for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
                assert (await on.alice.post(path, data=form, headers=headers)).status_code == 403
                assert (await on.alice.post(f"/api{path}", json={}, headers=headers)).status_code == 403
            assert (await on.site.http.post(f"/api{path}")).status_code == 401
        assert (await on.acts())["breaker"] == WHY
        assert (await on.site.on.store.ask(campaigns.find, "c0ffee")).state is CampaignState.RUNNING
        elsewhere = await on.alice.post(f"/api{end}")
        assert elsewhere.status_code == 503 and elsewhere.json()["code"] == "not-the-leader"
    assert not any(who in ("view", "trigger") for _, who, _ in on.recorded())


async def test_a_campaign_is_ended_once_with_what_is_known(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on, machine(on.site.on, "y", lambda _: None) as y:
        (before,) = [await on.site.on.store.find(on.incident)]
        await on.site.on.store.begin(replace(before, id="fee1"), {"asked": {"y": None}, "absent": {}})
        found = replace(
            from_json(json.loads(before.verdict)), suspects=(Suspect((), ("y",), 0.9, ()),), evict=Eviction()
        )
        await on.site.on.store.judged("fee1", found, NOON)
        name = (await on.alice.post("/api/incidents/fee1/diagnose")).json()["campaign"]
        order = await y.ordered()
        end = f"/campaigns/{name}/abort"
        for page in ("/", "/incidents/fee1"):
            assert f'href="{end}"' in (await on.alice.get(page)).text
        asks = (await on.alice.get(end)).text
        assert f"campaign {name}?" in asks and "tests of y " in asks
        assert (await on.alice.post(end, data={"because": "x"})).status_code == 400, "no form of ours"
        form = {"seen": shown(asks), "because": "the job must go on"}
        one = await on.alice.post(end, data=form)
        assert (one.status_code, one.headers["location"]) == (303, "/incidents/fee1")
        await y.ended(order.launch)
        assert (await on.alice.post(end, data=form)).status_code == 303, "sent twice it is done once"
        assert (await on.site.on.store.ask(campaigns.find, name)).state is CampaignState.ABORTED
        assert (await on.alice.get(end)).status_code == 409
        for page in ("/", "/incidents/fee1"):
            assert end not in (await on.alice.get(page)).text
        document = (await on.alice.get("/api/openapi.json")).json()
        for path, status in ((name, 409), ("zzz", 404)):
            told = await on.alice.post(f"/api/campaigns/{path}/abort", json={"because": "x"})
            answers = document["paths"]["/api/campaigns/{id}/abort"]["post"]["responses"]
            assert told.status_code == status
            schema = answers[str(status)]["content"]["application/json"]["schema"]
            jsonschema.validate(told.json(), {**schema, "components": document["components"]})
    ended = [(who, outcome.partition(":")[0]) for what, who, outcome in on.recorded() if what == "abort diagnose"]
    assert ended == [("alice", "asked"), ("alice", "aborted")]
