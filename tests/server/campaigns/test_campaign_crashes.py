"""The server is killed with -9 at every point of a campaign: it comes to its end all the same, and convicts whom it should, once."""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import grpc
import pytest
import sqlalchemy as sa

from hangdog.demo.conductor import free_port
from hangdog_models.errors import HangdogError
from hangdog_models.incident import Incident
from hangdog_models.verdict import Eviction, Kind
from hangdog_proto.client.campaigns import CampaignClient
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.store import actions, campaigns
from hangdog_server.store.actions import ActionState
from hangdog_server.store.campaigns import CampaignState, StoredCampaign
from hangdog_server.store.store import Store
from hangdog_server.store.tables import CONVICTIONS, LAUNCHES, LEDGER, TESTS
from support.servers import crashing
from support.servers.cast import Agent
from support.servers.cast_acting import NOTHING
from support.servers.tested import Answer, Machine, broken, report, sound

#: In `make test-slow` and in `make soak`; a campaign of two machines passes a hundred points and more.
SOME, ALL, POINTS = 8, 300, 120
PATIENCE_S = 60.0

INCIDENT = "0a"
#: What an operator writes who leaves it all to hangdog.
ACTING = """
mode = "auto"
actors = ["exclude-file"]
[exclude-file]
path = "{}"
[caps]
share = 1.0
breaker_share = 1.0
[policy]
test = "auto"
release = "auto"
replay = "auto"
[replay.jobs]
"*" = ""
"""

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(7200)]


@dataclass
class Story:
    """A server that ends now and then, two machines of which m1 is broken, and somebody who asks for a campaign."""

    acts: ClassVar[bool] = False
    machines: ClassVar[tuple[str, ...]] = ("m0", "m1")
    level: ClassVar[int] = 1
    port: int
    done: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def machine(self, name: str) -> None:
        """Its agent comes back whenever its stream breaks, and does nothing twice."""
        test = self.test(name)

        def answer(order: pb.Diagnose) -> str:
            said = test(order)
            assert isinstance(said, str)
            return self.done.setdefault((name, order.launch), said)

        while True:
            with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, AssertionError, asyncio.InvalidStateError):
                async with Agent(self.address, name) as agent:
                    hello = pb.Hello(machine=name, version="1", diagnoses=True, boot=f"start of {name}")
                    await agent.say(hello=hello)
                    assert (await agent.next()).HasField("welcome")
                    await Machine(agent, answer).play()
            await asyncio.sleep(0.02)

    def test(self, name: str) -> Answer:
        """How it answers what it is ordered."""
        return broken(1) if name == "m1" else sound

    async def person(self) -> None:
        """Asks until there is a campaign; whether it hears of its end is the campaign's own matter."""
        while True:
            await asyncio.to_thread(self._ask)
            await asyncio.sleep(0.02)

    def _ask(self) -> None:
        with suppress(HangdogError), CampaignClient(self.address) as client:
            connected = [line for line in client.machines() if line.connected]
            if len(connected) == len(self.machines) and not client.campaigns():
                list(client.run(self.machines, levels=[self.level], budget_s=600.0))

    def over(self) -> bool:
        with suppress(HangdogError), CampaignClient(self.address) as client:
            lines = client.campaigns()
            return bool(lines) and all(line.state != CampaignState.RUNNING for line in lines)
        return False


class Replays(Story):
    """Four machines train in groups, phase by phase: each group fails that m1 is in."""

    machines: ClassVar[tuple[str, ...]] = ("m0", "m1", "m2", "m3")
    level: ClassVar[int] = 5

    def test(self, name: str) -> Answer:
        """A group fails as a whole."""
        return lambda order: report(5, "fail" if "m1" in order.members else "pass")


class Isolation(Story):
    """Nobody asks for a campaign: both machines are taken out for one incident, and tested as policy says."""

    acts: ClassVar[bool] = True

    async def person(self) -> None:
        """Asks for nothing."""

    def over(self) -> bool:
        with suppress(HangdogError), CampaignClient(self.address) as client:
            acts = {line.machine: line for line in client.actions(INCIDENT).lines}
            back = acts.get("m0")
            return back is not None and back.state == "released" and "convicted" in acts["m1"].message
        return False


class IsolationReplays(Isolation):
    """Nobody asks for it either: four machines pass alone, and are replayed as policy says."""

    machines: ClassVar[tuple[str, ...]] = ("m0", "m1", "m2", "m3")

    def test(self, name: str) -> Answer:
        """Each replay fails that m1 is in, and nothing else does."""
        return lambda order: report(
            order.levels[0], "fail" if order.levels[0] == 5 and "m1" in order.members else "pass"
        )

    def over(self) -> bool:
        with suppress(HangdogError), CampaignClient(self.address) as client:
            acts = {line.machine: line for line in client.actions(INCIDENT).lines}
            back = [name for name, line in acts.items() if line.state == "released"]
            return len(back) == 3 and "convicted it" in acts["m1"].message
        return False


async def taken_out(where: Path, machines: tuple[str, ...]) -> None:
    """An incident whose verdict takes out these machines."""
    now = time.time()  # noqa: TID251 - the server that is run has the true clock
    store = Store(where)
    bodies = {name: [f"start of {name}", ""] for name in machines}
    asked = {"asked": dict.fromkeys(bodies), "absent": {}, "job_toml": "", "bodies": bodies}
    await store.begin(Incident(INCIDENT, "llama", now), asked)
    said = replace(NOTHING, kind=Kind.GROUP, confidence=0.97, evict=Eviction(tuple(bodies), 0.97))
    await store.judged(INCIDENT, said, now)
    store.close()


@asynccontextmanager
async def nursery() -> AsyncIterator[asyncio.subprocess.Process]:
    """The program that forks the servers."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = asyncio.subprocess.PIPE
    program = (sys.executable, crashing.__file__)
    process = await asyncio.create_subprocess_exec(
        *program, stdin=pipe, stdout=pipe, env=environ, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # a server may still run where a test has failed
        await process.wait()


async def number(servers: asyncio.subprocess.Process) -> int:
    assert servers.stdout is not None
    return int(await servers.stdout.readline())


async def told(
    servers: asyncio.subprocess.Process, folder: Path, where: Path, deaths: tuple[int, ...], kind: type[Story] = Story
) -> Story:
    """A story in which the servers end at these points; the last one is stopped when all is over."""
    story = kind(free_port())
    acting = str(folder / "acting.toml") if kind.acts else ""
    playing = [asyncio.create_task(one) for one in (*map(story.machine, story.machines), story.person())]
    try:
        for last in (*deaths, 0):
            asked = {
                "port": story.port,
                "where": str(where),
                "last": last,
                "passed": str(folder / "passed"),
                "acting": acting,
            }
            assert servers.stdin is not None
            servers.stdin.write(json.dumps({**asked, "log": str(folder / "log")}).encode() + b"\n")
            pid, ended = await number(servers), asyncio.create_task(number(servers))
            async with asyncio.timeout(PATIENCE_S):
                while not ended.done() and not await asyncio.to_thread(story.over):
                    await asyncio.sleep(0.05)
            if not ended.done():
                os.kill(pid, signal.SIGTERM)
            if await ended == 0:
                break
            assert ended.result() == -signal.SIGKILL, (folder / "log").read_text()
    finally:
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
    return story


async def true_of(store: Store, story: Story, lines: int = 0, held: int = 1) -> None:
    """`lines` are those of the ledger beside the conviction, `held` the campaigns, of which the last one convicts."""
    found = sorted(await store.ask(campaigns.latest, 9), key=lambda one: one.began)
    assert len(found) == held and all(one.state is CampaignState.DONE for one in found), found
    assert [one.convicted for one in found] == [*[()] * (held - 1), ("m1",)], found
    launches: list[StoredCampaign] = []
    names: set[str] = set()
    for campaign in found:
        mine = await store.ask(campaigns.launches, campaign.id)
        launches += mine
        names |= {f"{campaign.id}-{one.number}" for one in mine}
    assert all(one.came and one.came.result != "inconclusive" for one in launches), launches
    assert names == {launch for _, launch in story.done}

    def count(connection: sa.Connection) -> list[int]:
        tables = (CONVICTIONS, LEDGER, LAUNCHES, TESTS)
        return [connection.execute(sa.select(sa.func.count()).select_from(one)).scalar_one() for one in tables]

    tests = sum(len(one.machines) for one in launches)
    assert await store.ask(count) == [1, 1 + lines, len(launches), tests], "nothing is written twice"


@pytest.mark.parametrize("kind", [Story, Replays])
@pytest.mark.parametrize("count", [SOME, pytest.param(ALL, marks=pytest.mark.soak)])
async def test_a_server_that_is_killed_anywhere_in_a_campaign(tmp_path: Path, count: int, kind: type[Story]) -> None:
    dice = random.Random(count)
    async with nursery() as servers:
        for at in range(count):
            deaths = tuple(dice.randrange(1, POINTS) for _ in range(dice.choice((1, 1, 2))))
            where = tmp_path / f"{at}.db"
            story = await told(servers, tmp_path, where, deaths, kind)
            store = Store(where)
            try:
                await true_of(store, story)
            except AssertionError as error:
                error.add_note(f"ends at points {deaths}: {(tmp_path / 'log').read_text()[-3000:]}")
                raise
            finally:
                store.close()


@pytest.mark.parametrize("kind", [Isolation, IsolationReplays])
@pytest.mark.parametrize("count", [SOME, pytest.param(ALL, marks=pytest.mark.soak)])
async def test_a_server_that_is_killed_anywhere_from_an_eviction_to_the_return_of_the_sound(
    tmp_path: Path, count: int, kind: type[Isolation]
) -> None:
    held = 2 if kind is IsolationReplays else 1
    dice = random.Random(count)
    async with nursery() as servers:
        for at in range(count):
            deaths = tuple(dice.randrange(1, POINTS * held) for _ in range(dice.choice((1, 1, 2))))
            excluded = tmp_path / f"excluded-{at}"
            (tmp_path / "acting.toml").write_text(ACTING.format(excluded))
            where = tmp_path / f"{at}.db"
            await taken_out(where, kind.machines)
            story = await told(servers, tmp_path, where, deaths, kind)
            store = Store(where)
            try:
                sound = {*kind.machines} - {"m1"}
                await true_of(store, story, len(kind.machines) + len(sound), held)  # the verdict's, and the cleared
                acts = {row.machine: row for row in await store.ask(actions.of, INCIDENT)}
                assert {(acts[name].state, acts[name].who) for name in sound} == {(ActionState.RELEASED, "hangdog")}
                assert acts["m1"].state is ActionState.DONE and acts["m1"].message.count("campaign") == held
                assert {*excluded.read_text().split()} & {*kind.machines} == {"m1"}
            except AssertionError as error:
                error.add_note(f"ends at points {deaths}: {(tmp_path / 'log').read_text()[-3000:]}")
                raise
            finally:
                store.close()
