"""Deciding from a page: it is said first, needs the role and a page of ours, is done once, and is seen where one looks."""

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec import structs

from hangdog_models.actions.caps import Mode
from hangdog_models.errors import WrongUse
from hangdog_models.verdict import Eviction, Suspect, from_json
from hangdog_server.actions import policy
from hangdog_server.actions.backends.backend import IsolationCase
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.auth.tokens import Role
from hangdog_server.protocol.rate_limits import RateLimits
from hangdog_server.store import campaigns
from hangdog_server.store.campaigns import Campaign, CampaignState, Convict
from support.servers.cast import NOON
from support.servers.cast_acting import WIDE
from support.servers.deciding import deciding, shown
from support.servers.tested import broken, machine

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e é"


async def test_from_a_click_to_a_machine_that_is_back(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        page = (await on.alice.get(f"/incidents/{on.incident}")).text
        assert "waits for approval" in page and f'href="/incidents/{on.incident}/approve"' in page
        assert "<span>Do now</span>" in page
        asks = (await on.alice.get(f"/incidents/{on.incident}/approve")).text
        assert "Isolate a?" in asks and "use by exclude-file" in asks and on.excluded == []
        done = await on.posted("approve", "seen by eye")
        assert (done.status_code, done.headers["location"]) == (303, f"/incidents/{on.incident}")
        await on.until("done")
        assert on.excluded[0].startswith(f"a  # hangdog: {on.incident} machine")
        page = (await on.alice.get(f"/incidents/{on.incident}")).text
        assert "alice approved" in page and 'href="/machines/a/release"' in page
        assert "<span>Done</span>" in page and "Do now" not in page
        assert "approve" not in page.partition('<div class="done">')[2].partition("</div>")[0]
        assert "a is out of" in re.sub("<[^>]*>", "", (await on.alice.get("/")).text)
        assert "marks on a " in (await on.alice.get("/machines/a/release")).text
        assert (await on.posted("release")).headers["location"] == "/machines/a"
        await on.until("released")
        machine = (await on.alice.get("/machines/a")).text
        assert on.excluded == [] and "is back" in machine and "/release" not in machine
        assert ">Done and undone<" in (await on.alice.get(f"/incidents/{on.incident}")).text
    assert [one for one in on.recorded() if one[0] in ("approve", "release a")] == [
        ("approve", "alice", "asked"), ("approve", "alice", "a pending"),
        ("release a", "alice", "asked"), ("release a", "alice", "a releasing"), ("release a", "alice", "released: by alice"),
    ]  # fmt: skip


class Foretelling(ExcludeFile):
    """One that knows what the restart costs, in hostile words."""

    async def preview_restart(self, cases: Sequence[IsolationCase]) -> str:
        return f"this takes 1 of 2 restarts that JobSet {cases[0].job} has left: {HOSTILE}"


async def test_what_a_restart_costs_is_shown_to_whoever_decides(tmp_path: Path) -> None:
    async with deciding(tmp_path, actor=Foretelling(tmp_path / "excluded")) as on:
        async with asyncio.timeout(60):
            while not (words := (await on.acts())["actions"][0]["message"]):
                await asyncio.sleep(0.02)
        assert words.startswith("this takes 1 of 2 ") and "JobSet llama" in words
        asks = (await on.alice.get(f"/incidents/{on.incident}/approve")).text
        assert "Know before: this " in asks and "takes 1 of 2 " in asks
        assert "<img" not in asks and "A bound forbade" not in asks
        assert "Know before" not in (await on.alice.get(f"/incidents/{on.incident}/dismiss")).text
        page = (await on.alice.get(f"/incidents/{on.incident}")).text
        assert "waits for approval" in page and "isolated: this takes 1 of 2 " in page
        assert (await on.posted("approve")).status_code == 303
        await on.until("done")


async def test_a_form_that_comes_twice_is_done_once(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        path = f"/incidents/{on.incident}/approve"
        form = {"seen": shown((await on.alice.get(path)).text)}
        leave = {"seen": shown((await on.alice.get(f"/incidents/{on.incident}/dismiss")).text), "because": "late"}
        both = await asyncio.gather(*(on.alice.post(path, data=form) for _ in range(2)))
        assert [one.status_code for one in both] == [303, 303]
        late = await on.alice.post(f"/incidents/{on.incident}/dismiss", data=leave)
        assert late.status_code == 409 and "were shown it" in late.text
        await on.until("done")
        assert len(on.excluded) == 1
        back = {"seen": shown((await on.alice.get("/machines/a/release")).text)}
        assert (await on.alice.post("/machines/a/release", data=back)).status_code == 303
        await on.until("released")
        assert (await on.alice.post("/machines/a/release", data=back)).status_code == 303
        assert (await on.alice.post(path, data=form)).status_code == 409
        assert [one["state"] for one in (await on.acts())["actions"]] == ["released"] and on.excluded == []
    outcomes = [outcome for what, _, outcome in on.recorded() if what == "approve"]
    assert outcomes.count("a pending") == 1 and sum("nothing was done" in one for one in outcomes) == 2


async def test_what_somebody_else_decided_before_is_said_though_it_is_the_same(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        path = f"/incidents/{on.incident}/dismiss"
        form = {"seen": shown((await on.alice.get(path)).text), "because": "it is being debugged"}
        await on.site.on.store.do(policy.dismiss, on.incident, "a drill", "bob", NOON)
        late = await on.alice.post(path, data=form)
        assert late.status_code == 409 and "were shown it" in late.text
        assert [one["who"] for one in (await on.acts())["actions"]] == ["bob"]


async def test_who_asks_for_too_much_has_nothing_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def much(limits: RateLimits, person: str, now: float) -> None:
        raise WrongUse(f"{person} asks")

    async with deciding(tmp_path) as on:
        monkeypatch.setattr(RateLimits, "snapshot", much)
        refused = await on.alice.post(f"/api/incidents/{on.incident}/diagnose")
        assert refused.status_code == 409 and refused.json()["error"] == "alice asks"
        assert await on.site.on.store.ask(campaigns.about, on.incident) == ()


async def test_those_who_may_not_are_told_who_may_and_change_nothing(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        for role in (Role.VIEW, Role.TRIGGER):
            page = (await on.people[role].get(f"/incidents/{on.incident}")).text
            assert "waits for approval" in page and "alice may" in page and "/approve" not in page
            for what in ("approve", "dismiss"):
                refused = await on.posted(what, "x", by=role)
                assert refused.status_code == 403 and "this takes act" in refused.text
                asked = await on.people[role].post(f"/api/incidents/{on.incident}/{what}", json={"because": "x"})
                assert asked.status_code == 403, asked.text
            assert (await on.people[role].get(f"/incidents/{on.incident}/approve")).status_code == 403
        assert (await on.site.http.post(f"/api/incidents/{on.incident}/approve")).status_code == 401
        assert (await on.site.http.get("/machines/a/release")).headers["location"].startswith("/login?next=")
        assert [one["state"] for one in (await on.acts())["actions"]] == ["waiting"]
    assert not any(what == "approve" for what, _, _ in on.recorded())


async def test_another_sites_page_decides_nothing(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "same-site"}):
            for what in ("approve", "dismiss"):
                assert (await on.posted(what, "x", headers=headers)).status_code == 403
                path = f"/api/incidents/{on.incident}/{what}"
                assert (await on.alice.post(path, json={"because": "x"}, headers=headers)).status_code == 403
            assert (await on.alice.post("/api/machines/a/release", headers=headers)).status_code == 403
        plain = {"content-type": "text/plain"}
        asked = await on.alice.post(f"/api/incidents/{on.incident}/approve", content='{"because": "x"}', headers=plain)
        assert asked.status_code == 400 and "content-type" in asked.text
        assert [one["state"] for one in (await on.acts())["actions"]] == ["waiting"]


async def test_a_dismissal_takes_a_reason_and_shows_it_harmlessly(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        again = await on.posted("dismiss", "  ")
        assert again.status_code == 400 and "Say why" in again.text and shown(again.text)
        assert (await on.posted("dismiss", "x" * 1001)).status_code == 400
        assert (await on.alice.post(f"/incidents/{on.incident}/dismiss", data={"because": "x"})).status_code == 400
        many = "&".join(f"f{number}=1" for number in range(20))
        assert (await on.alice.post(f"/incidents/{on.incident}/dismiss", content=many)).status_code == 400
        assert (await on.posted("dismiss", HOSTILE)).status_code == 303
        for path in (f"/incidents/{on.incident}", "/", "/machines/a"):
            page = (await on.alice.get(path)).text
            assert "is left where" in page and "by alice: &lt;" in page, path
            assert "<img" not in page and "\x1b" not in page and "\u202e" not in page
        (one,) = (await on.acts())["actions"]
        assert (one["state"], one["message"], one["who"]) == ("dismissed", HOSTILE, "alice") and on.excluded == []


async def test_in_a_dry_run_there_is_nothing_to_approve(tmp_path: Path) -> None:
    async with deciding(tmp_path, Mode.DRY_RUN, state="dry-run") as on:
        page = (await on.alice.get(f"/incidents/{on.incident}")).text
        assert "isolated (dry run)" in page and "mode dry-run" in page
        assert "/approve" not in page and "/dismiss" in page
        assert f"<code>scontrol update nodename=a state=drain reason=&#39;hangdog: {on.incident}&#39;" in page, page
        refused = await on.alice.get(f"/incidents/{on.incident}/approve")
        assert refused.status_code == 409 and "mode dry-run" in refused.text
        asked = await on.alice.post(f"/api/incidents/{on.incident}/approve")
        assert asked.status_code == 409 and asked.json()["code"] == "acting-disabled"
        wild = '{"because": "\\u0000\\ud800 rehearsed"}'
        json_ = {"content-type": "application/json"}
        done = await on.alice.post(f"/api/incidents/{on.incident}/dismiss", content=wild, headers=json_)
        assert done.json()["actions"][0]["message"] == "\ufffd? rehearsed"


async def test_what_bounds_forbid_and_operators_stop_is_said_in_words(tmp_path: Path) -> None:
    async with deciding(tmp_path, caps=structs.replace(WIDE, per_hour=0), state="refused") as on:
        path = f"/incidents/{on.incident}"
        for each in (path, "/", "/machines/a"):
            page = (await on.alice.get(each)).text
            assert "not isolated: 1 machine" in page and ", 0 are allowed" in page, each
        (tmp_path / "stop").touch()
        for each in (path, f"{path}/approve", "/"):
            assert "operator stopped everything" in (await on.alice.get(each)).text, each
        assert "forbade it: 1 machine" in (await on.alice.get(f"{path}/approve")).text
        page = (await on.alice.get(path)).text
        assert ">Do by hand<" in page and "kubectl cordon a" in page, "what is refused has a way out"
        refused = await on.posted("approve")
        assert refused.status_code == 409 and "0 are allowed (per_hour)" in refused.text and on.excluded == []
        assert "Isolate a</button>" in refused.text and "kubectl cordon a" in refused.text, "no button ends in an error"
        await on.site.on.store.do(policy.set_breaker, "half of all machines were asked for", "", NOON)
        page = (await on.alice.get(path)).text
        assert "breaker is open (half " in page and "/approve" not in page and "/dismiss" in page
        page = (await on.alice.get("/")).text
        assert "breaker is open" in page and ": half of" in page


async def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        for path in ("/incidents/zzz/approve", "/incidents/zzz/dismiss", "/machines/zzz/release"):
            for found in (await on.alice.get(path), await on.alice.post(path, data={"seen": "x", "because": "x"})):
                assert found.status_code == 404 and "zzz" in found.text, path
            asked = await on.alice.post(f"/api{path}", json={"because": "x"})
            assert asked.status_code == 404 and "zzz" in asked.json()["error"]
            assert asked.json()["code"] == ("machine-not-isolated" if "machines" in path else "no-such-incident")
        assert (await on.alice.get("/machines/a/release")).status_code == 409, "nothing is marked yet"
        for wrong in ("[]", "{", '{"because": 1}', '{"becuase": "x"}', '"' * 3):
            json_ = {"content-type": "application/json"}
            asked = await on.alice.post(f"/api/incidents/{on.incident}/approve", content=wrong, headers=json_)
            assert asked.status_code == 400, wrong
        assert (await on.alice.post("/api/incidents/x/approve", content=b"x" * 20000)).status_code == 404
        for unasked in (await on.alice.get("/api/incidents/x/approve"), await on.alice.request("TRACE", "/api/now")):
            assert unasked.status_code == 405 and unasked.json()["hint"] == f"use {unasked.headers['allow']}"
        assert (await on.alice.get("/machines/nobody")).status_code == 404
        assert (await on.alice.get("/api/actions?limit=x")).status_code == 404


async def test_programs_decide_by_the_same_rules_and_are_answered_as_documented(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on:
        document = (await on.alice.get("/api/openapi.json")).json()

        async def asked(path: str, because: str = "") -> dict[str, Any]:
            found = await on.alice.post(path.format(id=on.incident[:6], name="a"), json={"because": because})
            content = document["paths"][path]["post"]["responses"][str(found.status_code)]["content"]
            jsonschema.validate(
                found.json(), {**content["application/json"]["schema"], "components": document["components"]}
            )
            answer: dict[str, Any] = found.json()
            return answer

        assert (await asked("/api/incidents/{id}/dismiss"))["code"] == "text-missing"
        told = await asked("/api/incidents/{id}/approve", "seen by eye")
        assert (told["actions"][0]["state"], told["mode"], told["actors"]) == ("pending", "approve", ["exclude-file"])
        assert (await asked("/api/incidents/{id}/approve"))["code"] == "nothing-to-decide"
        await on.until("done")
        assert (await asked("/api/machines/{name}/release"))["actions"][0]["state"] == "releasing"
        await on.until("released")
        assert (await asked("/api/machines/{name}/release"))["code"] == "machine-not-isolated"
        life = (await on.alice.get("/api/machines/a")).json()
        assert life["ledger"][0]["mention"] == "convicted" and life["tests"] == []


async def test_open_pages_are_told_of_what_is_done_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangdog_server.web.live_feed.BEAT_S", 0.5)
    async with deciding(tmp_path) as on, asyncio.timeout(60):
        paths = []
        for page in (f"/incidents/{on.incident}", "/", "/machines", "/machines/a"):
            paths.append(html.unescape((await on.alice.get(page)).text.partition('data-events="')[2].partition('"')[0]))
        async with AsyncExitStack() as open_pages:
            streams = [await open_pages.enter_async_context(on.alice.stream("GET", path)) for path in paths]
            told = [one.aiter_lines() for one in streams]
            for lines in told:
                for _ in range(3):  # one at once, and then all the time
                    assert await said(lines, "retry: 3000") == "event: beat"
            await on.posted("approve")
            for lines in told:
                assert await said(lines, "event: beat") == "event: state"


async def test_campaigns_are_told_of_and_a_convicted_machine_is_on_probation(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on, asyncio.timeout(60):
        store, path = on.site.on.store, f"/incidents/{on.incident}"
        campaign = Campaign("c0ffee", NOON, "bob", HOSTILE, on.incident, {"prior": [["a", 0.5], ["b", 0.5]]})
        await store.do(campaigns.begin, campaign)
        page = (await on.alice.get(path)).text
        assert "by bob: a, b being" in page and "<img" not in page
        told = page.partition('data-events="')[2].partition('"')[0]
        report = {"convicted": [{"machine": "a"}], "untested": [], "launches": [{}], "tell": [], "verdict": "convicted"}
        assert "on probation" not in (await on.alice.get("/machines")).text
        async with on.alice.stream("GET", told) as here:
            end = CampaignState.DONE, NOON + 60, "", json.dumps(report), (Convict("a", 0.99),)
            await store.do(campaigns.end, "c0ffee", *end)
            assert await said(here.aiter_lines(), "retry: 3000", "event: beat") == "event: state"
        for each in (path, "/"):
            assert "convicted: a, after 1 launch" in (await on.alice.get(each)).text
        page = (await on.alice.get(path)).text
        assert "bob has machines" in page and "tested by campaign c0ffee" in page
        assert (await on.alice.get("/machines")).text.count("on probation") == 1
        machine = (await on.alice.get("/machines/a")).text
        assert "On probation until 2027-02-19" in machine and "whole, by campaign c0ffee" in machine
        life = (await on.alice.get("/api/machines/a")).json()
        assert life["convictions"][0]["campaign"] == "c0ffee" and life["probation"] > NOON + 60
        await store.do(campaigns.begin, replace(campaign, id="dead"))
        await store.do(campaigns.end, "dead", CampaignState.FAILED, NOON + 90, "", "{}", ())
        assert "campaign dead: failed: " in (await on.alice.get(path)).text


async def test_tests_are_started_once_and_what_they_find_is_shown(tmp_path: Path) -> None:
    async with deciding(tmp_path) as on, machine(on.site.on, "y", broken(1)) as y:
        (before,) = [await on.site.on.store.find(on.incident)]
        other = replace(before, id="fee1")
        await on.site.on.store.begin(other, {"asked": {"y": None}, "absent": {}})
        found = replace(
            from_json(json.loads(before.verdict)), suspects=(Suspect((), ("y",), 0.9, ()),), evict=Eviction()
        )
        await on.site.on.store.judged("fee1", found, NOON)
        path = "/incidents/fee1"
        assert f'href="{path}/diagnose"' in (await on.alice.get(path)).text
        assert "/diagnose" not in (await on.people[Role.TRIGGER].get(path)).text
        asks = (await on.alice.get(f"{path}/diagnose")).text
        assert "Test 1 machine?" in asks and "y is loaded" in asks and not y.orders
        form = {"seen": shown(asks), "because": HOSTILE}
        for role in (Role.VIEW, Role.TRIGGER):
            assert (await on.people[role].post(f"{path}/diagnose", data=form)).status_code == 403
        evil = {"origin": "http://evil.example"}
        assert (await on.alice.post(f"{path}/diagnose", data=form, headers=evil)).status_code == 403
        both = await asyncio.gather(*(on.alice.post(f"{path}/diagnose", data=form) for _ in range(2)))
        assert [one.status_code for one in both] == [303, 303]
        async with asyncio.timeout(60):
            while "convicted: y, after" not in (page := (await on.alice.get(path)).text):
                await asyncio.sleep(0.02)
        assert "asked for by alice" in page and "<img" not in page
        assert (await on.alice.post(f"{path}/diagnose", data=form)).status_code == 303
        assert len(await on.site.on.store.ask(campaigns.about, "fee1")) == 1
        tested = (await on.alice.get("/machines/y")).text
        assert tested.count("one device: gemm") == 1 and "<td>3 x fail</td>" in tested, "launches of one second"
        asked = await on.alice.post(f"/api{path}/diagnose")
        assert asked.status_code == 200 and len(await on.site.on.store.ask(campaigns.about, "fee1")) == 2
        none = await on.alice.post("/api/incidents/zzz/diagnose")
        assert none.status_code == 404
    told = [(who, outcome.partition(",")[0]) for what, who, outcome in on.recorded() if what == "diagnose"]
    assert told[0] == ("alice", "asked") and ("alice", "convicted: y") in told


async def said(lines: AsyncIterator[str], *but: str) -> str:
    """The first line that says something else, and is none of the data of an event."""
    async for line in lines:
        if line and line not in but and not line.startswith("data: "):
            return line
    return ""
