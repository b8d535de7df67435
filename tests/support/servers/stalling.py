"""A job on two machines that stands still, as its agents are played; and a judge that says what a test wants."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from hangdog_models.incident import Incident
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, Verdict
from hangdog_proto.codec import stall_signs
from support.servers.cast import Agent, Stage, trainer, verdict

TWO = {"a": 0, "b": 1}


class Machine:
    """An agent that answers what it is asked, each order by what its rank does then; `orders` are those it was given."""

    def __init__(self, agent: Agent, rank: int) -> None:
        self._agent, self._rank = agent, rank
        self.orders: list[str] = []
        self.most = 1000
        self.answers = asyncio.Event()
        self.answers.set()
        self._line = asyncio.Lock()  # one message at a time, as gRPC wants it

    async def _says(self, signs: dict[str, dict[Rank, Sign]]) -> None:
        async with self._line:
            await self._agent.say(stall_report=stall_signs.pack(signs))

    async def stands(self, seconds: float = 6.0) -> None:
        signs = {"llama": {Rank(self._rank): Sign(Doing.STILL, seconds, overdue=True, place="all_reduce")}}
        await self._says(signs)

    async def goes_on(self) -> None:
        await self._says({})

    async def ends(self) -> None:
        await self._agent.announce()

    async def serve(self) -> None:
        while True:
            message = await self._agent.next()
            if message.HasField("capture"):
                self.orders.append(message.capture.order)
                await self.answers.wait()
                if len(self.orders) > self.most:
                    continue
                async with self._line:
                    await self._agent.answer(message.capture, trainer(self._rank, f"look {len(self.orders)}"))


@asynccontextmanager
async def machines(on: Stage) -> AsyncIterator[list[Machine]]:
    """Both machines of the job, connected."""
    async with on.agent("a") as a, on.agent("b") as b:
        found = [Machine(agent, TWO[agent.machine]) for agent in (a, b)]
        for agent in (a, b):
            await agent.hello(llama=[TWO[agent.machine]])
        await on.knows(*TWO)
        tasks = [asyncio.create_task(one.serve()) for one in found]
        try:
            yield found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def reached(on: Stage, true: Callable[[Incident], object]) -> Incident:
    """The only incident there is, once that is true of it."""
    async with asyncio.timeout(90):
        while not (found := await on.store.latest("", 9)) or not true(found[0]):
            await asyncio.sleep(0.01)
    assert len(found) == 1, [one.why for one in found]
    return await on.store.find(found[0].id)


def says(kind: Kind, *evict: str) -> Callable[[Snapshot, Topology], Verdict]:
    def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
        return replace(verdict(snapshot, topology, kind), evict=Eviction(evict, 0.9 * bool(evict)))

    return judge
