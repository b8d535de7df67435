"""A server that kills itself with -9 at a point that the test chooses, as a program.

It reads one line of JSON for each server to run, forks it (so that a thousand of them cost no thousand imports), and
answers with its pid, then with how it ended. Points are the edges of every transaction, every order and receipt that is
laid into an agent's line, every look that is taken, and both sides of judging.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa

from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, Suspect, Verdict
from hangdog_server import isolation_tests
from hangdog_server.actions import reconcile
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.round_capture import RoundCapture
from hangdog_server.listener import ListenerConfig, OpenListeners
from hangdog_server.main import serve
from hangdog_server.settings import ServerSettings
from hangdog_server.store.database import Database
from support.cases.reasons import reasons
from support.servers.cast import verdict

#: What the server is run with: short waits, for everybody is on this machine and comes back at once.
SETTINGS = ServerSettings(
    rounds=2,
    interval_s=0.02,
    patience_s=20.0,
    rejoin_s=5.0,
    returned_s=2.0,
    grace_s=0.1,
    native_ranks=0,
    lease_s=1.0,
)

Given = ParamSpec("Given")
Result = TypeVar("Result")


def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
    """Names the first machine, and tells in its reasons where it saw each rank."""
    traces = [trace for round_ in snapshot.rounds for trace in round_.traces]
    seen = sorted({f"rank {trace.rank}: {trace.threads[0].frames[-1].function}" for trace in traces if trace.threads})
    machines = tuple(sorted(topology.machines))[:1]
    suspects = (Suspect((), machines, 0.9, ()),) if machines else ()
    said = verdict(snapshot, topology, Kind.MACHINE)
    return replace(said, because=reasons(*seen), suspects=suspects, evict=Eviction(machines, 0.9))


class Points:
    """Counts the points passed, and ends the process at one of them."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._lock = threading.Lock()
        self.passed = 0

    def __call__(self) -> None:
        with self._lock:
            self.passed += 1
            if self.passed == self._last:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, work: Callable[Given, Result]) -> Callable[Given, Result]:
        """The work with a point before and one behind it."""

        def pointed(*given: Given.args, **named: Given.kwargs) -> Result:
            self()
            result = work(*given, **named)
            self()
            return result

        return pointed


def run(port: int, where: str, last: int, passed: str, acting: str = "") -> None:
    """Serves until it is told to stop or meets its last point (0: none); says in a file how many it passed.

    With the file `acting` it acts for whoever reaches it, without the long pauses between two looks at what is to be done.
    """
    point = Points(last)
    if acting:
        OpenListeners.close = lambda self: None  # type: ignore[method-assign]
        reconcile.TICK_S = isolation_tests.TICK_S = 0.1
    begin = Database.begin

    @contextmanager
    def pointed(database: Database, reads: bool = False) -> Iterator[sa.Connection]:
        point()
        with begin(database, reads) as connection:
            yield connection
            point()
        point()

    kinds: tuple[tuple[Any, str], ...] = ((RoundCapture, "answer"), (Fleet, "send"))
    for kind, name in kinds:
        setattr(kind, name, point.around(getattr(kind, name)))
    Database.begin = pointed  # type: ignore[method-assign,assignment]
    store = where if "://" in where else Path(where)
    address = f"127.0.0.1:{port}"
    asyncio.run(
        serve(
            address,
            store,
            point.around(judge),
            lambda _: None,
            SETTINGS,
            ListenerConfig(advertised=address),
            acting=Path(acting) if acting else None,
        )
    )
    Path(passed).write_text(str(point.passed))


def main() -> None:
    """Runs one server after the other, as the lines of standard input say."""
    for line in sys.stdin:
        asked = json.loads(line)
        log = asked.pop("log")
        pid = os.fork()
        if pid == 0:
            said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(said, 1)
            os.dup2(said, 2)
            status = 1
            try:
                run(**asked)
                status = 0
            finally:
                os._exit(status)
        print(pid, flush=True)
        _, how = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(how), flush=True)


if __name__ == "__main__":
    main()
