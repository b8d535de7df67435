"""What people meet at the server's door: shared incidents, refusals with a reason, failures that are remembered."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from hangdog_models.errors import HangdogError, OurFault, ServerUnreachable, UnreadableEvidence, WrongUse
from hangdog_models.incident import IncidentState
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Verdict
from hangdog_proto.client.incidents import Client, ProgressStep
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.listener import LOCAL, OpenListeners
from hangdog_server.main import running
from hangdog_server.store.store import Store
from support.servers.cast import PATIENT, Agent, Stage, stage, trainer, verdict


@asynccontextmanager
async def machine(on: Stage, name: str, **jobs: list[int]) -> AsyncIterator[Agent]:
    async with on.agent(name) as agent:
        await agent.hello(**jobs)
        await on.knows(name)
        yield agent


async def refused(on: Stage, kind: type[HangdogError], code: str, value: str, **asked: object) -> HangdogError:
    with pytest.raises(kind, match=value) as caught:
        await on.snapshot(**asked)  # type: ignore[arg-type]  # the test names what it asks for
    assert caught.value.code == code or not code
    return caught.value


async def test_two_requests_for_one_job_share_one_incident(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, machine(on, "a", llama=[0]) as a:
        first = asyncio.create_task(on.snapshot("llama"))
        order = await a.order()
        followed = threading.Event()

        def follow() -> list[ProgressStep]:
            with Client(on.address) as client:
                steps = []
                for step in client.snapshot():
                    steps.append(step)
                    followed.set()
                return steps

        second = asyncio.create_task(asyncio.to_thread(follow))
        assert await asyncio.to_thread(followed.wait, 10)
        await a.answer(order, trainer(0))
        one, two = await first, await second
        assert two[0].incident == one[-1].incident and two[0].text.endswith(" 0 s ago")
        assert two[1:] == one
        assert len(await on.store.latest("", 10)) == 1


async def test_an_incident_lives_on_when_nobody_listens(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, machine(on, "a", llama=[0]) as a:
        with Client(on.address) as client:
            steps = client.snapshot()
            asking = asyncio.create_task(asyncio.to_thread(next, steps))
            order = await a.order()
            await asking
            steps.close()
        await a.answer(order, trainer(0))
        async with asyncio.timeout(30):
            while (await on.store.find(order.order)).state is not IncidentState.JUDGED:
                await asyncio.sleep(0.01)


async def test_jobs_are_listed_when_several_are_known_and_none_is_named(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on:
        assert "hangdog-agent" in (await refused(on, WrongUse, "no-such-job", "job")).hint
        async with machine(on, "a", llama=[0], qwen=[0]):
            assert (await refused(on, WrongUse, "ambiguous-job", "llama, qwen")).hint == "name one with --job"
            assert (await refused(on, WrongUse, "no-such-job", "gpt", job="gpt")).hint.endswith(": llama, qwen")
        await on.until(lambda seen: not seen[0].connected)
        await refused(on, WrongUse, "no-such-job", "qwen: it ran on a, whose agents are gone", job="qwen")


@pytest.mark.parametrize(
    ("asked", "kind", "code", "value"),
    [
        ({"job_toml": "[topology\n"}, UnreadableEvidence, "", "not TOML"),
        ({"job_toml": "[topology]\ntp = -1\n"}, WrongUse, "", "-1"),
        ({"rounds": 61}, WrongUse, "out-of-range", "61 looks"),
        ({"interval_s": float("nan")}, WrongUse, "out-of-range", "nan s"),
        ({"interval_s": -1.0}, WrongUse, "out-of-range", "-1 s"),
        ({"why": "x" * 1001}, WrongUse, "too-long", "1001 characters"),
    ],
)
async def test_a_request_that_makes_no_sense_asks_nobody(
    tmp_path: Path, asked: dict[str, object], kind: type[HangdogError], code: str, value: str
) -> None:
    async with stage(tmp_path / "s.db") as on, machine(on, "a", llama=[0]):
        await refused(on, kind, code, value, **asked)
        assert await on.store.latest("", 10) == ()


async def test_no_more_incidents_than_the_server_can_hold(tmp_path: Path) -> None:
    settings = replace(PATIENT, max_running=1)
    async with stage(tmp_path / "s.db", settings=settings) as on, machine(on, "a", llama=[0], qwen=[0]) as a:
        first = asyncio.create_task(on.snapshot("llama"))
        order = await a.order()
        await refused(on, ServerUnreachable, "server-busy", "1 incident", job="qwen")
        await a.answer(order, trainer(0))
        assert (await first)[-1].verdict is not None


async def test_a_judge_that_breaks_is_a_failed_incident_and_our_fault(tmp_path: Path) -> None:
    def broken(snapshot: Snapshot, topology: Topology) -> Verdict:
        raise ZeroDivisionError("no ranks")

    async with stage(tmp_path / "s.db", broken) as on, machine(on, "a", llama=[0]) as a:
        asking = asyncio.create_task(on.snapshot())
        await a.answer(await a.order(), trainer(0))
        with pytest.raises(OurFault, match="ZeroDivisionError: no ranks") as caught:
            await asking
        assert caught.value.code == "bug"
        (line,) = await on.store.latest("", 10)
        assert line.state is IncidentState.FAILED and "ZeroDivisionError: no ranks" in line.note


async def test_the_loop_runs_on_while_a_judge_thinks(tmp_path: Path) -> None:
    thought = threading.Event()

    def slow(snapshot: Snapshot, topology: Topology) -> Verdict:
        assert thought.wait(10)
        return verdict(snapshot, topology)

    async with stage(tmp_path / "s.db", slow) as on, machine(on, "a", llama=[0]) as a:
        asking = asyncio.create_task(on.snapshot())
        await a.answer(await a.order(), trainer(0))
        assert (await on.machines())[0].name == "a"
        thought.set()
        assert (await asking)[-1].verdict is not None


async def test_a_server_that_stops_says_so_and_leaves_what_it_had_not_finished_to_the_next_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    means = IncidentServices(Fleet(PATIENT), store, verdict, lambda: 0.0)
    async with AsyncExitStack() as cast:
        async with running(OpenListeners("127.0.0.1:0", LOCAL, PATIENT, means.clock), means, PATIENT) as address:
            on = Stage(address, store, PATIENT, means.dictionary)
            agent = await cast.enter_async_context(on.agent("a"))
            await agent.hello(llama=[0])
            await on.knows("a")
            asking = asyncio.create_task(on.snapshot())
            await agent.order()
        with pytest.raises(ServerUnreachable) as caught:
            await asking
        assert caught.value.code == "server-stopped"
        status, _ = await agent.end()
        assert (status, await agent.error()) == (grpc.StatusCode.UNAVAILABLE, "server-stopped")
    (line,) = await store.latest("", 10)
    assert (line.state, line.note) == (IncidentState.CAPTURING, "")
    store.close()


async def test_a_verdict_that_cannot_be_stored_still_reaches_who_waits_for_it(tmp_path: Path) -> None:
    def sabotage(snapshot: Snapshot, topology: Topology) -> Verdict:
        with sqlite3.connect(tmp_path / "s.db") as other:
            other.execute("ALTER TABLE incidents RENAME TO gone")
        return verdict(snapshot, topology)

    async with stage(tmp_path / "s.db", sabotage) as on, machine(on, "a", llama=[0]) as a:
        asking = asyncio.create_task(on.snapshot())
        await a.answer(await a.order(), trainer(0))
        steps = await asking
        assert steps[-1].verdict is not None
        assert steps[-1].text.startswith("undetermined (not stored: ") and steps[-1].text.endswith(": incidents)")
