"""What arrives over gRPC: agents' streams and people's requests, turned into nouns, and our errors into status codes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc

from hangdog_models.errors import HangdogError, ServerUnreachable, WrongUse
from hangdog_proto import found, pulses, status
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import AgentsServicer, IncidentsServicer
from hangdog_server import heard
from hangdog_server.capturing import steady
from hangdog_server.desk import Desk
from hangdog_server.fleet import Connection, Doubt, Fleet, Order, Receipt, Seen
from hangdog_server.incident import Request
from hangdog_server.records import Records, summary
from hangdog_server.returns import Returns
from hangdog_server.settings import Settings
from hangdog_server.store import Store
from hangdog_server.vigil import Vigil

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]


class Agents(AgentsServicer):
    """The command channels of the agents."""

    def __init__(self, fleet: Fleet, desk: Desk, vigil: Vigil, returns: Returns, settings: Settings) -> None:
        self._fleet = fleet
        self._desk = desk
        self._vigil = vigil
        self._returns = returns
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
            heard.name(hello.machine, "machine"), hello.version[: heard.NAME], context.peer(), steady()
        )
        machine = connection.machine
        log.info("machine %s: agent %s at %s", machine, connection.version, connection.peer)
        listening = asyncio.create_task(self._listen(connection, context), name=f"listening to {machine}")
        try:
            await context.write(_welcome(self._settings))
            self._desk.joined(machine)
            while (order := await connection.line.get()) is not None:
                await context.write(_told(order))
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
                    self._fleet.announce(connection, heard.local_jobs(message.presence, self._settings), steady())
                    connection.leaving = message.presence.leaving
                elif message.HasField("captured"):
                    await self._captured(connection.machine, message.captured)
                elif message.HasField("pulse"):
                    self._vigil.note(connection.machine, pulses.unpack(message.pulse), steady())
                elif message.HasField("health"):
                    connection.findings = found.unpack(message.health.findings, connection.machine)
                elif message.HasField("spooled"):
                    receipt = await self._returns.take(connection.machine, message.spooled)
                    if receipt is not None:
                        self._fleet.send(connection.machine, receipt)
        except HangdogError as error:
            because = error
        finally:
            connection.end(because)

    async def _captured(self, machine: str, captured: pb.Captured) -> None:
        answer, packed = await asyncio.to_thread(heard.answer, machine, captured)
        refused = self._desk.answer(captured.order, answer, packed)
        if refused:
            log.warning("machine %s: answer refused: %s", machine, refused)
        elif answer.unreadable:
            log.warning("machine %s: look %d is not readable: %s", machine, answer.round, answer.unreadable)


class Incidents(IncidentsServicer):
    """What people ask."""

    def __init__(self, fleet: Fleet, desk: Desk, store: Store, records: Records, settings: Settings) -> None:
        self._fleet = fleet
        self._desk = desk
        self._store = store
        self._settings = settings
        self._records = records

    async def Snapshot(self, request: pb.SnapshotRequest, context: Context) -> AsyncIterator[pb.Progress]:
        """Starts or joins an incident and tells its steps."""
        try:
            if len(request.why) > heard.WHY:
                raise WrongUse(f"a reason of {len(request.why)} characters is too long", f"give {heard.WHY} at most")
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
            return pb.IncidentList(incidents=[summary(found) for found in await self._store.latest(request.job, limit)])
        except HangdogError as error:
            await _refuse(context, error)

    async def Get(self, request: pb.GetRequest, context: Context) -> pb.Incident:
        """One incident."""
        try:
            found = await self._store.find(request.id)
        except HangdogError as error:
            await _refuse(context, error)
        return pb.Incident(summary=summary(found), verdict_json=found.verdict)

    async def Machines(self, request: pb.MachinesRequest, context: Context) -> pb.MachineList:
        """The machines."""
        now = steady()
        return pb.MachineList(machines=[_machine(seen, now) for seen in self._fleet.machines(now)])

    async def Ledger(self, request: pb.LedgerRequest, context: Context) -> pb.LedgerAnswer:
        """What verdicts said of machines."""
        try:
            return await self._records.ledger(request)
        except HangdogError as error:
            await _refuse(context, error)

    async def Bundle(self, request: pb.BundleRequest, context: Context) -> AsyncIterator[pb.BundlePart]:
        """All that is kept of an incident."""
        try:
            async for part in self._records.bundle(request.id):
                yield part
        except HangdogError as error:
            await _refuse(context, error)


async def _refuse(context: Context, error: HangdogError) -> NoReturn:
    code, words, metadata = status.written(error)
    await context.abort(code, words, metadata)


def _welcome(settings: Settings) -> pb.ToAgent:
    welcome = pb.Welcome(heartbeat_s=settings.heartbeat_s, max_message_bytes=settings.max_message_bytes)
    return pb.ToAgent(welcome=welcome)


def _told(what: Order | Doubt | Receipt) -> pb.ToAgent:
    match what:
        case Order():
            order = pb.CaptureOrder(
                order=what.name, job=what.job, rounds=what.rounds, interval_s=what.interval_s,
                native=what.native, light=what.light,
            )  # fmt: skip
            return pb.ToAgent(capture=order)
        case Doubt():
            return pb.ToAgent(doubt=pb.Doubt(job=what.job, seconds=what.seconds))
        case Receipt():
            return pb.ToAgent(receipt=pb.Receipt(id=what.id, refused=what.refused))


def _machine(seen: Seen, now: float) -> pb.Machine:
    jobs = [
        pb.LocalJob(job=local.job, ranks=local.ranks, world_size=local.world_size or 0, topology=local.topology)
        for local in seen.jobs.values()
    ]
    silent = max(0.0, now - seen.heard)
    return pb.Machine(
        name=seen.machine,
        version=seen.version,
        silent_s=silent,
        jobs=jobs,
        connected=seen.connected,
        findings=found.pack(seen.findings),
        stopped=seen.stopped,
    )
