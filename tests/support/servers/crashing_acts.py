"""What follows from a verdict, by servers that kill themselves with -9 at a point that the test chooses, as a program.

It reads one line of JSON for each life, forks it, and answers with how it ended. Points are the edges of every transaction
and of everything that is asked of the actor: a scheduler that keeps its state in a file, as a real one outlives us.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hangdog_server.actions import policy
from hangdog_server.actions.backends.backend import IsolationCase
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.store import actions
from hangdog_server.store.actions import UNDER_WAY
from hangdog_server.store.database import Database
from support.servers.cast_acting import world
from support.servers.crashing import Points

#: Ticks that a story takes at most; the longest ones need some ten.
TICKS = 60


class Scheduler(ExcludeFile):
    """A file of excluded machines, and a file beside it in which every start of the job is a line."""

    def __init__(self, folder: Path, point: Points) -> None:
        super().__init__(folder / "excluded")
        self._starts = folder / "starts"
        self._point = point

    async def mark(self, case: IsolationCase) -> None:
        self._point()
        await super().mark(case)
        self._point()

    async def unmark(self, case: IsolationCase) -> None:
        self._point()
        await super().unmark(case)
        self._point()

    async def run_of(self, case: IsolationCase) -> str:
        self._point()
        return str(self._started())

    async def move(self, case: IsolationCase, run: str, machines: Sequence[str]) -> bool:
        self._point()
        if str(self._started()) == run:
            with self._starts.open("a") as file:
                file.write(f"without {' '.join(machines)}\n")
        self._point()
        return True

    def _started(self) -> int:
        return len(self._starts.read_text().splitlines()) if self._starts.exists() else 0


async def live(where: str, folder: Path, point: Points, release: str) -> None:
    """One server's life: until nothing is left to do; `release` is a machine that a person then wants back."""
    async with world(where if "://" in where else Path(where), folder, Scheduler(folder, point)) as on:
        for _ in range(TICKS):
            await on.acting.tick()
            rows = await on.store.ask(actions.under_way)
            if not any(row.state in UNDER_WAY for row in rows):
                if not release or not any(row.machine == release for row in rows):
                    return
                await on.store.do(policy.release, release, "", "alice", on.now)
    raise AssertionError("it came to no end")


def run(where: str, folder: str, last: int, release: str, acts: bool) -> None:
    """Lives until its last point (0: none); `acts`: only those around what is asked of the actor count."""
    point = Points(last)
    begin = Database.begin

    @contextmanager
    def pointed(database: Database, reads: bool = False) -> Iterator[sa.Connection]:
        if not reads:
            point()
        with begin(database, reads) as connection:
            yield connection
            if not reads:
                point()
        if not reads:
            point()

    if not acts:
        Database.begin = pointed  # type: ignore[method-assign,assignment]
    asyncio.run(live(where, Path(folder), point, release))
    (Path(folder) / "passed").write_text(str(point.passed))


def main() -> None:
    """Runs one life after the other, as the lines of standard input say."""
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                run(**asked)
                status = 0
            finally:
                os._exit(status)
        _, how = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(how), flush=True)


if __name__ == "__main__":
    main()
