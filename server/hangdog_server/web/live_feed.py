"""Tells open pages when what they show has changed; asks the store only while somebody looks, and once for all of them.

sse-starlette would write the two lines of an event. Its pings are comments, which no page sees: here a page counts beats
and shows their time, and one that may look no longer is ended between two of them.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from urllib.parse import quote

from hangdog_models.errors import HangdogError, WrongUse

#: Between two looks at what pages show: a person notices no less. Seconds.
TICK_S = 0.5
#: A page says that its connection is lost when two of these did not come: within five seconds. It also keeps proxies from
#: closing a quiet stream, and shows us who is gone. Seconds.
BEAT_S = 2.0
#: Pages open at once: each is a connection. More are told to come back.
MOST = 200

#: The names of pages that are told of changes, beside incidents by their ids: the first one, the lists, each machine, and the
#: communicators of each job.
NOW, MACHINE = "", "/machines/"
JOB, COMMUNICATORS = "/jobs/", "/communicators"
LISTS = ("/incidents", "/jobs", "/machines", "/actions")

log = logging.getLogger(__name__)
#: What pages show, by its name (an incident's id, a page's path, or "" for the first page): a mark that changes with it, and
#: what to say then.
Seen = dict[str, tuple[str, dict[str, object]]]


def events(page: str, seen: str) -> str:
    """Where a page hears of its changes that shows what is marked so."""
    of = f"of={quote(page, safe='/')}&" if page else ""
    return f"/api/events?{of}seen={quote(seen, safe='')}"


def named(page: str) -> str:
    """The page of this name, if it is told of changes; raises WrongUse."""
    if page == NOW or page in LISTS or page.startswith(MACHINE) or job_of(page) is not None:
        return page
    raise WrongUse(
        f"there is no stream of changes for {page[:100]!r}",
        "/api/events?of=/machines, or without `of`",
        code="no-such-page",
    )


def communicators_page(job: str) -> str:
    """The name of the page of a job's communicators."""
    return f"{JOB}{job}{COMMUNICATORS}"


def job_of(page: str) -> str | None:
    """The job whose communicators a page of this name shows; None for any other page."""
    shown = page.startswith(JOB) and page.endswith(COMMUNICATORS)
    return page.removeprefix(JOB).removesuffix(COMMUNICATORS) if shown else None


class Feed:
    """The changes, for as many listeners as there are; `look` gives what the pages of these names show now.

    `clock` gives Unix seconds: pages count by it, for the clock of a phone may be wrong.
    """

    def __init__(self, look: Callable[[Collection[str]], Awaitable[Seen]], clock: Callable[[], float]) -> None:
        self._look = look
        self._clock = clock
        self._seen: Seen = {}
        self._changed = asyncio.Event()
        self._listened: Counter[str] = Counter()
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """Whether nobody else is listened to."""
        return self._listened.total() >= MOST

    async def events(self, name: str, known: str, allowed: Callable[[], bool]) -> AsyncIterator[str]:
        """What changed of `name` since its mark was `known`, as server-sent events, while whoever listens is `allowed` to.

        A beat comes at once and then all the time: it says that nothing has changed, and how late it is here.
        """
        self._listened[name] += 1
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name="open pages")
        try:
            yield f"retry: 3000\n\n{self._beat()}"
            while not self._closed and allowed():
                changes = self._changed
                found = self._seen.get(name)
                if found is not None and found[0] != known:
                    known = found[0]
                    yield f"event: state\ndata: {json.dumps(found[1])}\n\n"
                    continue
                try:
                    async with asyncio.timeout(BEAT_S):
                        await changes.wait()
                except TimeoutError:
                    yield self._beat()
        finally:
            self._listened[name] -= 1
            if not self._listened[name]:
                del self._listened[name]
            if not self._listened and self._task is not None:
                self._task.cancel()
                self._task = None
                self._seen = {}

    def close(self) -> None:
        """Ends every stream."""
        self._closed = True
        self._tell()

    def _beat(self) -> str:
        return f"event: beat\ndata: {self._clock():.3f}\n\n"

    async def _keep(self) -> None:
        while True:
            try:
                found = await self._look(tuple(self._listened))
                if found != self._seen:
                    self._seen = found
                    self._tell()
            except HangdogError as error:  # a store that is away comes back; pages keep what they show
                log.debug("open pages are not told: %s", error)
            await asyncio.sleep(TICK_S)

    def _tell(self) -> None:
        changes, self._changed = self._changed, asyncio.Event()
        changes.set()
