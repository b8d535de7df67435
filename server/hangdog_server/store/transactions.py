"""Takes steps in the database, each a transaction with a deadline; the event loop never waits for a disk.

SQLite gets one thread, since it has one writer at a time anyway; PostgreSQL a few, each with a connection.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from hangdog_server.store.database import Database
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.telemetry import SILENT, Telemetry

#: Seconds one step may take: several times what storing the looks of 16,384 machines takes on a slow disk.
WITHIN_S = 20.0
#: The same where somebody waits for an answer: the command line gives up after 10 s, and should hear why.
ANSWER_S = 8.0

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Transactions:
    """An open database, called `name`, until `close`; `shared`: other servers may have it open, too."""

    def __init__(self, where: Path | str, within_s: float = WITHIN_S, telemetry: Telemetry = SILENT) -> None:
        """Opens or makes a file, or opens the database a URL names; raises HangdogError, saying what to change.

        No step takes longer than `within_s` seconds: it is taken back, and fails.
        """
        self._within_s = within_s
        self._telemetry = telemetry
        self._database = Database(where, within_s)
        self.name, self.shared = self._database.name, self._database.shared
        self._threads = ThreadPoolExecutor(self._database.threads, "store")

    def close(self) -> None:
        """Finishes what is being written and lets go of the database."""
        self._threads.shutdown()
        self._database.close()

    async def shrink(self, pages: int) -> bool:
        """Gives up to so many free pages of a file back to its disk; whether there are more. Raises StoreFailed."""
        return await self._beside(lambda _: self._database.shrink(pages), self._within_s)

    def one_at_a_time(self, connection: sa.Connection, what: str) -> None:
        """Steps that name the same `what`, of whichever server, take turns from here to their end."""
        self._database.one_at_a_time(connection, what)

    async def do(
        self,
        step: Callable[Concatenate[sa.Connection, Given], Result],
        *given: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """Takes a step in a transaction of its own, which is on the disk afterwards; raises StoreFailed."""
        with self._telemetry.stored(step.__name__.lstrip("_")):
            return await self._taken(lambda connection: step(connection, *given, **named), False, self._within_s)

    async def ask(
        self,
        step: Callable[Concatenate[sa.Connection, Given], Result],
        *given: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """Takes a step that changes nothing; raises StoreFailed while whoever asks still waits for the answer."""
        within_s = min(ANSWER_S, self._within_s)
        with self._telemetry.stored(step.__name__.lstrip("_")):
            return await self._taken(lambda connection: step(connection, *given, **named), True, within_s)

    async def _taken(self, step: Callable[[sa.Connection], Result], reads: bool, within_s: float) -> Result:
        def transact(given_up: threading.Event) -> Result:
            with self._database.begin(reads) as connection:
                result = step(connection)
                if given_up.is_set():  # nobody believes any longer that this is done, so it must not be
                    raise StoreFailed("the store answered too late", code="store-unavailable")
                return result

        return await self._beside(transact, within_s)

    async def _beside(self, work: Callable[[threading.Event], Result], within_s: float) -> Result:
        """Works in a thread of the store's; whoever waits for longer gives up, and says so to the work."""
        given_up = threading.Event()
        done = asyncio.get_running_loop().run_in_executor(self._threads, work, given_up)
        try:
            async with asyncio.timeout(within_s):
                return await done
        except TimeoutError:
            given_up.set()
            late = f"the store failed: {self.name} did not answer within {within_s:g} s"
            raise StoreFailed(late, "check the disk or database that holds it", code="store-unavailable") from None
        except asyncio.CancelledError:
            given_up.set()
            raise
