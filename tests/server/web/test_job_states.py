"""One standstill on every surface: pages, JSON and commands say the same of it, from before it to the step after it."""

import asyncio
import html
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hangdog.main import main
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.incident import Incident, IncidentState
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, Verdict
from hangdog_models.views.job_state import JobCondition, JobFacts, JobState, headline, job_state
from hangdog_proto.codec import stall_signs
from support.cases.stories import trace
from support.servers.browsed import Browsed, browsed
from support.servers.cast import Agent, cluster

STILL = Sign(Doing.STILL, 60.0, overdue=True, place="all_reduce", waits=True)
RANKS = {"a": (0, 1), "b": (2, 3)}
CODE = Incident("i", "llama", 0.0, "suspected:", IncidentState.JUDGED, kind="software", confidence=0.99)


def software(snapshot: Snapshot, topology: Topology) -> Verdict:
    verdict = diagnose(snapshot, topology)
    return replace(verdict, kind=Kind.SOFTWARE, confidence=0.99, evict=Eviction(), culprit=None, suspects=())


async def typed(site: Browsed, *words: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--server", site.on.address])
    return " ".join(result.stdout.split())


@dataclass(frozen=True)
class Surfaces:
    """What each of them says: the first page's headline, its tone and title, and how the job is by page, JSON and commands."""

    headline: str
    tone: str
    title: str
    card: str
    api: str
    jobs: str
    says: str
    why: str


async def surfaces(site: Browsed) -> Surfaces:
    page = html.unescape((await site.http.get("/")).text)
    now = (await site.http.get("/api/now")).json()
    (listed,) = json.loads(await typed(site, "jobs", "--format", "json"))["jobs"]
    why = json.loads(await typed(site, "why", "a", "--format", "json"))
    tone, above = re.findall(r'<h1 class="headline (\w*)">(.*?)</h1>', page)[0]
    assert now["headline"] == {"text": above, "tone": tone}
    assert set(listed["says"].split()) <= set((await typed(site, "jobs")).split()), "in a column of its table"
    assert f"which {listed['says']}" in await typed(site, "why", "a")
    return Surfaces(
        above,
        tone,
        re.findall(r"<title>(.*?)</title>", page)[0],
        str(re.findall(r"<b><a [^>]*>llama</a></b>.*?</p><p>(?:<a [^>]*>)?(.*?)<", page)[0]),
        f"{now['jobs'][0]['status']}: {now['jobs'][0]['message']}",
        str(listed["state"]),
        str(listed["says"]),
        f"{why['jobs'][0]['state']}: {why['jobs'][0]['says']}",
    )


def all_say(state: JobState) -> Surfaces:
    """Where each of them says that the job is in this state, in its words."""
    line, above = f"{state.condition}: {state.text}", headline([("llama", state)])
    title = f"hangdog: {above.text}"
    return Surfaces(above.text, above.tone, title, state.text, line, state.condition, state.text, line)


async def until(site: Browsed, status: str) -> None:
    async with asyncio.timeout(50):
        while (await site.http.get("/api/now")).json()["jobs"][0]["status"] != status:
            await asyncio.sleep(0.02)


async def ordered(agent: Agent) -> Any:
    while not (message := await agent.next()).HasField("capture"):
        pass
    return message.capture


async def moves(agents: list[Agent]) -> None:
    for agent in agents:
        report = stall_signs.pack({}, moving={"llama": [Rank(rank) for rank in RANKS[agent.machine]]})
        await agent.say(stall_report=report)


async def test_a_job_that_hangs_after_a_verdict_against_the_code_is_said_to_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangdog_server.incidents.stall_watch.TICK_S", 0.05)
    monkeypatch.setattr("hangdog_server.cluster.session_tracker.OVER_S", 0.2)
    async with browsed(tmp_path / "s.db", software) as site, cluster(site.on, a=[0, 1], b=[2, 3]) as agents:
        assert await surfaces(site) == all_say(job_state(JobFacts(0.0)))
        await moves(agents)
        await until(site, "moving")
        moving = all_say(job_state(JobFacts(0.0, ranks=4, moving=4)))
        assert await surfaces(site) == moving
        for agent in agents:
            signs = {"llama": {Rank(rank): STILL for rank in RANKS[agent.machine]}}
            await agent.say(stall_report=stall_signs.pack(signs))
        orders = [await ordered(agent) for agent in agents]
        seen = await surfaces(site)
        assert seen.tone == "warn" and "rank" in seen.says
        assert seen == all_say(JobState(JobCondition.EXAMINED, seen.says))
        for agent, order in zip(agents, orders, strict=True):
            await agent.answer(order, *(trace(rank, "backward") for rank in RANKS[agent.machine]), last=True)
        await until(site, "stuck")
        stuck = job_state(JobFacts(0.0, incidents=(CODE,)))
        assert await surfaces(site) == all_say(stuck) and "code bug" in stuck.text
        await asyncio.sleep(0.5)  # the watch thinks several times meanwhile
        assert (await surfaces(site)).jobs == "stuck", "a verdict mends nothing"
        await moves(agents)
        await until(site, "moving")
        assert await surfaces(site) == moving


async def test_ranks_of_others_and_of_machines_that_are_gone_do_not_move_a_job(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site, cluster(site.on, a=[0, 1], b=[2, 3]) as agents:
        a, b = agents
        await b.say(stall_report=stall_signs.pack({}, moving={"llama": [Rank(0), Rank(1)], "other": [Rank(2)]}))
        await a.say(stall_report=stall_signs.pack({}, moving={"llama": [Rank(0)]}))
        await until(site, "moving")
        assert await surfaces(site) == all_say(job_state(JobFacts(0.0, ranks=4, moving=1)))
        await a.hang_up()
        await until(site, "lost")
        assert await surfaces(site) == all_say(job_state(JobFacts(0.0, lost=["a"])))
