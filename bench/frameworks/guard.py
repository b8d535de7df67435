"""A real server and one real agent for each machine of a running job, in a thread of this process, over real sockets."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from hangdog_agent.capture import pyspy
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_scheduler import Checks
from hangdog_agent.checks.checks_thread import ChecksThread
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.tcp import Tcp
from hangdog_agent.connection.identity import Identity
from hangdog_agent.connection.link import Link
from hangdog_agent.connection.offline_recording import Spooling
from hangdog_agent.connection.spool import Clocks
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.procfs import Proc
from hangdog_agent.settings import AgentSettings
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.incident import Incident
from hangdog_models.rules.ruleset import packaged
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.listener import LOCAL, OpenListeners
from hangdog_server.main import running
from hangdog_server.settings import ServerSettings
from hangdog_server.store.store import Store

#: Starting a server and its agents, or ending them. Seconds.
PATIENCE_S = 30.0

T = TypeVar("T")


class Agents:
    """Keeps one real agent for each machine of a running job until its block is left; `watches` finds the ranks of each machine."""

    def __init__(
        self, watches: Mapping[str, Watch], settings: AgentSettings, address: str = "", crashes: bool = False
    ) -> None:
        """`address` is the server's; `crashes`: they are told."""
        #: Where agents and commands reach the server, once the block is entered.
        self.address = address
        self._crashes = crashes
        self._watches = watches
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), name="guard")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    async def _serve(self, stack: AsyncExitStack) -> None:
        """Has a server be there before the agents are, until the stack is left."""

    async def _run(self) -> None:
        tool = pyspy.load()
        async with AsyncExitStack() as stack:
            await self._serve(stack)
            keeping = []
            for machine, watch in self._watches.items():
                tools = Tools(Proc(), tool, self._settings.capture, threading.Event())
                monitor = StallMonitor(tools, packaged(), self._settings.stalls)
                keeper = stack.enter_context(_keeper(watch, machine))
                link = Link(
                    Identity(self.address, machine, "live", boot=f"start of {machine}"), watch, monitor, tools, self._settings.link,
                    keeper.findings, _spooling(self._settings) if self._crashes else None,
                )  # fmt: skip
                keeping.append(asyncio.create_task(link.keep(self._over)))
            self._ready.set()
            await self._over.wait()
            await asyncio.gather(*keeping)


class ClusterGuard(Agents):
    """Watches over a running job until its block is left, with a server of its own."""

    def __init__(
        self,
        watches: Mapping[str, Watch],
        folder: Path,
        settings: AgentSettings,
        server: ServerSettings | None = None,
        crashes: bool = False,
    ) -> None:
        """`settings` are the agents'; `server` the server's, where they are not the default ones. `crashes`: they are told."""
        super().__init__(watches, settings, crashes=crashes)
        self._server = server or ServerSettings()
        self._store = Store(folder / "incidents.db")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._store.close()

    def incidents(self) -> list[Incident]:
        """All incidents so far, the first one first, their verdicts included."""
        latest = self._ask(self._store.latest("", 1000))
        return [self._ask(self._store.find(one.id)) for one in reversed(latest)]

    def verdict(self) -> Incident | None:
        """The first incident that has a verdict, with its times on the steady clock."""
        return next((one for one in self.incidents() if one.kind), None)

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(PATIENCE_S)

    async def _serve(self, stack: AsyncExitStack) -> None:
        settings, clock = self._server, time.monotonic  # its times are compared with the job's steps
        means = IncidentServices(Fleet(settings), self._store, diagnose, clock)
        opened = OpenListeners("127.0.0.1:0", LOCAL, settings, clock)
        self.address = await stack.enter_async_context(running(opened, means, settings))


def _spooling(settings: AgentSettings) -> Spooling:
    """What is told of crashes is kept in memory until the server has it."""
    clocks = Clocks(time.monotonic, lambda: time.clock_gettime(time.CLOCK_BOOTTIME), CheckPaths().boot())
    return Spooling(None, settings.spool, clocks)


def _keeper(watch: Watch, machine: str) -> ChecksThread:
    """Of a machine's checks those of its trainers' connections: the others are about the whole host, which all agents share."""
    settings, places = CheckSettings(), CheckPaths()
    tcp = Tcp(places, settings, watch.ranks)
    return ChecksThread(Checks((tcp,), settings, places.boot()), machine, time.monotonic)
