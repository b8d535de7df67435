"""What arrives over gRPC: agents' streams and people's requests, turned into nouns, and our errors into status codes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc

from hangdog_models.errors import HangdogError, ServerUnreachable, UnreadableEvidence, WrongUse
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_proto import codec, found, pulses, statement, status
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import AgentsServicer, IncidentsServicer
from hangdog_server.capturing import steady
from hangdog_server.desk import Desk
from hangdog_server.fleet import Connection, Doubt, Fleet, Order, Seen
from hangdog_server.gather import Answer
from hangdog_server.incident import Request
from hangdog_server.jobs import LocalJob
from hangdog_server.settings import Settings
from hangdog_server.store import Incident, Store
from hangdog_server.vigil import Vigil

#: Characters of a machine's or job's name: DNS allows 253, a Kubernetes name with its namespace stays below.
NAME = 253
#: Ranks one machine may announce of one job: 16 GPUs, or some hundred processes on CPU.
RANKS = 4096
#: Characters of a reason somebody gives for asking.
WHY = 1000

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]


class Agents(AgentsServicer):
    """The command channels of the agents."""

    def __init__(self, fleet: Fleet, desk: Desk, vigil: Vigil, settings: Settings) -> None:
        self._fleet = fleet
        self._desk = desk
        self._vigil = vigil
        self._settings = settings

    async def Connect(  # type: ignore[override]  # grpc.aio also takes a coroutine that reads and writes its context
        self, request_iterator: AsyncIterator[pb.FromAgent], context: Context
    ) -> None:
        """One agent's stream, from its Hello to its end."""
        try:
            await self._converse(context)
        except HangdogError as error:
            ours = isinstance(error, ServerUnreachable)  # we stop: not the agent's doing, and it happens to all of them
            log.log(logging.DEBUG if ours else logging.WARNING, "agent at %s: %s", context.peer(), error)
            await _refuse(context, error)

    async def _converse(self, context: Context) -> None:
        hello = await self._hello(context)
        connection = self._fleet.connect(
            _name(hello.machine, "machine"), hello.version[:NAME], context.peer(), steady()
        )
        machine = connection.machine
        log.info("machine %s: agent %s at %s", machine, connection.version, connection.peer)
        listening = asyncio.create_task(self._listen(connection, context), name=f"listening to {machine}")
        try:
            await context.write(_welcome(self._settings))
            self._desk.joined(machine)
            while (order := await connection.line.get()) is not None:
                await context.write(_doubt(order) if isinstance(order, Doubt) else _capture_order(order))
        finally:
            listening.cancel()
            if self._fleet.disconnect(connection, steady()):
                self._desk.lost(machine)
                self._vigil.forget(machine)
            log.info("machine %s: agent at %s is gone", machine, connection.peer)
        if connection.ended is not None:
            raise connection.ended

    async def _hello(self, context: Context) -> pb.Hello:
        try:
            async with asyncio.timeout(self._settings.hello_s):
                first = await context.read()
        except TimeoutError:
            raise WrongUse(
                f"an agent says Hello first; this one said nothing for {self._settings.hello_s:g} s"
            ) from None
        if not isinstance(first, pb.FromAgent) or not first.HasField("hello"):
            raise WrongUse("an agent says Hello first")
        return first.hello

    async def _listen(self, connection: Connection, context: Context) -> None:
        """Hears an agent out; when there is no more to hear, for whatever reason, its stream ends."""
        because: HangdogError | None = None
        try:
            while isinstance(message := await context.read(), pb.FromAgent):
                connection.heard = steady()
                if message.HasField("presence"):
                    self._fleet.announce(connection, _jobs(message.presence, self._settings), steady())
                elif message.HasField("captured"):
                    await self._captured(connection.machine, message.captured)
                elif message.HasField("pulse"):
                    self._vigil.note(connection.machine, pulses.unpack(message.pulse), steady())
        except HangdogError as error:
            because = error
        finally:
            connection.end(because)

    async def _captured(self, machine: str, captured: pb.Captured) -> None:
        answer, packed = await asyncio.to_thread(_answer, machine, captured)
        refused = self._desk.answer(captured.order, answer, packed)
        if refused:
            log.warning("machine %s: answer refused: %s", machine, refused)
        elif answer.unreadable:
            log.warning("machine %s: look %d is not readable: %s", machine, answer.round, answer.unreadable)


class Incidents(IncidentsServicer):
    """What people ask."""

    def __init__(self, fleet: Fleet, desk: Desk, store: Store, settings: Settings) -> None:
        self._fleet = fleet
        self._desk = desk
        self._store = store
        self._settings = settings

    async def Snapshot(self, request: pb.SnapshotRequest, context: Context) -> AsyncIterator[pb.Progress]:
        """Starts or joins an incident and tells its steps."""
        try:
            if len(request.why) > WHY:
                raise WrongUse(f"a reason of {len(request.why)} characters is too long", f"give {WHY} at most")
            asked = Request(
                request.job, request.rounds, request.interval_s, request.job_toml, request.why, request.light
            )
            async for step in self._desk.ask(asked):
                yield pb.Progress(incident=step.incident, state=step.state, text=step.text, verdict_json=step.verdict)
        except HangdogError as error:
            await _refuse(context, error)

    async def List(self, request: pb.ListRequest, context: Context) -> pb.IncidentList:
        """The latest incidents."""
        limit = min(request.limit or self._settings.listed, self._settings.max_listed)
        try:
            return pb.IncidentList(
                incidents=[_summary(found) for found in await self._store.latest(request.job, limit)]
            )
        except HangdogError as error:
            await _refuse(context, error)

    async def Get(self, request: pb.GetRequest, context: Context) -> pb.Incident:
        """One incident."""
        try:
            found = await self._store.find(request.id)
        except HangdogError as error:
            await _refuse(context, error)
        return pb.Incident(summary=_summary(found), verdict_json=found.verdict)

    async def Machines(self, request: pb.MachinesRequest, context: Context) -> pb.MachineList:
        """The machines."""
        now = steady()
        return pb.MachineList(machines=[_machine(seen, now) for seen in self._fleet.machines(now)])


async def _refuse(context: Context, error: HangdogError) -> NoReturn:
    code, words, metadata = status.written(error)
    await context.abort(code, words, metadata)


def _answer(machine: str, captured: pb.Captured) -> tuple[Answer, bytes]:
    """An agent's look, and the same as bytes to keep; one that cannot be read is still an answer."""
    packed = captured.capture.SerializeToString()
    told = statement.heard(captured.capture)
    try:
        traces, unreadable = codec.unpack(captured.capture), ""
    except UnreadableEvidence as error:
        traces, unreadable = (), str(error)
    findings = found.unpack(captured.capture.findings, machine)
    return Answer(machine, captured.round, traces, captured.last, unreadable, told, captured.more, findings), packed


def _jobs(presence: pb.Presence, settings: Settings) -> dict[str, LocalJob]:
    """The jobs a machine announces; raises WrongUse when they cannot be true."""
    if len(presence.jobs) > settings.max_jobs:
        raise WrongUse(f"{len(presence.jobs)} jobs on one machine; {settings.max_jobs} at most")
    return {_name(local.job, "job"): _local(local) for local in presence.jobs}


def _local(local: pb.LocalJob) -> LocalJob:
    if len(local.ranks) > RANKS or any(rank > MAX_RANK for rank in local.ranks) or local.world_size > MAX_RANK + 1:
        raise WrongUse(f"job {local.job} is announced with impossible ranks")
    ranks = tuple(Rank(rank) for rank in sorted(set(local.ranks)))
    return LocalJob(local.job, ranks, local.world_size or None, local.topology[:WHY])


def _name(name: str, what: str) -> str:
    if not name.strip() or len(name) > NAME or not name.isprintable():
        raise WrongUse(f"{name[:NAME]!r} is no name of a {what}", f"names are printable and at most {NAME} characters")
    return name


def _welcome(settings: Settings) -> pb.ToAgent:
    welcome = pb.Welcome(heartbeat_s=settings.heartbeat_s, max_message_bytes=settings.max_message_bytes)
    return pb.ToAgent(welcome=welcome)


def _capture_order(order: Order) -> pb.ToAgent:
    capture = pb.CaptureOrder(
        order=order.name, job=order.job, rounds=order.rounds, interval_s=order.interval_s,
        native=order.native, light=order.light,
    )  # fmt: skip
    return pb.ToAgent(capture=capture)


def _doubt(doubt: Doubt) -> pb.ToAgent:
    return pb.ToAgent(doubt=pb.Doubt(job=doubt.job, seconds=doubt.seconds))


def _summary(incident: Incident) -> pb.IncidentSummary:
    return pb.IncidentSummary(
        id=incident.id,
        job=incident.job,
        began=incident.began,
        state=incident.state,
        verdict=incident.kind,
        confidence=incident.confidence,
        evict=incident.evict,
        why=incident.why,
        note=incident.note,
    )


def _machine(seen: Seen, now: float) -> pb.Machine:
    jobs = [
        pb.LocalJob(job=local.job, ranks=local.ranks, world_size=local.world_size or 0, topology=local.topology)
        for local in seen.jobs.values()
    ]
    silent = max(0.0, now - seen.heard)
    return pb.Machine(name=seen.machine, version=seen.version, silent_s=silent, jobs=jobs, connected=seen.connected)
