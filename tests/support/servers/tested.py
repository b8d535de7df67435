"""Machines whose tests are played over the true wire: each answers what it is ordered as the test says."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import grpc

from hangdog_models.planning.campaign.level_planner import LADDER
from hangdog_proto.client.campaigns import CampaignClient, CampaignStep
from hangdog_proto.generated import hangdog_pb2 as pb
from support.servers.cast import PATIENT, Agent, Stage

#: Who is lost is not waited for.
QUICK = replace(PATIENT, campaign_lost_s=0.2)


def report(level: int, outcome: str = "pass", says: str = "", **more: Any) -> str:
    """A report of one test of a level."""
    name = LADDER[level].name
    result = {"test": "gemm", "outcome": outcome, "says": says or f"it {outcome}s", "repetitions": 21, **more}
    levels = [{"level": level, "name": name, "skipped": "", "results": [result]}]
    return json.dumps({"schema": "hangdog.diagnosis/1", "levels": levels, "parts": {"cuda:0": "GPU-of-nobody"}})


def skipped(level: int, why: str) -> str:
    """A report of a level that has nothing to test."""
    levels = [{"level": level, "name": LADDER[level].name, "skipped": why, "results": []}]
    return json.dumps({"schema": "hangdog.diagnosis/1", "levels": levels})


#: What a machine answers to an order: a report, None to be silent, or a message of its own.
Answer = Callable[[pb.Diagnose], "str | pb.Diagnosed | None"]


def sound(order: pb.Diagnose) -> str:
    return report(order.levels[0])


def broken(*levels: int) -> Answer:
    """A machine that fails these levels, and passes the others."""
    return lambda order: report(order.levels[0], "fail" if order.levels[0] in levels else "pass")


def linked(*bad: str) -> Answer:
    """A machine of a cluster in which whoever is tested with one of the bad fails between machines."""
    return lambda order: report(
        order.levels[0], "fail" if order.levels[0] == 3 and set(bad) & {*order.members} else "pass"
    )


@dataclass
class Machine:
    """One machine: what it was ordered, what it was told to end, and how it answers."""

    agent: Agent
    answer: Answer = sound
    orders: list[pb.Diagnose] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def play(self) -> None:
        """Obeys until its stream ends."""
        with suppress(grpc.aio.AioRpcError, AssertionError, asyncio.InvalidStateError):
            while True:
                message = await self.agent.next()
                if message.HasField("abort"):
                    self.aborted.append(message.abort.launch)
                elif message.HasField("diagnose"):
                    self.orders.append(message.diagnose)
                    await self._obey(message.diagnose)
                self.news.set()

    async def say(self, told: pb.Diagnosed) -> None:
        async with self.turn:  # of two who write at once gRPC ends one
            await self.agent.say(diagnosed=told)

    async def ordered(self, count: int = 1) -> pb.Diagnose:
        """The order of that number, once it has come."""
        await self._until(lambda: len(self.orders) >= count)
        return self.orders[count - 1]

    async def ended(self, launch: str) -> None:
        """Returns once it was told to end a launch."""
        await self._until(lambda: launch in self.aborted)

    async def _until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(50):
            while not true():
                await self.news.wait()
                self.news.clear()

    async def _obey(self, order: pb.Diagnose) -> None:
        if len(order.members) > 1 and not order.meet:
            await self.say(pb.Diagnosed(launch=order.launch, meet="127.0.0.1:29500"))
        said = self.answer(order)
        if isinstance(said, str):
            said = pb.Diagnosed(launch=order.launch, report=said)
        if said is not None:
            await self.say(said)


@asynccontextmanager
async def machine(
    on: Stage, name: str, answer: Answer = sound, replays: tuple[str, ...] = ()
) -> AsyncIterator[Machine]:
    """A connected machine that knows these replays by name; leave the block, and its agent is gone."""
    async with on.agent(name) as agent:
        hello = pb.Hello(machine=name, version="1", diagnoses=True, boot=f"start of {name}", replays=replays)
        await agent.say(hello=hello)
        assert (await agent.next()).HasField("welcome")
        played = Machine(agent, answer)
        playing = asyncio.create_task(played.play())
        await on.until(lambda seen: any(line.name == name and line.connected for line in seen))
        try:
            yield played
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)


@asynccontextmanager
async def machines(on: Stage, **answers: Answer) -> AsyncIterator[dict[str, Machine]]:
    """Several of them."""
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(machine(on, name, answer)) for name, answer in answers.items()}


async def campaign(on: Stage, *names: str, heard: list[CampaignStep] | None = None, **asked: Any) -> Mapping[str, Any]:
    """Asks for a campaign as the command line does; its report. `heard` gets the steps as they come."""
    steps = [] if heard is None else heard

    def ask() -> list[CampaignStep]:
        with CampaignClient(on.address) as client:
            steps.extend(client.run(names, **asked))  # list.extend takes them one by one
        return steps

    told = (await asyncio.to_thread(ask))[-1].report
    assert told is not None
    return told


async def asking(on: Stage, what: Callable[[CampaignClient], Any]) -> Any:
    """What the server answers to the command line."""

    def ask() -> Any:
        with CampaignClient(on.address) as client:
            return what(client)

    return await asyncio.to_thread(ask)
