"""The pages of a running server: what they show, how they change while open, and the same as JSON."""

import asyncio
import html
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.incident import Incident, IncidentState, SettledCause
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, StallCause, Verdict, from_json
from hangdog_models.views.answer_text import answer
from hangdog_models.views.job_state import headline
from hangdog_server.store.history import responses
from hangdog_server.web.live_feed import MOST
from support.servers.browsed import Browsed, browsed, hang, visitor
from support.servers.cast import NOON, PATIENT, cluster


async def told(http: httpx.AsyncClient, path: str) -> Any:
    found = await http.get(path)
    assert found.status_code == 200, found.text
    return found.json()


async def test_a_judged_incident_is_shown_with_all_it_rests_on(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        name = await hang(site.on)
        page = (await site.http.get(f"/incidents/{name}")).text
        assert await answered(site, name) in page and "read_bytes" in page and 'id="map"' in page
        assert f'data-events="/api/incidents/{name}/events?seen=judged@' in page
        assert "somebody asked" in page


async def answered(site: Browsed, incident: str) -> str:
    """What the verdict of an incident says in a line, which names machine b, where rank 2 is stuck in its driver."""
    told = answer(from_json(json.loads((await site.on.store.find(incident)).verdict)))
    assert told.startswith("b ")
    return told


async def test_an_incident_is_found_by_the_beginning_of_its_id_and_none_is_said(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        name = await hang(site.on)
        assert (await site.http.get(f"/incidents/{name[:5]}")).status_code == 200
        for path in ("/incidents/zzz", "/nowhere", "/incidents/%00", "/incidents/%2e%2e%2fx"):
            found = await site.http.get(path)
            assert found.status_code == 404 and "<h1>" in found.text, path
        assert (await told_status(site.http, "/api/incidents/zzz")) == (404, "no-such-incident")


async def told_status(http: httpx.AsyncClient, path: str) -> tuple[int, str]:
    found = await http.get(path)
    return found.status_code, found.json()["code"]


async def test_what_is_true_now_is_on_the_first_page(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        empty = await told(site.http, "/api/now")
        assert empty["jobs"] == [] and f">{headline([]).text}</h1>" in (await site.http.get("/")).text
        name = await hang(site.on)
        async with cluster(site.on, a=[0, 1]):
            page = (await site.http.get("/")).text
            now = await told(site.http, "/api/now")
        (suspect, *_), above = now["suspects"], now["headline"]["text"]
        assert suspect["reason"].startswith("rank 2 ") and f"<p>{suspect['reason']}</p>" in page
        assert f"/incidents/{name}" in page and f">{above}</h1>" in page
        assert above.startswith("llama ") and "agent of b " in above
        assert now["jobs"][0]["name"] == "llama" and now["jobs"][0]["status"] == "stuck"
        assert now["suspects"][0]["machines"] == ["b"] and now["suspects"][0]["probability"] > 0.5


async def test_a_job_that_went_on_is_said_to_with_what_earlier_looks_came_to(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        store, name = site.on.store, await hang(site.on)
        before = await store.find(name)
        asked, _ = await store.kept(name)
        slow = replace(from_json(json.loads(before.verdict)), kind=Kind.SLOW, evict=Eviction())
        await store.judged_again(name, asked, slow, NOON + 20)
        held_up = (await site.http.get("/")).text
        assert "went on" not in held_up and (await told(site.http, "/api/now"))["suspects"]
        await store.went_on(name, 34.4)
        page = (await site.http.get(f"/incidents/{name}")).text
        assert "went on after 34 s" in page and f"look 1: {before.kind}, " in page and "look 2: slow" in page
        assert 'id="map"' in page, "what is kept tells it still"
        assert ">went on after 34 s<" in (await site.http.get("/")).text
        now = await told(site.http, "/api/now")
        assert now["suspects"] == [], "nobody was to blame"
        (line,) = now["incidents"]
        assert (line["went_on_s"], [one["kind"] for one in line["earlier"]]) == (34.4, [before.kind])
        schemas = (await told(site.http, "/api/openapi.json"))["components"]["schemas"]
        jsonschema.validate(line, {**schemas["IncidentLine"], "components": {"schemas": schemas}})


async def test_what_people_say_that_it_was_stands_on_its_page_and_changes_it(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        store, name = site.on.store, await hang(site.on)
        assert "resolved by" not in (await site.http.get(f"/incidents/{name}")).text
        for at, reason in enumerate(("<b>a deadlock</b>", "another one")):  # drawn pages are kept: each word draws anew
            kept = SettledCause("software", (), reason, "ada", NOON + at)
            await store.do(responses.resolve, name, kept)
            page = (await site.http.get(f"/incidents/{name}")).text
            assert f"ada: software, {html.escape(reason)}" in page
        (line,) = (await told(site.http, "/api/incidents"))["incidents"]
        assert line["settled"] == {
            "cause": "software", "machines": [], "reason": "another one", "who": "ada", "at": NOON + 1,
        }  # fmt: skip
        schemas = (await told(site.http, "/api/openapi.json"))["components"]["schemas"]
        jsonschema.validate(line, {**schemas["IncidentLine"], "components": {"schemas": schemas}})


async def test_an_old_verdict_suspects_nobody_now(tmp_path: Path) -> None:
    clock = NOON
    async with browsed(tmp_path / "s.db", clock=lambda: clock) as site:
        await hang(site.on)
        assert (await told(site.http, "/api/now"))["suspects"]
        clock += 25 * 3600
        assert not (await told(site.http, "/api/now"))["suspects"]


@pytest.mark.parametrize(("by_machine", "suspected"), [(0.0, []), (0.3, [0.3])])
async def test_a_verdict_that_blames_the_code_suspects_a_machine_as_far_as_it_may_be_that(
    tmp_path: Path, by_machine: float, suspected: list[float]
) -> None:
    def software(snapshot: Snapshot, topology: Topology) -> Verdict:
        verdict = diagnose(snapshot, topology)
        assert verdict.culprit is not None
        causes = {StallCause.SOFTWARE: 0.6, StallCause.MACHINE: by_machine}
        return replace(verdict, kind=Kind.SOFTWARE, evict=Eviction(), culprit=replace(verdict.culprit, causes=causes))

    async with browsed(tmp_path / "s.db", software) as site:
        await hang(site.on)
        now = await told(site.http, "/api/now")
        assert [one["probability"] for one in now["suspects"]] == suspected
        assert now["incidents"][0]["verdict"] == "software"


async def test_machines_are_listed_with_what_verdicts_said_of_them(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        await hang(site.on)
        async with cluster(site.on, a=[0, 1]):
            machines = {one["name"]: one for one in (await told(site.http, "/api/machines"))["machines"]}
            assert machines["a"]["connected"] and not machines["b"]["connected"]
            assert machines["b"]["suspected"] + machines["b"]["convicted"] == 1
            assert "Machines" in (await site.http.get("/machines")).text


async def test_every_answer_is_as_its_openapi_document_says(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        name = await hang(site.on)
        document = await told(site.http, "/api/openapi.json")
        assert document["openapi"] == "3.1.0"
        async with cluster(site.on, a=[0, 1]):
            for path, operations in document["paths"].items():
                if "get" not in operations:
                    continue
                content = operations["get"]["responses"]["200"]["content"]
                if "application/json" not in content:
                    continue
                schema = {**content["application/json"]["schema"], "components": document["components"]}
                of = "llama" if path.startswith("/api/jobs/") else "b"  # a job, or a machine
                answer = await told(site.http, path.format(id=name, name=of))
                jsonschema.validate(answer, schema)
                assert any(answer.values()), path


async def events(site: Browsed, path: str, count: int) -> list[dict[str, Any]]:
    """The first events that are told there."""
    found: list[dict[str, Any]] = []
    async with site.http.stream("GET", path) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        async for line in stream.aiter_lines():
            if line.startswith("data: {"):
                found.append(json.loads(line.removeprefix("data: ")))
                if len(found) == count:
                    return found
    return found


async def test_an_open_page_is_told_when_the_verdict_is_there(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site, asyncio.timeout(60):
        listening: list[asyncio.Task[list[dict[str, Any]]]] = []

        async def look() -> None:
            """While a machine is waited for, somebody opens the page of the incident."""
            name = (await told(site.http, "/api/incidents"))["incidents"][0]["id"]
            page = (await site.http.get(f"/incidents/{name}")).text
            assert "no verdict yet" in page and "capturing" in page
            path = page.partition('data-events="')[2].partition('"')[0]
            listening.append(asyncio.create_task(events(site, path, 1)))

        await hang(site.on, hold=look)
        assert (await listening[0])[0]["state"] == "judged"


async def test_what_changed_before_the_page_listened_is_told_at_once(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site, asyncio.timeout(60):
        name = await hang(site.on)
        heard = await events(site, f"/api/incidents/{name}/events?seen=capturing@1.000", 1)
        assert heard[0]["state"] == "judged" and heard[0]["id"] == name
        assert (await events(site, "/api/events?seen=other", 1))[0]["suspects"] == 1


async def test_a_page_of_an_incident_that_is_listed_no_more_is_told_too(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db", settings=replace(PATIENT, listed=1)) as site, asyncio.timeout(60):
        store, name = site.on.store, await hang(site.on)
        await store.begin(Incident("0a", "other", NOON + 60), {})
        assert [one["id"] for one in (await told(site.http, "/api/now"))["incidents"]] == ["0a"]
        path = (await site.http.get(f"/incidents/{name}")).text.partition('data-events="')[2].partition('"')[0]
        listening = asyncio.create_task(events(site, path, 1))
        await asyncio.sleep(0.1)
        await store.do(responses.resolve, name, SettledCause("software", (), "a deadlock", "ada", NOON))
        assert (await listening)[0]["settled"]["who"] == "ada"
        await store.move("0a", IncidentState.FAILED, NOON + 61)


async def test_a_post_mortem_is_there_once_there_is_a_verdict(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        name = await hang(site.on)
        await site.on.store.begin(Incident("0a", "other", NOON), {})
        found = await site.http.get(f"/incidents/{name}/postmortem.md")
        assert found.headers["content-type"].startswith("text/markdown") and f'"{name}.md"' in str(found.headers)
        assert "UTC, verdict: machine" in found.text and "## Impact" in found.text
        assert (await site.http.get("/incidents/0a/postmortem.md")).status_code == 404
        await site.on.store.move("0a", IncidentState.FAILED, NOON)
        for of in ("/nowhere", "machines"):
            assert (await site.http.get(f"/api/events?of={of}")).status_code == 404


async def test_a_server_that_ends_ends_open_pages(tmp_path: Path) -> None:
    async with asyncio.timeout(60), visitor("") as http, AsyncExitStack() as open_pages:
        async with browsed(tmp_path / "s.db") as site:
            page = (await site.http.get("/")).text
            path = page.partition('data-events="')[2].partition('"')[0]
            stream = await open_pages.enter_async_context(http.stream("GET", f"{site.address}{path}"))
            lines = stream.aiter_lines()
            assert await anext(lines) == "retry: 3000"
        assert {line async for line in lines if line and not line.startswith("data: ")} == {"event: beat"}


async def test_more_pages_than_are_listened_to_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdog_server.web.live_feed.MOST", 0)
    assert MOST > 0
    async with browsed(tmp_path / "s.db") as site:
        assert (await told_status(site.http, "/api/events"))[0] == 503


async def test_a_page_that_is_closed_makes_room_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdog_server.web.live_feed.MOST", 1)
    async with browsed(tmp_path / "s.db") as site, asyncio.timeout(60):
        for _ in range(3):
            while (found := await opened(site)) == 503:  # who left is noticed a moment later
                await asyncio.sleep(0.01)
            assert found == 200


async def opened(site: Browsed) -> int:
    """The status of a stream that is left once its first line is there."""
    async with site.http.stream("GET", "/api/events?seen=x") as stream:
        if stream.status_code == 200:
            await anext(stream.aiter_lines())
        return stream.status_code


async def test_an_incident_whose_captures_are_gone_or_damaged_shows_its_verdict(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        name = await hang(site.on)

        def damage(connection: Any) -> None:
            connection.exec_driver_sql("UPDATE captures SET packed = x'ff00ff'")

        await site.on.store.do(damage)
        page = (await site.http.get(f"/incidents/{name}")).text
        assert await answered(site, name) in page and 'id="map"' not in page


async def test_hostile_words_of_an_incident_are_harmless(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        wild = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e"
        await site.on.store.begin(Incident("abc", wild, NOON, why=wild), {})
        for path in ("/", "/incidents/abc"):
            page = (await site.http.get(path)).text
            assert "<img" not in page and "\x1b" not in page and "\u202e" not in page
