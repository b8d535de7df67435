"""The communicators of a job, from an agent's words to the page and its JSON: who is behind, what is left out, who may look."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hangdog_models.progress.communicator_window import CommunicatorChanges, CommunicatorWindow
from hangdog_models.ranks import Rank
from hangdog_proto.codec import communicator_report
from hangdog_server.cluster import job_states
from hangdog_server.cluster.communicators import SHOWN
from hangdog_server.web.live_feed import communicators_page, job_of
from support.servers.browsed import Browsed, browsed
from support.servers.cast import Agent, cluster

#: What runs, or is drawn, where a page obeys a name in it.
WILD = "<img src=x onerror=alert(1)>"
HUNG = CommunicatorWindow(0x700885418FD77BCF, "dp", 4, (), 0.0, 371, 371, (), 42.0, 42.0, "AllReduce")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_states, "FRESH_S", 0.0)


def hung(*ranks: int, **more: object) -> CommunicatorWindow:
    here = tuple(map(Rank, ranks))
    return replace(HUNG, **({"ranks": here, "behind": here} | more))  # type: ignore[arg-type]


async def tell(agent: Agent, *windows: CommunicatorWindow, job: str = "llama", **more: Any) -> None:
    changes = {job: CommunicatorChanges(windows, **more)}
    await agent.say(communicator_report=communicator_report.pack(changes, {}))


async def shown(site: Browsed, *texts: str, job: str = "llama") -> str:
    """The page once it holds all of these."""
    async with asyncio.timeout(60):
        while True:
            found = await site.http.get(f"/jobs/{job}/communicators")
            assert found.status_code == 200, found.text
            if all(text in found.text for text in texts):
                return found.text
            await asyncio.sleep(0.05)


async def document(site: Browsed, path: str) -> Any:
    found = await site.http.get(path)
    assert found.status_code == 200, found.text
    return found.json()


async def test_who_is_behind_is_shown_and_named_as_json(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site, cluster(site.on, a=[0, 1], b=[2, 3]) as (a, b):
        assert "hangdog.trace()" in await shown(site), "none is known yet, and how one gets known"
        await tell(a, hung(0, 1))
        late = hung(2, 3, lowest=370, behind=(Rank(3),), age_s=None, operation="")
        await tell(b, late, replace(late, communicator=9, name="", rate=12.0, idle_s=0.0, size=2))
        page = await shown(
            site,
            "waits inside of AllReduce",
            'rank 3 on <a href="/machines/b">b</a>',
            "370 to 371",
            "moves, 12 operations",
        )
        assert "700885418fd77bcf" in page
        assert page.index("waits inside") < page.index("moves, 12"), "those that wait come first"
        assert "communicators" in (await site.http.get("/")).text
        assert 'href="/jobs/llama/communicators"' in (await site.http.get("/")).text
        assert 'href="/jobs/llama/communicators"' in (await site.http.get("/jobs")).text
        found = await document(site, "/api/jobs/llama/communicators")
        waits, moves = found["communicators"]
        assert waits["behind"] == [{"machine": "b", "ranks": "3"}] and (waits["lowest"], waits["highest"]) == (370, 371)
        assert (waits["number"], waits["state"], waits["oldest"]) == ("700885418fd77bcf", "waits", "a")
        assert waits["age_s"] >= 42 and waits["message"].endswith("behind: rank 3 on b")
        assert (moves["state"], moves["lowest"], moves["behind"]) == ("moves", None, [])
        whole = await document(site, "/api/openapi.json")
        schema = {"$ref": "#/components/schemas/Communicators", "components": whole["components"]}
        jsonschema.validate(found, schema)


async def test_names_run_nothing_and_what_is_cut_is_counted(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site, cluster(site.on, a=[0, 1]) as (a,):
        many = [hung(0, 1, communicator=number, name=f"{WILD}{number}") for number in range(SHOWN + 20)]
        await tell(a, *many, left_out=7)
        page = await shown(site, "and 20 more communicators", "7 communicators of single ")
        assert WILD not in page and "&lt;img src=x" in page and page.count("<tr") == SHOWN + 1
        found = await document(site, "/api/jobs/llama/communicators")
        assert (found["found"], found["left_out"]) == (SHOWN + 20, 7)


async def test_of_other_machines_ranks_and_jobs_an_agent_says_nothing(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site, cluster(site.on, a=[0, 1], b=[2, 3]) as (a, _):
        await tell(a, hung(0, 1), job="foreign")
        await tell(a, hung(2, 3, communicator=1, name="foreign ranks"), hung(0, 1, communicator=2, name="own ranks"))
        assert "foreign ranks" not in await shown(site, "own ranks")
        assert (await site.http.get("/jobs/foreign/communicators")).status_code == 404
        wrong = await site.http.get("/api/jobs/foreign/communicators")
        assert (wrong.status_code, wrong.json()["code"]) == (404, "no-such-job")


async def test_what_cannot_be_ends_the_stream_that_says_it(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site, cluster(site.on, a=[0, 1]) as (a,):
        await tell(a, hung(0, 1, rate=-1.0))
        async with asyncio.timeout(60):
            assert "impossible communicator" in (await a.end())[1]


async def test_a_lost_machine_and_an_ended_job_leave_nothing(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site, cluster(site.on, a=[0, 1], b=[2, 3]) as (a, b):
        await tell(a, hung(0, 1))
        await tell(b, hung(2, 3))
        await shown(site, "on 2 machines")
        await b.hang_up()
        await shown(site, "2 of 4 on 1 machine", "of 2 ranks nothing")
        await a.announce()
        async with asyncio.timeout(60):
            while (await site.http.get("/jobs/llama/communicators")).status_code != 404:
                await asyncio.sleep(0.05)


async def test_an_open_page_is_told_when_what_it_shows_changes_and_not_each_second(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site, cluster(site.on, a=[0, 1]) as (a,):
        await tell(a, hung(0, 1))
        page = await shown(site, "waits inside of AllReduce")
        feed = page.partition('data-events="')[2].partition('"')[0].replace("&amp;", "&")
        assert feed.startswith("/api/events?of=/jobs/llama/communicators&seen=")
        beats = 0
        async with asyncio.timeout(60), site.http.stream("GET", feed) as events:
            async for line in events.aiter_lines():
                beats += line == "event: beat"
                if line == "event: state":
                    break
                if line == "event: beat" and beats == 2:  # two seconds passed, and nothing else
                    await tell(a, hung(0, 1, operation="AllGather"))
        assert beats >= 2
        await shown(site, "waits inside of AllGather")
        wrong = await site.http.get("/api/events?of=/jobs/llama")
        assert wrong.status_code == 404


def test_the_name_of_a_page_holds_any_job() -> None:
    for job in ("llama", "a/b", "x/communicators", "/jobs/"):
        assert job_of(communicators_page(job)) == job
