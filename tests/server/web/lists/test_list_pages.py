"""The pages of the lists and their JSON: what is asked stands in the address, what is cut is said, and agents do not wait."""

import asyncio
import gzip
import html
import threading
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from hangdog_models.actions.respond import ResponseDecision
from hangdog_models.incident import Incident, IncidentState, ResponseKind, SettledCause
from hangdog_models.lists.list_kinds import MACHINES
from hangdog_models.lists.list_page import ListPage
from hangdog_models.lists.list_query import ListQuery
from hangdog_proto.client.incidents import MachineLine
from hangdog_proto.client.list_client import ListClient
from hangdog_server.store.history import responses
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.web import render
from hangdog_server.web.lists.drawing import KEPT
from support.servers import deciding
from support.servers.browsed import Browsed, browsed, hang
from support.servers.cast import NOON, cluster

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

LISTS = ("incidents", "jobs", "machines", "actions")


async def told(http: httpx.AsyncClient, path: str) -> Any:
    found = await http.get(path)
    assert found.status_code == 200, found.text
    return found.json()


async def remembered(site: Browsed, count: int) -> None:
    """So many incidents of two jobs that could not be judged."""
    for number in range(count):
        await site.on.store.begin(Incident(f"{number:04x}", f"job-{number % 2}", NOON - number), {})
        await site.on.store.move(f"{number:04x}", IncidentState.FAILED, NOON)


async def test_nothing_is_cut_without_saying_so(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        await remembered(site, 60)
        page = (await site.http.get("/incidents")).text
        assert "1 to 50 of 60 incidents" in page and 'href="/incidents?page=2"' in page and page.count("<tr") == 51
        last = (await site.http.get("/incidents?page=2")).text
        assert "51 to 60 of 60 incidents" in last and last.count("<tr") == 11
        found = await told(site.http, "/api/incidents?limit=7&page=2&sort=began")
        assert [one["id"] for one in found["incidents"]] == [f"{number:04x}" for number in range(52, 45, -1)]
        assert found["list"]["summary"] == "8 to 14 of 60 incidents" and found["list"]["pages"] == 9
        narrowed = (await site.http.get("/incidents?job=job-1&state=failed&search=000")).text
        assert "8 incidents of 60 known" in narrowed and 'name="state" value="failed"' in narrowed
        first = (await site.http.get("/")).text
        assert "The latest 50 of 60" in html.unescape(first), "the first page says what it leaves out, too"


async def test_what_a_list_does_not_know_is_refused_in_words(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        for path in ("/machines?state=broken", "/jobs?sort=colour", "/incidents?page=x", "/api/actions?limit=0"):
            found = await site.http.get(path)
            assert found.status_code == 404 and ("is no" in found.text or "have no" in found.text), path


async def test_hostile_searches_are_harmless(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        await remembered(site, 2)
        for name in LISTS:
            for wild in ("</script><img src=x>", '"><b>', "%00\ud7ff", "' OR 1=1 --", "100%_\\"):
                found = await site.http.get(
                    f"/{name}", params={"search": wild, "job": wild[:9] if name != "jobs" else ""}
                )
                assert found.status_code == 200 and "<img" not in found.text and '"><b>' not in found.text, (name, wild)
                assert found.headers["content-security-policy"].startswith("default-src 'none'")


async def test_machines_are_found_by_what_they_are(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        await hang(site.on)  # b holds llama up; both agents are gone then
        async with cluster(site.on, a=[0, 1], c=[2, 3]):

            async def names(asked: str) -> list[str]:
                return [one["name"] for one in (await told(site.http, f"/api/machines?{asked}"))["machines"]]

            assert (await names(""))[0] == "b" and sorted(await names("")) == ["a", "b", "c"]
            assert await names("state=suspected") == ["b"] and await names("state=lost") == ["b"]
            assert await names("state=connected&sort=-name") == ["c", "a"]
            assert await names("search=C") == ["c"] and await names("job=llama&sort=name&limit=1") == ["a"]
            assert (await told(site.http, "/api/machines"))["list"]["counts"]["connected"] == 2
            page = (await site.http.get("/machines?state=suspected")).text
            assert "1 machine of 3 known" in page and 'class="flag">suspected' in page


@pytest.mark.parametrize("what", [ResponseKind.DISMISSED, ResponseKind.RESOLVED])
async def test_whom_only_a_closed_incident_accused_is_suspected_no_more(tmp_path: Path, what: ResponseKind) -> None:
    async with browsed(tmp_path / "s.db") as site:
        name = await hang(site.on)
        before = await told(site.http, "/api/machines?state=suspected")
        assert [one["name"] for one in before["machines"]] == ["b"] and before["list"]["counts"]["suspected"] == 1
        feed = (await site.http.get("/machines")).text.partition('data-events="')[2].partition('"')[0]
        settled = SettledCause("software", (), "a bug", "ada", NOON) if what is ResponseKind.RESOLVED else None
        wanted = ResponseDecision(what, "ada", NOON, "not b", settled=settled)
        await site.on.store.do(responses.respond, name, wanted)
        after = await told(site.http, "/api/machines?state=suspected")
        assert after["machines"] == [] and after["list"]["counts"]["suspected"] == 0
        (line,) = (await told(site.http, f"/api/incidents?state={what}"))["incidents"]
        assert line["id"] == name
        async with asyncio.timeout(60), site.http.stream("GET", feed) as stream:  # open pages are told
            assert any([line.startswith("event: state") async for line in _until(stream, "event: state")])


async def _until(stream: httpx.Response, text: str) -> Any:
    async for line in stream.aiter_lines():
        yield line
        if line.startswith(text):
            return


async def test_a_jobs_list_and_an_actions_list_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with deciding.deciding(tmp_path) as on:
        jobs = await told(on.alice, "/api/jobs?state=stuck")
        assert [one["name"] for one in jobs["jobs"]] == ["llama"] and jobs["list"]["counts"]["stuck"] == 1
        assert "llama" in (await on.alice.get("/jobs")).text
        acts = await told(on.alice, "/api/actions?state=waiting&search=a")
        assert [one["machine"] for one in acts["actions"]] == ["a"]
        assert "waits for approval" in (await on.alice.get("/actions")).text
        pages = {f"/{name}": (await on.alice.get(f"/{name}")).text for name in LISTS}
        streams = {
            path: asyncio.create_task(_changed(on.alice, page.partition('data-events="')[2].partition('"')[0]))
            for path, page in pages.items()
            if path in ("/actions", "/incidents", "/machines")
        }
        await on.posted("dismiss", "seen by eye")
        await asyncio.gather(*streams.values())
        assert (await told(on.alice, "/api/actions?state=waiting"))["actions"] == []
        assert "dismissed" in (await on.alice.get("/incidents?state=dismissed")).text


async def test_a_list_that_stays_as_it_is_rests(tmp_path: Path) -> None:
    """Its address and its mark are the ones that its changes are told by: else it would be drawn again and again."""
    async with deciding.deciding(tmp_path) as on, asyncio.timeout(60):
        for name in LISTS:
            page = (await on.alice.get(f"/{name}?search=a")).text
            feed = html.unescape(page.partition('data-events="')[2].partition('"')[0])
            seen: list[str] = []
            async with on.alice.stream("GET", feed) as stream:
                async for line in stream.aiter_lines():
                    seen += [line] if line.startswith("event") else []
                    if len(seen) == 3:
                        break
            assert seen == ["event: beat"] * 3, name


async def _changed(http: httpx.AsyncClient, path: str) -> None:
    async with asyncio.timeout(60), http.stream("GET", html.unescape(path)) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("event: state"):
                return


async def test_pages_are_packed_for_whoever_takes_that_and_are_drawn_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    draw = render.page

    def counting(template: str, *given: Any, **more: Any) -> str:
        assert threading.current_thread().name.startswith("pages"), "agents wait for the event loop"
        drawn.append(template)
        return draw(template, *given, **more)

    monkeypatch.setattr("hangdog_server.web.lists.list_pages.page", counting)
    async with browsed(tmp_path / "s.db", clock=lambda: NOON) as site:
        await remembered(site, 3)
        for headers in ({"accept-encoding": "gzip"}, {"accept-encoding": "identity"}, {"accept-encoding": "gzip;q=0"}):
            async with site.http.stream("GET", "/incidents", headers=headers) as found:
                raw = b"".join([part async for part in found.aiter_raw()])
            packed = headers["accept-encoding"] == "gzip"
            assert (found.headers.get("content-encoding") == "gzip") == packed
            assert found.headers["vary"] == "accept-encoding"
            text = (gzip.decompress(raw) if packed else raw).decode()
            assert "3 incidents" in text and (not packed or len(raw) < len(text) / 2)
        assert drawn == ["list.html"], "the same page is drawn once"
        await site.on.store.move("0001", IncidentState.JUDGED, NOON + 1)
        assert "judged" in (await site.http.get("/incidents")).text and drawn == ["list.html"] * 2
        for number in range(KEPT + 3):
            await site.http.get(f"/incidents?search={number}")
        await site.http.get("/incidents")
        assert len(drawn) == KEPT + 6, "few are kept"


async def test_every_list_is_as_its_openapi_document_says(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        await hang(site.on)
        document = await told(site.http, "/api/openapi.json")
        for name in LISTS:
            described = document["paths"][f"/api/{name}"]["get"]
            content = described["responses"]["200"]["content"]["application/json"]
            parameters = {one["name"]: one["schema"] for one in described["parameters"]}
            for order in parameters["sort"]["enum"]:
                answer = await told(site.http, f"/api/{name}?sort={order}&limit=2")
                jsonschema.validate(answer, {**content["schema"], "components": document["components"]})


async def test_an_empty_list_says_what_is_not_there(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        assert "No agent has" in (await site.http.get("/machines")).text
        assert "No incident is" in (await site.http.get("/incidents")).text


async def test_without_a_store_no_list_claims_to_be_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with browsed(tmp_path / "s.db") as site, cluster(site.on, a=[0, 1]):
        assert "1 machine" in (await site.http.get("/machines")).text

        async def away(*_: object, **__: object) -> None:
            raise StoreFailed("the store is away")

        monkeypatch.setattr(site.on.store, "ask", away)
        for name in LISTS:
            if name != "jobs":  # they are known without a store
                assert (await site.http.get(f"/{name}")).status_code == 503, name
        page = await asyncio.to_thread(_typed_machines, site.on.address)
        assert [one.name for one in page.rows] == ["a"], "who is there is known without a store"


def _typed_machines(address: str) -> ListPage[MachineLine]:
    with ListClient(address) as client:
        return client.machines_page(ListQuery(MACHINES))
