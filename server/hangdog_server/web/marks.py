"""Marks of what pages show: each changes when its page would, and is the same on every server that shows the same."""

from collections.abc import Collection

import msgspec

from hangdog_models.errors import WrongUse
from hangdog_server.cluster.communicators import communicators_mark
from hangdog_server.etag import digest
from hangdog_server.grpc_api.lists.list_service import Lists
from hangdog_server.store import store as incidents
from hangdog_server.store.store import Store
from hangdog_server.web import api
from hangdog_server.web.history import History, mark
from hangdog_server.web.live_feed import LISTS, MACHINE, NOW, Seen, job_of
from hangdog_server.web.overview import Observatory, Present


def present_mark(present: Present, lately: str) -> str:
    """Changes when the first page would; `lately` is the mark of what is done."""
    return f"{present.mark}-{lately}"


class Marks:
    """The marks of pages, for as many as are open: the store is asked the same few things, however many those are."""

    def __init__(self, observatory: Observatory, store: Store, history: History, lists: Lists) -> None:
        self._observatory = observatory
        self._lists = lists
        self._store = store
        self._history = history

    async def look(self, listened: Collection[str], now: float) -> Seen:
        """What pages of these names show now, and of each incident that the first page lists; raises HangdogError."""
        listed: Seen = {name: (await self.list_mark(name), {}) for name in listened if name in LISTS}
        for name in listened:
            if (job := job_of(name)) is not None:
                listed[name] = await self.communicators_mark(job), {}
        if len(listed) == len(listened):  # what else is shown costs more to look at
            return listed
        present = await self._observatory.present(now)
        here = {one.id: one for one in present.incidents}
        older = [name for name in listened if name and not name.startswith("/") and name not in here]
        if older:
            here |= {one.id: one for one in await self._store.ask(incidents.listed, older)}
        lately, done = await self._history.marks(list(here))
        counts: dict[str, object] = {"jobs": len(present.jobs), "suspects": len(present.suspects)}
        seen = listed | {NOW: (present_mark(present, lately), counts)}
        for name, one in here.items():
            seen[name] = mark(one, done.get(name, "")), msgspec.to_builtins(api.incident_line(one))
        verdicts = digest(present.incidents_mark, lately)
        for name in listened:
            if name.startswith(MACHINE):
                seen[name] = await self._machine(name, verdicts), counts
        return seen

    async def machine_mark(self, page: str, now: float) -> str:
        """The mark of what the page of a machine shows now; raises HangdogError."""
        present = await self._observatory.present(now)
        lately, _ = await self._history.marks(())
        return await self._machine(page, digest(present.incidents_mark, lately))

    async def list_mark(self, page: str) -> str:
        """The mark of what a list shows now, whatever is asked of it; raises HangdogError."""
        if page == "/machines":
            return await self._lists.machines_mark()
        if page == "/jobs":
            return await self._lists.jobs_mark()
        if page == "/incidents":
            return digest(await self._lists.incidents_mark())
        return digest(await self._lists.actions_mark(), await self._history.actions_mark())

    async def communicators_mark(self, job: str) -> str:
        """The mark of what the page of a job's communicators shows now; that of a job that has ended is another one."""
        try:
            return communicators_mark(await self._observatory.communicators(job))
        except WrongUse:
            return ""

    async def _machine(self, page: str, verdicts: str) -> str:
        """What is done and what verdicts say, and whether it is connected, runs what, and finds what."""
        return digest(verdicts, await self._lists.machines_mark(page.removeprefix(MACHINE)))
