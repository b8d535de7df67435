"""The server is killed with -9 at every point of its incidents' lives: nothing acknowledged is lost, nothing is stuck or done twice."""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa

from hangdog.demo.conductor import free_port
from hangdog_models.errors import HangdogError
from hangdog_models.incident import Incident, IncidentState
from hangdog_models.topology import build
from hangdog_models.verdict import to_json
from hangdog_proto.client.incidents import Client
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.replay import StoredRound, replay
from hangdog_server.store.store import Store
from hangdog_server.store.tables import LEDGER
from support.real.postgres import Postgres
from support.servers import crashing
from support.servers.cast import Agent, trainer

#: Of each engine, in `make test-slow` and in `make soak`.
SOME, ALL = 10, 500
#: Points that one story passes are fewer: what is drawn beyond ends no server, and the story must come out all the same.
POINTS = 120
#: How long a story may take that usually takes some seconds.
PATIENCE_S = 60.0
HOST = "127.0.0.1"

#: Two looks that machine c took while no server was there.
RECORDED = tuple(
    pb.Spooled(
        id=f"look-{number}",
        stall="s",
        job=pb.LocalJob(job="qwen", ranks=[0], world_size=1),
        captured=pb.Captured(round=number, last=number == 1, capture=pack([trainer(0, "alone")])),
        rounds=2,
        age_s=9.0,
        interval_s=1.0,
        why="it stands",
    )
    for number in (0, 1)
)

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(7200)]


class Nursery:
    """The program that forks the servers."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self.passed = folder / "passed"
        self.log = folder / "log"

    async def start(self, port: int, where: str, last: int) -> int:
        """Starts a server; its pid."""
        assert self._process.stdin is not None
        asked = {"port": port, "where": where, "last": last, "passed": str(self.passed), "log": str(self.log)}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        return await self._number()

    async def ended(self) -> int:
        """The exit status of the server, once it has ended."""
        return await self._number()

    async def _number(self) -> int:
        assert self._process.stdout is not None
        return int(await self._process.stdout.readline())


@asynccontextmanager
async def nursery(folder: Path) -> AsyncIterator[Nursery]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, crashing.__file__, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environ
    )
    try:
        yield Nursery(process, folder)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


@dataclass
class Story:
    """One job of two machines that a person asks after, another of one that stood still before; `life` counts the servers."""

    ports: tuple[int, ...]
    life: int = 0
    told: set[str] = field(default_factory=set)
    receipts: dict[str, str] = field(default_factory=dict)

    @property
    def addresses(self) -> Iterator[str]:
        """Where one may ask, again and again one after the other."""
        return itertools.cycle([f"{HOST}:{port}" for port in self.ports])

    async def machine(self, name: str, job: str, rank: int, recorded: tuple[pb.Spooled, ...] = ()) -> None:
        """A machine's agent, which comes back whenever its stream breaks; its job stands somewhere else in each life."""
        for address in self.addresses:
            with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, AssertionError, asyncio.InvalidStateError):
                async with Agent(address, name) as agent:
                    await agent.hello(**{job: [rank]})
                    for one in recorded:
                        if one.id not in self.receipts:
                            await agent.say(spooled=one)
                    while not (message := await agent.next()).HasField("redirect"):
                        await self._heard(agent, message, rank)
            await asyncio.sleep(0.02)

    async def _heard(self, agent: Agent, message: pb.ToAgent, rank: int) -> None:
        if message.HasField("ack"):
            self.receipts[message.ack.id] = message.ack.refused
        elif message.HasField("capture"):
            for number in range(message.capture.rounds):
                last = number == message.capture.rounds - 1
                await agent.answer(message.capture, trainer(rank, f"life {self.life}"), look=number, last=last)

    async def person(self) -> None:
        """Asks until told of an incident; whether it hears of its end is the incident's own matter."""
        for address in self.addresses:
            if self.told:
                return
            await asyncio.to_thread(self._ask, address)
            await asyncio.sleep(0.02)

    def _ask(self, address: str) -> None:
        with suppress(HangdogError), Client(address) as client:
            if sum(job.job == "llama" for line in client.machines() if line.connected for job in line.jobs) < 2:
                return
            for step in client.snapshot("llama"):
                self.told.add(step.incident)

    def _open(self) -> bool:
        for port in self.ports:
            with suppress(HangdogError), Client(f"{HOST}:{port}") as client:
                lines = client.incidents()
                return not lines or any(
                    line.state not in (IncidentState.JUDGED, IncidentState.FAILED) for line in lines
                )
        return True

    async def over(self) -> None:
        """Returns once the person was told, all that was recorded is acknowledged, and no incident is open."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.told or len(self.receipts) < len(RECORDED) or await asyncio.to_thread(self._open):
                await asyncio.sleep(0.05)


@asynccontextmanager
async def cast(story: Story) -> AsyncIterator[None]:
    """Everybody who meets the servers."""
    playing = [
        asyncio.create_task(story.machine("a", "llama", 0)),
        asyncio.create_task(story.machine("b", "llama", 1)),
        asyncio.create_task(story.machine("c", "qwen", 0, RECORDED)),
        asyncio.create_task(story.person()),
    ]
    try:
        yield
    finally:
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)


async def one_after_the_other(servers: Nursery, where: str, deaths: tuple[int, ...]) -> Story:
    """A story in which the servers end at these points; the last one is stopped when all is over."""
    story = Story((free_port(),))
    async with cast(story):
        for last in (*deaths, 0):
            story.life += 1
            pid = await servers.start(story.ports[0], where, last)
            over, ended = asyncio.create_task(story.over()), asyncio.create_task(servers.ended())
            await asyncio.wait((over, ended), return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                over.cancel()
                assert await ended == -signal.SIGKILL, servers.log.read_text()
                continue
            over.result()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            if await ended == 0:
                break
            assert ended.result() == -signal.SIGKILL  # its last point lay in its own end
    return story


async def one_beside_the_other(servers: Nursery, standby: Nursery, where: str, last: int) -> Story:
    """A story in which one of two servers ends at this point, and the other one has to do with it."""
    story = Story((free_port(), free_port()), life=1)
    async with cast(story):
        pids = [await servers.start(story.ports[0], where, last), await standby.start(story.ports[1], where, 0)]
        ended = asyncio.create_task(servers.ended())
        ended.add_done_callback(lambda _: setattr(story, "life", 2))
        await story.over()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        # one may have met its point, or not even have begun to serve when all was over
        assert await ended in (0, -signal.SIGKILL, -signal.SIGTERM) and await standby.ended() in (0, -signal.SIGTERM)
    return story


async def checked(where: Path | str, story: Story, words: str) -> None:
    """Holds what must be true of a store after any story."""
    store = Store(where)
    try:
        await _true_of(store, story)
    except AssertionError as error:
        error.add_note(f"{words}, lives: {story.life}")
        raise
    finally:
        store.close()


async def _true_of(store: Store, story: Story) -> None:
    incidents = await store.latest("", 100)
    assert {incident.state for incident in incidents} == {IncidentState.JUDGED}, [
        (one.id, one.note) for one in incidents
    ]
    jobs = Counter(incident.job for incident in incidents)
    assert jobs["qwen"] == 1, "what is one standstill is one incident"
    assert story.told <= {incident.id for incident in incidents if incident.job == "llama"}
    assert set(story.receipts.values()) == {""}
    for incident in incidents:
        await _judged_once(store, await store.find(incident.id))


async def _judged_once(store: Store, incident: Incident) -> None:
    said: dict[str, Any] = json.loads(incident.verdict)
    asked, captures = await store.recall(incident.id)
    looks = [(one.machine, one.round) for one in captures if one.machine in "abc"]
    assert len(looks) == len(set(looks))
    if incident.job == "qwen":
        assert looks == [("c", 0), ("c", 1)] and said["because"] == ["rank 0: alone"]
    else:
        lives = {words.partition(": ")[2] for words in said["because"]}
        assert len(said["because"]) == 2 and len(lives) == 1, (
            f"never judged from before and after an end: {said['because']}"
        )
    again = replay(incident.job, asked, (StoredRound(one.machine, one.round, one.packed) for one in captures))
    topology, _ = build(again.layout, again.snapshot.highest_rank())
    verdict = to_json(crashing.judge(again.snapshot, topology))
    assert (verdict["because"], verdict["evict"]) == (said["because"], said["evict"]), "its bundle tells the same"

    def lines(connection: sa.Connection) -> list[tuple[str, str]]:
        query = sa.select(LEDGER.c.machine, LEDGER.c.mention).where(LEDGER.c.incident == incident.id)
        return [(row.machine, row.mention) for row in connection.execute(query)]

    assert await store.ask(lines) == [(said["evict"]["machines"][0], "convicted")]


def drawn(count: int, seed: int) -> list[tuple[int, ...]]:
    """Where servers end: once, and now and then once more while the next one takes things up."""
    dice = random.Random(seed)
    firsts = itertools.islice(itertools.cycle(dice.sample(range(1, POINTS), POINTS - 1)), count)
    return [(first, *([dice.randrange(1, POINTS)] * (dice.random() < 0.4))) for first in firsts]


@pytest.fixture(params=["sqlite", "postgresql"])
def places(request: pytest.FixtureRequest, memory: Path) -> Iterator[Path | str]:
    """Empty stores of one kind, one after the other, as `--store` names them."""
    if request.param == "sqlite":
        return (memory / f"{number}.db" for number in itertools.count())
    running: Postgres = request.getfixturevalue("server")
    return (running.database() for _ in itertools.count())


@pytest.mark.parametrize("count", [SOME, pytest.param(ALL, marks=pytest.mark.soak)])
async def test_a_server_that_is_killed_anywhere(places: Iterator[Path | str], tmp_path: Path, count: int) -> None:
    async with nursery(tmp_path) as servers:
        for where, deaths in zip(places, drawn(count, seed=count), strict=False):
            story = await one_after_the_other(servers, str(where), deaths)
            await checked(where, story, f"ends at points {deaths}")


@pytest.mark.parametrize("count", [SOME // 2, pytest.param(ALL // 5, marks=pytest.mark.soak)])
async def test_a_server_whose_neighbour_is_killed_anywhere(server: Postgres, tmp_path: Path, count: int) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with nursery(tmp_path / "one") as servers, nursery(tmp_path / "other") as standby:
        for last, *_ in drawn(count, seed=-count):
            where = server.database()
            story = await one_beside_the_other(servers, standby, where, last)
            await checked(where, story, f"the neighbour ends at point {last}")
