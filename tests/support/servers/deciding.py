"""A verdict that waits for approval on a running server with pages, and people of each role who look at it."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from hangdog_models.actions.caps import Caps, Mode
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, Verdict
from hangdog_proto.client.server_address import ServerAddress
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.backend import Backend
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.auth import tokens
from hangdog_server.auth.tokens import Role
from hangdog_server.listener import ListenerConfig
from support.servers.browsed import Browsed, browsed, visitor
from support.servers.cast import NOON, PATIENT, trainer, verdict
from support.servers.cast_acting import WIDE


def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
    return replace(verdict(snapshot, topology, Kind.MACHINE), evict=Eviction(("a",), 0.97))


@dataclass
class Deciding:
    """A verdict that waits for approval, and people of each role."""

    site: Browsed
    incident: str
    folder: Path
    people: dict[Role, httpx.AsyncClient]
    tokens: dict[Role, str]

    @property
    def alice(self) -> httpx.AsyncClient:
        """She may act."""
        return self.people[Role.ACT]

    @property
    def excluded(self) -> list[str]:
        file = self.folder / "excluded"
        return file.read_text().splitlines() if file.exists() else []

    async def acts(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.alice.get(f"/api/actions?incident={self.incident}")).json()
        return found

    async def until(self, state: str) -> None:
        async with asyncio.timeout(60):
            while [one["state"] for one in (await self.acts())["actions"]] != [state]:
                await asyncio.sleep(0.02)

    async def posted(
        self, what: str, because: str = "", by: Role = Role.ACT, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """What somebody is answered who opens the page, and posts its form."""
        path = f"/machines/a/{what}" if what == "release" else f"/incidents/{self.incident}/{what}"
        form = {"seen": shown((await self.alice.get(path)).text), "because": because}
        return await self.people[by].post(path, data=form, headers=headers)

    def recorded(self) -> list[tuple[str, str, str]]:
        lines = map(json.loads, (self.folder / "audit.jsonl").read_text().splitlines())
        return [(one["what"], one["who"], one["outcome"]) for one in lines if one["what"] != "snapshot"]


def shown(page: str) -> str:
    found = re.search(r'name="seen" value="(\w+)"', page)
    return found[1] if found else ""


@asynccontextmanager
async def deciding(
    folder: Path, mode: Mode = Mode.APPROVE, caps: Caps = WIDE, state: str = "waiting", actor: Backend | None = None
) -> AsyncIterator[Deciding]:
    """Machine a of llama is to be evicted, x is free; people come once the act is in that state."""
    does = ActionsConfig(mode, caps, (actor or ExcludeFile(folder / "excluded"),), folder / "stop")
    file = folder / "tokens.json"
    door = ListenerConfig(tokens=file, audit=folder / "audit.jsonl")
    settings = replace(PATIENT, returned_s=0.0)
    ticks = itertools.count()
    clock = lambda: NOON + next(ticks) / 1000  # what comes later is later
    async with (
        browsed(folder / "s.db", judge, door, settings=settings, does=does, clock=clock) as site,
        site.on.agent("a") as a,
        site.on.agent("x") as x,
    ):
        await a.hello(llama=[0])
        await x.hello()
        await site.on.knows("a")
        asking = asyncio.create_task(site.on.snapshot("llama"))
        await a.answer(await a.order(), trainer(0), last=True)
        incident = (await asking)[-1].incident
        people, shows = {}, {}
        for role in Role:
            shows[role] = tokens.new(file, {Role.ACT: "alice"}.get(role, role.word), role, NOON)
            people[role] = visitor(site.address, headers={"authorization": f"Bearer {shows[role]}"})
        site.on.reach = ServerAddress(site.on.address, token=shows[Role.ACT])
        found = Deciding(site, incident, folder, people, shows)
        try:
            await found.until(state)
            yield found
        finally:
            for one in people.values():
                await one.aclose()
