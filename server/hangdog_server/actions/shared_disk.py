"""Reads and writes files of a shared disk that may hang: each in a thread, for which nothing waits without an end."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

#: Seconds for one piece of work: a disk that is up takes milliseconds, one that is not never ends.
WITHIN_S = 10.0

Found = TypeVar("Found")


class Disk:
    """One disk. While work on it hangs no second begins: threads would pile up, and a late one might undo a later action."""

    def __init__(self, within_s: float = WITHIN_S) -> None:
        self._within_s = within_s
        self._turn = asyncio.Lock()
        self._work: Future[Any] | None = None

    async def do(self, work: Callable[[], Found]) -> Found:
        """What the work returns or raises; TimeoutError if it does not end in time, or the work before it has not."""
        async with self._turn:
            if self._work is not None and not self._work.done():
                raise TimeoutError
            done: Future[Found] = Future()
            self._work = done
            threading.Thread(target=_into, args=(done, work), name="shared disk", daemon=True).start()
            ended = asyncio.wrap_future(done)
            ended.add_done_callback(lambda one: one.cancelled() or one.exception())  # the caller may be gone
            async with asyncio.timeout(self._within_s):
                return await asyncio.shield(ended)


def _into(done: Future[Any], work: Callable[[], Any]) -> None:
    try:
        done.set_result(work())
    except Exception as error:  # noqa: BLE001  # whatever it is, the caller gets it
        done.set_exception(error)
