"""A running server with pages, and whoever opens them over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from hangdog.demo.conductor import free_port
from hangdog_models.diagnosis.judge import diagnose
from hangdog_server.incidents.judge import Judge
from hangdog_server.listener import LOCAL, ListenerConfig
from support.cases.stories import trace
from support.servers.cast import Agent, Stage, cluster, stage


@dataclass
class Browsed:
    """A server, the address of its pages, and one who asks for them."""

    on: Stage
    address: str
    http: httpx.AsyncClient


def visitor(address: str, verify: Any = False, **more: Any) -> httpx.AsyncClient:
    """Who asks for pages, and trusts nobody unless told whom: over plain HTTP no certificate is shown.

    To read the authorities that the system trusts takes 35 ms of CPU time for each client.
    """
    return httpx.AsyncClient(base_url=address, verify=verify, timeout=30, **more)


@asynccontextmanager
async def browsed(
    path: Path, judge: Judge = diagnose, door: ListenerConfig = LOCAL, verify: Any = False, **more: Any
) -> AsyncIterator[Browsed]:
    """A server on free ports, upon the store at `path`."""
    web = f"127.0.0.1:{free_port()}"
    address = f"https://localhost:{web.rpartition(':')[2]}" if door.tls else f"http://{web}"
    async with (
        stage(path, judge, door=replace(door, web=web), **more) as on,
        visitor(address, verify) as http,
    ):
        yield Browsed(on, address, http)


async def hang(on: Stage, *, hold: Callable[[], Any] | None = None) -> str:
    """A job of four ranks on two machines hangs for rank 2 and is judged; the incident's id. `hold` is awaited meanwhile."""
    async with cluster(on, a=[0, 1], b=[2, 3]) as agents:
        asked = asyncio.create_task(on.snapshot("llama", rounds=1))
        for agent in agents:
            await _answer(agent, hold if agent is agents[-1] else None)
        return str((await asked)[-1].incident)


async def _answer(agent: Agent, hold: Callable[[], Any] | None) -> None:
    order = await agent.order()
    if hold is not None:
        await hold()
    ranks = {"a": (0, 1), "b": (2, 3)}[agent.machine]
    # in its driver: one look is enough
    traces = [
        trace(rank, "disk", state="D", wchan="os_acquire_mutex") if rank == 2 else trace(rank, "backward")
        for rank in ranks
    ]
    await agent.answer(order, *traces, last=True)
