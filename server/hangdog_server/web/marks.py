"""Marks of what pages show: each changes when its page would, and is the same on every server that shows the same."""

from collections.abc import Collection
from urllib.parse import quote

from hangdog_models.errors import WrongUse
from hangdog_server.etag import digest
from hangdog_server.store import store as incidents
from hangdog_server.store.store import Store
from hangdog_server.web import api
from hangdog_server.web.history import History, mark
from hangdog_server.web.live_feed import Seen
from hangdog_server.web.overview import Observatory, Present

#: The names of pages that are told of changes, beside incidents by their ids: the first one, the list of machines, each machine.
NOW, MACHINES, MACHINE = "", "/machines", "/machines/"


def present_mark(present: Present, lately: str) -> str:
    """Changes when the first page would; `lately` is the mark of what is done."""
    return f"{present.mark}-{lately}"


def events(page: str, seen: str) -> str:
    """Where a page hears of its changes that shows what is marked so."""
    of = f"of={quote(page, safe='/')}&" if page else ""
    return f"/api/events?{of}seen={quote(seen, safe='')}"


def named(page: str) -> str:
    """The page of this name, if it is told of changes; raises WrongUse."""
    if page in (NOW, MACHINES) or page.startswith(MACHINE):
        return page
    raise WrongUse(f"no changes are told of {page[:100]!r}", "/api/events?of=/machines, or without `of`")


class Marks:
    """The marks of pages, for as many as are open: the store is asked the same few things, however many those are."""

    def __init__(self, observatory: Observatory, store: Store, history: History) -> None:
        self._observatory = observatory
        self._store = store
        self._history = history

    async def look(self, listened: Collection[str], now: float) -> Seen:
        """What pages of these names show now, and of each incident that the first page lists; raises HangdogError."""
        present = await self._observatory.present(now)
        here = {one.id: one for one in present.incidents}
        older = [name for name in listened if name and not name.startswith("/") and name not in here]
        if older:
            here |= {one.id: one for one in await self._store.ask(incidents.listed, older)}
        lately, done = await self._history.marks(list(here))
        counts: dict[str, object] = {"jobs": len(present.jobs), "suspects": len(present.suspects)}
        seen: Seen = {NOW: (present_mark(present, lately), counts)}
        for name, one in here.items():
            seen[name] = mark(one, done.get(name, "")), api.incident_line(one)
        verdicts = digest(present.incidents_mark, lately)
        for name in listened:
            if name.startswith("/"):
                seen[name] = self._machines(name, verdicts), counts
        return seen

    async def of(self, page: str, now: float) -> str:
        """The mark of what a page of machines shows now; raises HangdogError."""
        present = await self._observatory.present(now)
        lately, _ = await self._history.marks(())
        return self._machines(page, digest(present.incidents_mark, lately))

    def _machines(self, page: str, verdicts: str) -> str:
        """What is done and what verdicts say, and who is connected, runs what, and finds what."""
        return digest(verdicts, self._observatory.machine_lines("" if page == MACHINES else page.removeprefix(MACHINE)))
