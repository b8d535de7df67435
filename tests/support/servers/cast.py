"""The cast of the server's tests: agents played over the true wire, a judge that only listens, a server in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import grpc

from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Frame, ProcessTrace, Thread
from hangdog_models.topology import Topology
from hangdog_models.verdict import Coverage, Eviction, EvidenceReport, Kind, Verdict
from hangdog_proto.client.channel_options import open_aio_channel
from hangdog_proto.client.errors import CODE
from hangdog_proto.client.incidents import Client, MachineLine, ProgressStep
from hangdog_proto.client.server_address import ServerAddress
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import AgentsStub
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.judge import Judge
from hangdog_server.listener import LOCAL, ListenerConfig, OpenListeners
from hangdog_server.main import running
from hangdog_server.notifications.notify_config import NotifyConfig
from hangdog_server.observability.setup import Observers
from hangdog_server.settings import ServerSettings
from hangdog_server.store.store import Store
from support.cases.reasons import reasons

#: Settings under which no deadline passes, however slow the machine that runs the tests.
PATIENT = replace(
    ServerSettings(),
    rounds=1,
    interval_s=0.05,
    patience_s=60.0,
    rejoin_s=60.0,
    heartbeat_s=60.0,
    grace_s=0.1,
    hello_s=60.0,
    native_ranks=0,
)
#: Settings for tests that wait for a deadline to pass.
QUICK = replace(PATIENT, patience_s=2.0, rejoin_s=0.2, hello_s=0.2)
#: The time of every test.
NOON = 1_800_000_000.0


def trainer(rank: int, function: str = "step", pid: int | None = None) -> ProcessTrace:
    """A rank in a function of train.py."""
    thread = Thread("MainThread", 1000 + rank, (Frame("main", "train.py", 1), Frame(function, "train.py", 2)))
    return ProcessTrace(Rank(rank), pid=1000 + rank if pid is None else pid, threads=(thread,))


def verdict(snapshot: Snapshot, topology: Topology, kind: Kind = Kind.UNDETERMINED) -> Verdict:
    """A verdict that names nobody and tells what its judge was given."""
    last = {trace.rank: trace for trace in snapshot.rounds[-1].traces}
    failed = {str(rank): str(trace.missing) for rank, trace in last.items() if trace.missing}
    return Verdict(
        job_id=snapshot.job.id,
        world_size=topology.world_size,
        kind=kind,
        confidence=0.5,
        because=reasons("somebody asked"),
        suspects=(),
        evict=Eviction(),
        groups=(),
        clusters=(),
        coverage=Coverage(topology.world_size, len(last) - len(failed), (), failed),
        evidence=EvidenceReport(snapshot.account.files_read, (), snapshot.account.unreadable, snapshot.account.notes),
        rules="none",
    )


@dataclass
class Listener:
    """A judge that keeps what it was given, and what it said."""

    judge: Judge = verdict
    snapshot: Snapshot | None = None
    topology: Topology | None = None
    verdicts: list[Verdict] = field(default_factory=list)

    def __call__(self, snapshot: Snapshot, topology: Topology) -> Verdict:
        self.snapshot, self.topology = snapshot, topology
        self.verdicts.append(self.judge(snapshot, topology))
        return self.verdicts[-1]


class Agent:
    """One machine's agent as the test plays it; leave its `with` block and its stream breaks."""

    def __init__(self, address: str, machine: str, tls: Path | None = None) -> None:
        self.machine = machine
        self._channel = open_aio_channel(ServerAddress(address, tls), (("grpc.use_local_subchannel_pool", 1),))
        self._call: Any = None
        self._speaking = asyncio.Lock()  # gRPC refuses a write while another one is under way

    async def __aenter__(self) -> Self:
        self._call = cast("Callable[[], Any]", AgentsStub(self._channel).Connect)()  # the stubs know no aio call
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()
        await self._channel.close(None)

    async def say(self, **body: Any) -> None:
        async with self._speaking:
            await self._call.write(pb.FromAgent(**body))

    async def hello(self, **jobs: Iterable[int]) -> pb.Welcome:
        """Introduces itself and the ranks of its jobs: `hello(llama=[0, 1])`."""
        await self.say(hello=pb.Hello(machine=self.machine, version="1", boot=f"start of {self.machine}"))
        welcome = await self._call.read()
        assert isinstance(welcome, pb.ToAgent), await self.end()
        await self.announce(*(pb.LocalJob(job=job, ranks=ranks) for job, ranks in jobs.items()))
        return welcome.welcome

    async def announce(self, *jobs: pb.LocalJob) -> None:
        await self.say(presence=pb.Presence(jobs=jobs))

    async def next(self) -> pb.ToAgent:
        """Whatever the server says next."""
        message = await self._call.read()
        assert isinstance(message, pb.ToAgent), message
        return message

    async def order(self) -> pb.CaptureOrder:
        """The next order."""
        message = await self.next()
        assert message.HasField("capture"), message
        return message.capture

    async def answer(self, order: pb.CaptureOrder, *traces: ProcessTrace, look: int = 0, last: bool = False) -> None:
        await self.say(captured=pb.Captured(order=order.order, round=look, capture=pack(traces), last=last))

    async def hang_up(self) -> None:
        """Ends its side of the stream, as an agent does that is told to stop."""
        await self._call.done_writing()
        await self._call.code()

    async def end(self) -> tuple[grpc.StatusCode, str]:
        """How the server ended the stream; what it said before is passed over."""
        with suppress(grpc.aio.AioRpcError):
            while isinstance(await self._call.read(), pb.ToAgent):
                pass
        return await self._call.code(), await self._call.details()

    async def error(self) -> str:
        """The code of the error with which the server ended the stream; empty where it ended without one."""
        return str(dict(await self._call.trailing_metadata() or ()).get(CODE, ""))


@dataclass
class Stage:
    """A running server."""

    address: str
    store: Store
    settings: ServerSettings
    dictionary: PieceCache
    reach: ServerAddress | None = None

    def agent(self, machine: str, tls: Path | None = None) -> Agent:
        return Agent(self.address, machine, tls)

    def client(self) -> Client:
        """A person's, who may do everything."""
        return Client(self.reach or self.address)

    async def snapshot(
        self, job: str = "", heard: list[ProgressStep] | None = None, **asked: Any
    ) -> list[ProgressStep]:
        """Asks for a snapshot as the command line does; all its steps, which `heard` gets as they come."""
        steps = [] if heard is None else heard

        def ask() -> list[ProgressStep]:
            with self.client() as client:
                steps.extend(client.snapshot(job, **asked))  # list.extend takes them one by one
            return steps

        return await asyncio.to_thread(ask)

    async def machines(self) -> tuple[MachineLine, ...]:
        def ask() -> tuple[MachineLine, ...]:
            with self.client() as client:
                return client.machines()

        return await asyncio.to_thread(ask)

    async def until(self, true: Callable[[tuple[MachineLine, ...]], bool]) -> None:
        """Returns once the server says of its machines what the test waits for."""
        async with asyncio.timeout(30):
            while not true(await self.machines()):
                await asyncio.sleep(0.01)

    async def knows(self, *machines: str) -> None:
        """Returns once all of these have announced a job."""
        await self.until(lambda seen: set(machines) <= {line.name for line in seen if line.jobs and line.connected})


@asynccontextmanager
async def stage(
    path: Path | str,
    judge: Judge = verdict,
    settings: ServerSettings = PATIENT,
    door: ListenerConfig = LOCAL,
    clock: Callable[[], float] = lambda: NOON,
    observers: Observers | None = None,
    does: ActionsConfig | None = None,
    tells: NotifyConfig | None = None,
    opened: OpenListeners | None = None,
) -> AsyncIterator[Stage]:
    """A server on a free port, upon the store at `path`, or of that URL, which `observers` watch."""
    seen = observers or Observers(Fleet(settings))
    store = Store(path, telemetry=seen.telemetry)
    try:
        means = IncidentServices(seen.fleet, store, judge, clock, telemetry=seen.telemetry)
        opened = opened or OpenListeners("127.0.0.1:0", door, settings, clock)
        async with running(opened, means, settings, seen.interceptors, does, tells) as address:
            yield Stage(address, store, settings, means.dictionary)
    finally:
        store.close()


def texts(steps: list[ProgressStep]) -> list[str]:
    return [step.text for step in steps]


def failed(steps: list[ProgressStep]) -> dict[str, str]:
    """Why ranks are missing, by the verdict."""
    assert steps[-1].verdict is not None
    return dict(steps[-1].verdict.coverage.failed)


@asynccontextmanager
async def cluster(on: Stage, **machines: list[int]) -> AsyncIterator[list[Agent]]:
    """Connected machines that run these ranks of the job llama."""
    async with AsyncExitStack() as cast:
        agents = [await cast.enter_async_context(on.agent(machine)) for machine in machines]
        for agent in agents:
            await agent.hello(llama=machines[agent.machine])
        await on.knows(*machines)
        yield agents
