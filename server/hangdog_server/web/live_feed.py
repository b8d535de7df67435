"""Tells open pages when what they show has changed; asks the store only while somebody looks."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from hangdog_models.errors import HangdogError

#: Between two looks at what pages show: a person notices no less. Seconds.
TICK_S = 1.0
#: A line that says nothing keeps proxies from closing a quiet stream, and shows us who is gone. Seconds.
QUIET_S = 15.0
#: Pages open at once: each is a connection. More are told to come back.
MOST = 200

log = logging.getLogger(__name__)
#: What pages show, by its name (an incident's id, or "" for all): a mark that changes with it, and what to say then.
Seen = dict[str, tuple[str, dict[str, object]]]


class Feed:
    """The changes, for as many listeners as there are; `look` gives what pages show now."""

    def __init__(self, look: Callable[[], Awaitable[Seen]]) -> None:
        self._look = look
        self._seen: Seen = {}
        self._changed = asyncio.Event()
        self._listeners = 0
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """Whether nobody else is listened to."""
        return self._listeners >= MOST

    async def events(self, name: str, known: str, allowed: Callable[[], bool]) -> AsyncIterator[str]:
        """What changed of `name` since its mark was `known`, as server-sent events, while whoever listens is `allowed` to."""
        self._listeners += 1
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name="open pages")
        try:
            yield "retry: 3000\n\n"
            while not self._closed and allowed():
                changes = self._changed
                found = self._seen.get(name)
                if found is not None and found[0] != known:
                    known = found[0]
                    yield f"event: state\ndata: {json.dumps(found[1])}\n\n"
                    continue
                try:
                    async with asyncio.timeout(QUIET_S):
                        await changes.wait()
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._listeners -= 1
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None
                self._seen = {}

    def close(self) -> None:
        """Ends every stream."""
        self._closed = True
        self._tell()

    async def _keep(self) -> None:
        while True:
            try:
                found = await self._look()
                if found != self._seen:
                    self._seen = found
                    self._tell()
            except HangdogError as error:  # a store that is away comes back; pages keep what they show
                log.debug("open pages are not told: %s", error)
            await asyncio.sleep(TICK_S)

    def _tell(self) -> None:
        changes, self._changed = self._changed, asyncio.Event()
        changes.set()
