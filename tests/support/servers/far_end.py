"""The far end of an agent's line: a server as the test plays it, and a real link that is kept to it."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.connection.identity import Identity
from hangdog_agent.connection.link import Link
from hangdog_agent.connection.offline_recording import Spooling
from hangdog_agent.connection.settings import LinkSettings
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.machine_tests.remote_tests import Jobs, RemoteTests
from hangdog_agent.metrics.metrics import AgentMetrics
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.findings import Finding
from hangdog_models.rules.ruleset import packaged
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated import hangdog_pb2_grpc as rpc
from support.fakes import targets

MARK = ("HANGDOG_TEST_LINK", str(os.getpid()))
ENVIRON = dict([MARK], RANK="3", LOCAL_RANK="1", WORLD_SIZE="8", HANGDOG_JOB="linked", HANGDOG_TOPOLOGY="tp=8")
QUICK = LinkSettings(backoff_first_s=0.01, backoff_most_s=0.05, scan_s=0.05, heartbeat_s=60.0)
#: One that makes up its mind within a few seconds.
ALERT = StallSettings(beat_s=0.2, settle_s=0.0, suspicious_s=0.5, patience_s=3.0)
#: Nothing here takes a second; a test that waits this long has failed.
PATIENCE_S = 40.0


class Server(rpc.AgentsServicer):
    """A server that keeps what it hears, one queue for each connection, and says what the test tells it to."""

    def __init__(self, heartbeat_s: float = 60.0, digests: bool = False, together: bool = False) -> None:
        self.heartbeat_s = heartbeat_s
        self.together = together
        self.digests = digests
        self.crashes = self.numbers = False
        self.lines: asyncio.Queue[Line] = asyncio.Queue()
        self.port = 0
        self._server: grpc.aio.Server | None = None

    async def Connect(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.ToAgent]:
        line = Line()
        reader = asyncio.ensure_future(line.listen(request_iterator))
        reader.add_done_callback(lambda _: line.outbox.put_nowait(None))  # as a server does: who parts is let go
        self.lines.put_nowait(line)
        welcome = pb.Welcome(
            heartbeat_s=self.heartbeat_s,
            digests=self.digests,
            together=self.together,
            crashes=self.crashes,
            numbers=self.numbers,
        )
        yield pb.ToAgent(welcome=welcome)
        try:
            while (message := await line.outbox.get()) is not None:
                yield message
        finally:
            reader.cancel()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        rpc.add_AgentsServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(0)

    async def line(self) -> "Line":
        async with asyncio.timeout(PATIENCE_S):
            return await self.lines.get()


class Line:
    """One connection, as the server sees it."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[pb.FromAgent] = asyncio.Queue()
        self.outbox: asyncio.Queue[pb.ToAgent | None] = asyncio.Queue()

    async def listen(self, messages: AsyncIterator[pb.FromAgent]) -> None:
        async for message in messages:
            self.heard.put_nowait(message)

    async def hear(self, body: str) -> Any:
        """The next message of this kind; others are passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while (message := await self.heard.get()).WhichOneof("body") != body:
                pass
        return getattr(message, body)

    def order(self, order: str, job: str = "linked", rounds: int = 1, interval_s: float = 0.0) -> None:
        capture = pb.CaptureOrder(order=order, job=job, rounds=rounds, interval_s=interval_s)
        self.outbox.put_nowait(pb.ToAgent(capture=capture))


@dataclass(frozen=True, slots=True)
class Kept:
    """A link that is being kept, and what ends it when it is set."""

    link: Link
    stop: asyncio.Event


@contextlib.asynccontextmanager
async def linked(
    server: Server,
    tools: Tools,
    settings: LinkSettings = QUICK,
    alert: StallSettings = ALERT,
    findings: Sequence[Finding] = (),
    spooling: Spooling | None = None,
    tally: AgentMetrics | None = None,
    others: Sequence[Server] = (),
    remote_tests: Callable[[Jobs], RemoteTests] | None = None,
) -> AsyncIterator[Kept]:
    """A link that is kept to the server, or to the `others` beside it, and has ended cleanly afterwards."""
    watch = Watch(ProcessTable(targets.proc, frozenset({MARK[0]})), MARK, (), forget_s=600.0)
    stop = asyncio.Event()
    known = ",".join(f"127.0.0.1:{one.port}" for one in (server, *others))
    identity = Identity(known, "gpu-a17", "1.2.3", boot="b00t", serial="S/N 7")
    vigil = StallMonitor(tools, packaged(), alert)
    link = Link(identity, watch, vigil, tools, settings, lambda: findings, spooling, tally, remote_tests)
    keeping = asyncio.ensure_future(link.keep(stop))
    try:
        yield Kept(link, stop)
    finally:
        stop.set()
        await asyncio.wait_for(keeping, PATIENCE_S)


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)
