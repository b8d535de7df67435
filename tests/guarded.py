"""A cluster with certificates, and a server in it that strangers and broken agents are let loose on."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc

from cast import PATIENT, Agent, Stage, stage, trainer
from hangdog_proto.reach import Reach
from hangdog_server import certs, tokens
from hangdog_server.door import Door
from hangdog_server.settings import Settings
from hangdog_server.tokens import Role

#: Whoever says nothing is cut off soon; nobody who speaks is, however slow this machine is.
STRICT = replace(PATIENT, hello_s=1.0)
#: What a well-behaved agent is waited for while others misbehave. It takes some 50 ms alone. Seconds.
SERVED_S = 5.0


def now() -> float:
    return time.time()  # noqa: TID251  # TLS itself goes by the true clock


@dataclass(frozen=True)
class Cluster:
    """The authority's folder, and what it has signed."""

    home: Path

    def machine(self, name: str, at: float | None = None) -> Path:
        """The folder of a machine's certificate, made at that time."""
        into = self.home / f"machines-{len(list(self.home.iterdir()))}"
        return certs.machine(self.home, name, now() if at is None else at, into)

    def client(self, name: str) -> Path:
        return certs.client(self.home, name, now(), self.home / f"clients-{len(list(self.home.iterdir()))}")

    def door(self, **more: object) -> Door:
        return replace(
            Door(self.home / "server", tokens=self.home / "tokens.json", audit=self.home / "audit.jsonl"),
            **more,  # type: ignore[arg-type]  # the test names what it changes
        )


def made(home: Path) -> Cluster:
    """A new cluster, whose server is called localhost."""
    certs.init(home, ["localhost"], now())
    return Cluster(home)


@asynccontextmanager
async def guarded(cluster: Cluster, settings: Settings = STRICT, **more: object) -> AsyncIterator[Stage]:
    """A server with TLS, and somebody who may do everything."""
    token = tokens.new(cluster.home / "tokens.json", "root", Role.ACT, now())
    root = cluster.client("root")
    path = cluster.home / "store" / "s.db"
    async with stage(path, settings=settings, door=cluster.door(**more), clock=now) as on:
        on.reach = Reach(on.address, root, token)
        yield on


@asynccontextmanager
async def beside(
    on: Stage, name: str = "good", tls: Path | None = None
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A well-behaved agent; call what is given to see that it is served, and at once."""
    async with on.agent(name, tls) as agent:
        await agent.hello(good=[0])
        await on.knows(name)

        async def served() -> None:
            async with asyncio.timeout(SERVED_S):
                asking = asyncio.create_task(on.snapshot("good"))
                await agent.answer(await agent.order(), trainer(0))
                assert (await asking)[-1].verdict is not None

        yield served


async def refusal(agent: Agent, **said: Any) -> tuple[grpc.StatusCode, str]:
    """Says something as an agent that is going to be refused; how its stream ends."""
    with suppress(grpc.aio.AioRpcError):
        await agent.say(**said)
    return await agent.end()
