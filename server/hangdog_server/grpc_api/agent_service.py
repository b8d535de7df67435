"""What agents say over gRPC, turned into nouns, and what they are told."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from google.protobuf.message import DecodeError

from hangdog_models.actions.action_history import Body
from hangdog_models.errors import HangdogError, NotAllowed, ServerUnreachable, WrongUse
from hangdog_models.owner import Owner
from hangdog_models.planning.slowdown import Slowdown, StepPace
from hangdog_models.progress.communicator_window import CommunicatorChanges
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Sign
from hangdog_proto.codec import communicator_report, findings, owners, slow_report, stall_signs, step_report
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import AgentsServicer
from hangdog_proto.logs import log_context
from hangdog_server.auth import relayed_peer
from hangdog_server.auth.authorizer import Authorizer, ClientCredentials
from hangdog_server.auth.refused_requests import address
from hangdog_server.auth.tls import Peer
from hangdog_server.campaigns.campaign_registry import CampaignRegistry
from hangdog_server.campaigns.launch import LaunchRun
from hangdog_server.cluster.certificate_renewals import NO_RENEWALS, Renewals
from hangdog_server.cluster.connection import Connection
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.session_tracker import SessionTracker
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.grpc_api.abort import Context, refuse
from hangdog_server.incidents import decode
from hangdog_server.incidents.missing_pieces import MissingPieces
from hangdog_server.incidents.offline_ingest import OfflineIngest
from hangdog_server.incidents.registry import IncidentRegistry
from hangdog_server.incidents.round_capture import RoundCapture, steady
from hangdog_server.machine_checks import MachineChecks
from hangdog_server.protocol import rejections
from hangdog_server.protocol.commands import (
    Abort,
    CaptureCommand,
    Command,
    Diagnose,
    Elsewhere,
    Need,
    Pace,
    Receipt,
    RecheckCommand,
    Renewed,
)
from hangdog_server.protocol.rate_limits import LogThrottle, RateLimits
from hangdog_server.protocol.rejections import Denial, Rejection, TurnedAway
from hangdog_server.settings import ServerSettings
from hangdog_server.telemetry import SILENT, Agent, Telemetry

log = logging.getLogger(__name__)
#: The longest a timer is set for; no stream lasts a year. Seconds.
_LONGEST_S = 366 * 86400.0
JobStatement = TypeVar("JobStatement", Slowdown, StepPace, CommunicatorChanges)


class Agents(AgentsServicer):
    """The command channels of the agents."""

    def __init__(
        self,
        fleet: Fleet,
        registry: IncidentRegistry,
        monitor: StallTracker,
        returns: OfflineIngest,
        leading: Leading,
        settings: ServerSettings,
        dictionary: PieceCache,
        gate: Authorizer,
        limits: RateLimits,
        campaigns: CampaignRegistry,
        seen: SessionTracker,
        checks: MachineChecks,
        telemetry: Telemetry = SILENT,
        renewals: Renewals = NO_RENEWALS,
    ) -> None:
        self._renewals = renewals
        self._seen = seen
        self._checks = checks
        self._telemetry = telemetry
        self._campaigns = campaigns
        self._fleet = fleet
        self._registry = registry
        self._stalls = monitor
        self._returns = returns
        self._leading = leading
        self._settings = settings
        self._dictionary = dictionary
        self.asking = MissingPieces(dictionary, fleet.send, self._captured, settings)
        self._gate, self._limits, self._seldom = gate, limits, LogThrottle()

    async def Connect(  # type: ignore[override]  # grpc.aio also takes a coroutine that reads and writes its context
        self, request_iterator: AsyncIterator[pb.FromAgent], context: Context
    ) -> None:
        """One agent's stream, from its Hello to its end."""
        try:
            await self._converse(context)
        except HangdogError as error:
            ours = isinstance(error, ServerUnreachable)  # we stop: not the agent's doing, and it happens to all of them
            if isinstance(error, WrongUse | NotAllowed):
                self._telemetry.count(rejections.denial(error))
            peer = relayed_peer.read(context.peer()).address
            reported = not ours and self._seldom.tell(address(peer), str(error), steady())
            log.log(logging.WARNING if reported else logging.DEBUG, "agent at %s: %s", peer, error)
            await refuse(context, error)

    async def _converse(self, context: Context) -> None:
        shown = self._gate.machines(context)
        hello, size = await self._hello(context)
        machine = decode.name(hello.machine, "machine")
        if shown is not None and machine not in shown.machines:
            raise NotAllowed(
                f"an agent with the certificate of {shown.name} claims to be machine {machine}",
                "give it the --machine of its certificate, or the certificate of its machine",
                code="certificate-of-another-machine",
            )
        self._limits.count_message(machine, size, steady())
        version, peer = hello.version[: decode.NAME], relayed_peer.read(context.peer()).address
        body = Body(hello.boot[: decode.NAME], hello.serial[: decode.NAME])
        connection = self._fleet.connect(machine, version, peer, steady(), hello.paced, body)
        connection.diagnoses = hello.diagnoses
        connection.replays = frozenset(name[: decode.NAME] for name in hello.replays[: decode.REPLAYS])
        self._fleet.certificates.note(machine, shown, steady() - self._registry.now())
        ending = self._certificate_ends(connection, shown)
        try:
            with log_context(machine=machine):
                await self._serve(connection, context)
        finally:
            if ending is not None:
                ending.cancel()
        if connection.ended is not None:
            raise connection.ended

    async def _serve(self, connection: Connection, context: Context) -> None:
        machine = connection.machine
        log.info("machine %s: agent %s at %s", machine, connection.version, connection.peer)
        self._telemetry.count(Agent.CONNECTED)
        listening = asyncio.create_task(self._listen(connection, context), name=f"listening to {machine}")
        try:
            self._joined(machine)  # in the same breath as it was connected: what begins later tells it by itself
            due_s = self._renewals.due_in_s(self._fleet.certificates.of(machine))
            await context.write(_welcome(connection.pace_s, self._settings, due_s))
            while (order := await connection.line.get()) is not None:
                await context.write(_message_of(order))
        finally:
            listening.cancel()
            if self._fleet.disconnect(connection, steady()):
                self._fleet.certificates.forget(machine)
                self._lost(machine)
                self._stalls.forget(machine)
                self._seen.lost(machine, self._registry.now() - (steady() - connection.last_message), steady())
            self._telemetry.count(Agent.STOPPED if connection.leaving else Agent.LOST)
            log.info("machine %s: agent at %s is gone", machine, connection.peer)

    # methods of their own: a stream that lasts must not keep what it spoke to once

    def _joined(self, machine: str) -> None:
        for waiting in self._waiting():
            waiting.joined(machine)

    def _lost(self, machine: str) -> None:
        for waiting in self._waiting():
            waiting.lost(machine)

    def _waiting(self) -> tuple[RoundCapture | LaunchRun, ...]:
        """All that waits for machines now."""
        return (*self._registry.captures(), *self._campaigns.launches())

    def _certificate_ends(self, connection: Connection, shown: Peer | None) -> asyncio.TimerHandle | None:
        """Has a stream end with the certificate that opened it: the agent comes back with a renewed one, or not at all."""
        if shown is None or shown.ends is None:
            return None
        ended = NotAllowed(
            f"the certificate of {shown.name} has expired",
            "renew it: docs/authentication.md",
            code="expired-certificate",
        )
        left = min(max(shown.ends - self._registry.now(), 0.0), _LONGEST_S)
        return asyncio.get_running_loop().call_later(left, connection.end, ended)

    async def _hello(self, context: Context) -> tuple[pb.Hello, int]:
        self._limits.greet()
        try:
            async with asyncio.timeout(self._settings.hello_s):
                first, size = await _read(context)
        except TimeoutError:
            raise TurnedAway(
                Denial.HELLO,
                f"an agent says Hello first; this one said nothing for {self._settings.hello_s:g} s",
                code="request-too-slow",
            ) from None
        finally:
            self._limits.greeted()
        if not isinstance(first, pb.FromAgent) or not first.HasField("hello"):
            raise TurnedAway(Denial.HELLO, "an agent says Hello first", code="damaged-message")
        return first.hello, size

    async def _listen(self, connection: Connection, context: Context) -> None:
        """Hears an agent out; when there is no more to hear, for whatever reason, its stream ends."""
        because: HangdogError | None = None
        first = first_checks = True
        try:
            while True:
                message, size = await _read(context)
                if not isinstance(message, pb.FromAgent):
                    break
                now = steady()
                self._fleet.hear(connection, now)
                self._limits.count_message(connection.machine, size, now)
                if message.HasField("presence"):
                    self._fleet.announce(connection, decode.local_jobs(message.presence, self._settings), steady())
                    self._seen.announced(connection.machine, connection.jobs, first, self._registry.now(), steady())
                    first, connection.leaving = False, message.presence.leaving
                    self._stalls.communicators.retain(connection.machine, connection.jobs)
                    self._leading.noticed(connection.machine)
                elif message.HasField("captured"):
                    if refused := self._registry.unawaited(message.captured.order):  # before it costs anything
                        self._telemetry.count(rejections.look(refused, ""))
                        self._refused(connection.machine, refused)
                    else:
                        await self.asking.take(connection.machine, message.captured)
                elif message.HasField("pieces"):
                    self.asking.take_pieces(connection.machine, message.pieces)
                elif message.HasField("stall_report"):
                    signs, moving = self._own(connection, message.stall_report)
                    self._stalls.note(connection.machine, signs, steady(), moving)
                elif message.HasField("slow_report"):
                    slow = slow_report.unpack(message.slow_report)
                    self._stalls.slow.note(connection.machine, self._own_jobs(connection, slow), steady())
                elif message.HasField("step_report"):
                    paces = step_report.unpack(message.step_report)
                    self._stalls.paces.note(connection.machine, self._own_jobs(connection, paces), steady())
                elif message.HasField("communicator_report"):
                    changes = self._own_jobs(connection, communicator_report.unpack(message.communicator_report))
                    changes = {
                        job: one.within(self._fleet.owned(connection.machine, job)) for job, one in changes.items()
                    }
                    self._stalls.communicators.note(connection.machine, changes, steady())
                elif message.HasField("health"):
                    self._fleet.checked(connection, findings.unpack(message.health.findings, connection.machine))
                    self._checks.note(connection.machine, connection.findings, first_checks)
                    first_checks = False
                elif message.HasField("diagnosed"):
                    if refused := await self._campaigns.take_report(connection.machine, message.diagnosed):
                        self._refused(connection.machine, refused)
                elif message.HasField("renew"):
                    held = self._fleet.certificates.of(connection.machine)
                    answer = await self._renewals.answer(held, connection, message.renew.request, steady())
                    self._fleet.send(connection.machine, answer)
                elif message.HasField("spooled"):
                    await self._recorded(connection.machine, message.spooled, size)
        except HangdogError as error:
            because = error
        finally:
            connection.end(because)

    def _own(
        self, connection: Connection, cpu_activity: pb.StallReport
    ) -> tuple[dict[str, dict[Rank, Sign]], dict[str, frozenset[Rank]]]:
        """What a pulse says of ranks that belong to its machine, and which of them move: of others it may say nothing."""
        own: dict[str, dict[Rank, Sign]] = {}
        moving: dict[str, frozenset[Rank]] = {}
        foreign, moves = False, stall_signs.unpack_moving(cpu_activity)
        for (name, owner), signs in stall_signs.unpack(cpu_activity).items():
            job = self._fleet.meant(connection.machine, name, owner)
            ranks = frozenset(self._fleet.owned(connection.machine, job)) if job is not None else frozenset[Rank]()
            mine = {rank: sign for rank, sign in signs.items() if rank in ranks}
            foreign |= len(mine) < len(signs)
            if job is not None:
                own[job], moving[job] = mine, (moves[name, owner] & ranks) - mine.keys()
        if foreign and self._seldom.tell(connection.machine, "foreign ranks", steady()):
            log.warning("machine %s reports ranks that are not its own: ignored", connection.machine)
        return {job: signs for job, signs in own.items() if signs}, {job: them for job, them in moving.items() if them}

    def _own_jobs(
        self, connection: Connection, stated: Mapping[tuple[str, Owner], JobStatement]
    ) -> dict[str, JobStatement]:
        """What is said of jobs that run on the machine: nobody has another machine's job looked at."""
        own: dict[str, JobStatement] = {}
        for (name, owner), one in stated.items():
            job = self._fleet.meant(connection.machine, name, owner)
            if job is not None and self._fleet.owned(connection.machine, job):
                own[job] = one
        return own

    async def _recorded(self, machine: str, spooled: pb.Spooled, size: int) -> None:
        if not self._limits.recorded(machine, size, steady()):
            if self._seldom.tell(machine, "recorded", steady()):
                log.warning(
                    "machine %s sends more spooled looks than the server accepts in an hour: they wait there", machine
                )
            return
        receipt = await self._returns.take(machine, spooled)
        if receipt is not None:
            self._fleet.send(machine, receipt)

    def _refused(self, machine: str, why: str) -> None:
        if self._seldom.tell(machine, why, steady()):
            log.warning("machine %s: answer refused: %s", machine, why)

    async def _captured(self, machine: str, captured: pb.Captured) -> None:
        if _large(captured):
            answers = await asyncio.to_thread(decode.looks, machine, captured, self._dictionary)
        else:
            answers = decode.looks(machine, captured, self._dictionary)
        capture = self._registry.capture_of(captured.order)
        refusals: Sequence[str] = (
            [capture] * len(answers) if isinstance(capture, Rejection) else capture.answer(captured, answers)
        )
        for answer, refused in zip(answers, refusals, strict=True):
            self._telemetry.count(rejections.look(refused, answer.unreadable))
            if refused:
                self._refused(machine, refused)
            elif answer.unreadable:
                log.warning("machine %s: look %d is not readable: %s", machine, answer.round, answer.unreadable)


def _large(captured: pb.Captured) -> bool:
    """Whether reading it takes long; a look by digests is read faster than a thread is woken."""
    if captured.capture.traces or captured.capture.statements:
        return True
    for before in captured.before:
        if before.HasField("capture") and (before.capture.traces or before.capture.statements):
            return True
    return False


async def _read(context: Context) -> tuple[object, int]:
    """What an agent says next, and its bytes; raises WrongUse when it is no message of ours."""
    try:
        stated: object = await context.read()
    except DecodeError:
        raise WrongUse(
            "it sent something that is not a hangdog message",
            "is something else calling this port?",
            code="damaged-message",
        ) from None
    return (stated.message, stated.size) if isinstance(stated, ClientCredentials) else (None, 0)


def _welcome(pace_s: float, settings: ServerSettings, due_s: float | None) -> pb.ToAgent:
    most = settings.max_message_bytes
    welcome = pb.Welcome(
        heartbeat_s=pace_s, max_message_bytes=most, digests=True, together=True, crashes=True, numbers=True
    )
    if due_s is not None:
        welcome.renews, welcome.renew_in_s = True, due_s
    return pb.ToAgent(welcome=welcome)


@lru_cache(maxsize=16)
def _message_of(what: Command) -> pb.ToAgent:
    """As it is sent: an order, to thousands."""
    match what:
        case CaptureCommand():
            order = pb.CaptureOrder(
                order=what.name, job=what.job, rounds=what.rounds, interval_s=what.interval_s,
                native=what.native, light=what.light, together=what.together, owner=owners.pack(what.owner),
            )  # fmt: skip
            return pb.ToAgent(capture=order)
        case RecheckCommand():
            owner = owners.pack(what.owner)
            return pb.ToAgent(recheck=pb.Recheck(job=what.job, seconds=what.seconds, owner=owner, steps=what.steps))
        case Receipt():
            return pb.ToAgent(ack=pb.Ack(id=what.id, refused=what.refused))
        case Elsewhere():
            return pb.ToAgent(redirect=pb.Redirect(job=what.job, address=what.address))
        case Need():
            return pb.ToAgent(missing_pieces=pb.MissingPieces(digests=what.digests))
        case Diagnose() | Abort() | Renewed():
            return what.packed()
        case Pace():
            return pb.ToAgent(heartbeat_interval=pb.HeartbeatInterval(heartbeat_s=what.heartbeat_s))
