"""What people do about an incident, by servers that kill themselves with -9 at a point that the test chooses, as a program.

It reads one line of JSON for each life, forks it, and answers with how it ended. Points are the edges of every transaction
that writes. Who is not answered asks again: what was answered stands in a file.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hangdog_models.actions.caps import Mode
from hangdog_server.auth.authorizer import Person
from hangdog_server.auth.tokens import Role
from hangdog_server.grpc_api.response_service import Asked, ResponseService
from hangdog_server.store.database import Database
from support.servers.cast_acting import world
from support.servers.crashing import Points

#: The night, as people ask for it.
NIGHT = (
    Asked("ack"),
    Asked("note", "the fan is loud", key="k1"),
    Asked("resolve", "fixed in 4c1d", "software"),
    Asked("reopen", "it hangs again"),
    Asked("note", "the fan is loud", key="k2"),
    Asked("resolve", "the fan", "machine", ("b",)),
)
ADA = Person("ada", Role.ACT, "token", "here")


async def live(where: str, folder: Path) -> None:
    """One server's life: until all of the night is answered."""
    answered = folder / "answered"
    async with world(where if "://" in where else Path(where), folder, mode=Mode.APPROVE) as on:
        service = ResponseService(on.means, on.audit)
        for number, asked in enumerate(NIGHT):
            if answered.exists() and number < int(answered.read_text()):
                continue
            await service.respond("0a", asked, ADA)
            answered.write_text(str(number + 1))


def run(where: str, folder: str, last: int) -> None:
    """Lives until its last point (0: none)."""
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

    Database.begin = pointed  # type: ignore[method-assign,assignment]
    asyncio.run(live(where, Path(folder)))
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
