"""Reads and writes files of a shared disk, which may hang: each by one thread that nobody waits for without an end."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

#: Seconds for one piece of work: a disk that is up takes milliseconds, one that is not never ends.
WITHIN_S = 10.0

Found = TypeVar("Found")


class Disk:
    """One disk. While work on it hangs there is no second: threads would pile up, and a late one might undo a later act."""

    def __init__(self, within_s: float = WITHIN_S) -> None:
        self._within_s = within_s
        self._turn = asyncio.Lock()
        self._work: Future[Any] | None = None

    async def do(self, work: Callable[[], Found]) -> Found:
        """What the work gives or raises; raises TimeoutError when it does not end in time, or what came before it has not."""
        async with self._turn:
            if self._work is not None and not self._work.done():
                raise TimeoutError
            done: Future[Found] = Future()
            self._work = done
            threading.Thread(target=_into, args=(done, work), name="shared disk", daemon=True).start()
            ended = asyncio.wrap_future(done)
            ended.add_done_callback(lambda one: one.cancelled() or one.exception())  # which nobody may be left to hear
            async with asyncio.timeout(self._within_s):
                return await asyncio.shield(ended)


def _into(done: Future[Any], work: Callable[[], Any]) -> None:
    try:
        done.set_result(work())
    except Exception as error:  # noqa: BLE001  # whatever it is, whoever waits is told
        done.set_exception(error)
