"""Keeps the agent's line to the server: says who and what is here and what is suspicious, and answers orders to look.

Nothing here waits for a process: looks, scans and pulses run in threads of their own, one each, and all are bounded.
"""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.connection import job_addresses
from hangdog_agent.connection.answer import CaptureAnswer, Found, Pack
from hangdog_agent.connection.batch import together
from hangdog_agent.connection.communicator_reports import CommunicatorReports
from hangdog_agent.connection.identity import Identity
from hangdog_agent.connection.offline_recording import OfflineRecording, Spooling, local
from hangdog_agent.connection.servers import Servers, listed
from hangdog_agent.connection.session import Call, ServerSession, backoff, cancelled, connected, why, within
from hangdog_agent.connection.settings import LinkSettings
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_agent.discovery.watch import LocalJob, Watch, jobs
from hangdog_agent.exits.crashes import Crashes
from hangdog_agent.job_report import JobReport
from hangdog_agent.machine_tests.remote_tests import Jobs, RemoteTests
from hangdog_agent.metrics.metrics import AgentEvent, AgentMetrics, AgentStatus
from hangdog_agent.numbers.number_reports import NumberReports
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_models.errors import HangdogError
from hangdog_models.findings import Finding
from hangdog_models.stall_timeouts import RECHECK_S
from hangdog_proto.client.channel_options import CHANNEL_OPTIONS
from hangdog_proto.codec import findings as found
from hangdog_proto.codec import slow_report, stall_signs, step_report, traces
from hangdog_proto.codec.dedup import Packer
from hangdog_proto.codec.stall_signs import MovingRanks, StallSigns
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated import hangdog_pb2_grpc as rpc

log = logging.getLogger(__name__)

#: What stands around a capture in its message: the order's name and a few numbers. Bytes.
_ENVELOPE = 256
#: Reconnection is ours alone, with its jitter: the library must not keep a second clock behind our back.
_OPTIONS = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))

T = TypeVar("T")


class Link:
    """One agent's line; `keep` holds it until told to stop."""

    def __init__(
        self,
        identity: Identity,
        watch: Watch,
        stalls: StallMonitor,
        tools: Tools,
        settings: LinkSettings,
        findings: Found = tuple,
        spooling: Spooling | None = None,
        metrics: AgentMetrics | None = None,
        remote_tests: Callable[[Jobs], RemoteTests] | None = None,
    ) -> None:
        """`findings` says what the checks of this machine have found; without `spooling` nothing is recorded alone, nor are
        crashes and wrong numbers told.

        Without `remote_tests` a server never has this machine tested.
        """
        self._metrics = metrics or AgentMetrics()
        self._remote_tests = remote_tests(self._running) if remote_tests else None
        self._findings = findings
        self._recording = OfflineRecording(spooling, self._answering) if spooling else None
        tells = self._recording is not None and settings.crash_s > 0
        self._crashes = Crashes(tools.proc, settings.crash_s, findings) if tells else None
        reports = self._recording is not None and settings.numbers_s > 0
        self._numbers = NumberReports(settings.numbers_s, findings) if reports else None
        self._identity = identity
        self._servers = Servers(listed(identity.server), identity.machine)
        self._watch = watch
        self._stalls = stalls
        self._tools = tools
        self._settings = settings
        self._here: tuple[LocalJob, ...] | None = None
        self._members: tuple[RankProcesses, ...] = ()
        self._signs: StallSigns = {}
        self._moving: MovingRanks = {}
        self._slow: set[str] = set()
        self._found: object = None
        self._communicators = CommunicatorReports()
        self._changed, self._asked = asyncio.Event(), asyncio.Event()
        self._heartbeat_s = settings.heartbeat_s
        self._most_bytes = 0
        self._light_at = -math.inf
        self._welcomed, self._together, self._failures = False, False, 0
        self._packer = Packer()
        self._pack: Pack = traces.pack
        self._lookers = ThreadPoolExecutor(1, "hangdog-order")
        self._scanners = ThreadPoolExecutor(1, "hangdog-scan")
        self._feelers = ThreadPoolExecutor(1, "hangdog-pulse")

    async def keep(self, stop: asyncio.Event) -> None:
        """Connects, and connects again after every loss, until `stop` is set; then leaves no thread and no child behind."""
        watching = [asyncio.create_task(self._scan()), asyncio.create_task(self._feel())]
        if self._recording is not None:
            watching.append(asyncio.create_task(self._recording.open()))
        try:
            while not stop.is_set():
                server = self._servers.current
                because = await self._session(stop)
                self._servers.lost()
                self._failures, self._welcomed = 0 if self._welcomed else self._failures + 1, False
                if self._failures:
                    self._metrics.count(AgentEvent.FAILURES)
                pause = backoff(self._failures, self._settings, random.uniform)
                if not stop.is_set():
                    log.warning("no connection to %s (%s), next try in %.1f s", server, because, pause)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), pause)
        finally:
            if self._tools.stop is not None:
                self._tools.stop.set()
            await cancelled(watching)
            if self._remote_tests is not None:
                await self._remote_tests.close()
            if self._recording is not None:
                await self._recording.close()
            for pool in (self._lookers, self._scanners, self._feelers):
                pool.shutdown(wait=True, cancel_futures=True)
            self._stalls.close()
            if self._crashes is not None:
                self._crashes.close()

    def status(self) -> AgentStatus:
        """How things stand with this agent; any thread may ask."""
        here = self._here or ()
        waiting = self._recording.waiting if self._recording is not None else 0
        running, ends = (len(here), sum(len(job.ranks) for job in here)), self._identity.certificate_ends()
        return AgentStatus(self._welcomed, *running, tuple(self._findings()), waiting, ends)

    async def _scan(self) -> None:
        """Sees again and again who runs here, whether the server is there or not."""
        while True:
            try:
                self._members = await self._in(self._scanners, self._watch.see)
            except Exception:  # a bug met in one process must not make the agent blind from then on
                log.exception("the process table could not be read")
            else:
                here = jobs(self._members)
                if self._remote_tests is not None:
                    self._remote_tests.noticed(here)
                if here != self._here:
                    self._here = here
                    self._tell()
            await asyncio.sleep(self._settings.scan_s)
            if self._stalls.calm:
                await asyncio.sleep(self._settings.scan_s * (self._settings.calm_scans - 1))

    async def _feel(self) -> None:
        """Watches the jobs' pulses, whether the server is there or not: their rhythm is learned all the time."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            closer: Sequence[str] = ()
            try:
                signs, reports = await self._in(self._feelers, self._felt)
                if self._recording is not None:
                    for report in reports:
                        await self._recording.keep(report)
                    closer = self._recording.feel(self._welcomed, self._here or (), self._members, signs)
                changes = (
                    comparable_signs(signs) != comparable_signs(self._signs)
                    or self._stalls.moving != self._moving
                    or set(self._stalls.slowdowns) != self._slow
                    or findings_named(self._findings()) != self._found
                    or (self._welcomed and self._communicators.due(self._stalls.communicators, loop.time()))
                )
            except Exception:  # a bug met in one pulse must not leave the other jobs unwatched
                log.exception("cannot sample CPU activity")
                signs, changes = {}, True
            self._signs, self._slow, self._moving = signs, set(self._stalls.slowdowns), self._stalls.moving
            if changes:
                self._tell()
            for job in closer:
                self._stalls.ask(job, RECHECK_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, began + self._stalls.next_s - loop.time())):
                    await self._asked.wait()
            self._asked.clear()
            await asyncio.sleep(max(0.0, began + self._stalls.beat_s - loop.time()))

    def _felt(self) -> tuple[StallSigns, list[JobReport]]:
        members, here = self._members, self._here or ()
        ended = self._crashes.note(members, here) if self._crashes is not None else {}
        signs, reports = self._stalls.tick(members, ended), list[JobReport]()
        if self._crashes is not None:
            reports += self._crashes.complete(self._stalls.last_words)
        if self._numbers is not None:
            reports += self._numbers.look(self._stalls.numbers(), members, here, time.monotonic())
        return signs, reports

    def _tell(self) -> None:
        changes, self._changed = self._changed, asyncio.Event()
        changes.set()

    async def _session(self, stop: asyncio.Event) -> str:
        """One connection, from Hello until it breaks or `stop` is set; says why it ended."""
        try:  # the certificate is read for each connection: a renewed one counts without a restart
            reach = self._identity.reach(self._servers.current, self._failures % 2 == 1)
            opened, server = await connected(reach, _OPTIONS, stop)
        except HangdogError as wrong:  # while it is being renewed, say
            return why(wrong)
        async with opened as channel:
            call = cast("Callable[[], Call]", rpc.AgentsStub(channel).Connect)()  # the stubs know another one alone
            session = ServerSession(call)
            tests = self._remote_tests
            allowed = tests is not None and tests.allowed
            hello = self._identity.hello(allowed, tests.replays if tests is not None and allowed else ())
            session.outbox.put_nowait(pb.FromAgent(hello=hello))
            keep, counts = (session.write(), self._report(session)), self._identity.counts(server)
            parts = *keep, self._read(session), stop.wait(), counts
            tasks = [asyncio.ensure_future(cast("Coroutine[Any, Any, object]", part)) for part in parts]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if done == {tasks[3]} and session.spoke:
                    await cancelled([tasks[1], *session.orders, *session.beside])
                    await session.part(map(local, self._here or ()), tasks[2])
            finally:
                if self._remote_tests is not None:
                    self._remote_tests.lost()
                await cancelled([*tasks, *session.orders, *session.beside])
                call.cancel()
        return next((why(error) for task in done if (error := task.exception()) is not None), "the server ended it")

    async def _read(self, session: ServerSession) -> None:
        async for message in session.call:
            body = message.WhichOneof("body")
            if body == "welcome":
                self._welcomed = True
                self._metrics.count(AgentEvent.CONNECTIONS)
                self._heartbeat_s = within(message.welcome.heartbeat_s, 0.1, 300.0)
                most = message.welcome.max_message_bytes
                self._most_bytes = most - _ENVELOPE if most else 0
                self._together = message.welcome.together
                self._pack = self._packer.pack if message.welcome.digests else traces.pack
                self._found = None  # it may not know yet what the checks found
                self._communicators.begin()
                self._tell()  # the next heartbeat may be due sooner than was thought
                if self._remote_tests is not None:
                    self._remote_tests.connected(session.outbox.put)
                self._identity.welcomed(message.welcome, session, self._servers.current)
                if self._recording is not None:
                    session.begin(self._recording.deliver(session.outbox.put, most, session.busy, message.welcome))
                log.info("connected to %s as %s", self._servers.current, self._identity.machine)
            elif body == "heartbeat_interval":
                self._heartbeat_s = within(message.heartbeat_interval.heartbeat_s, 0.1, 300.0)
                self._tell()
            elif body == "capture":
                taken = session.start(self._answer(session, message.capture), self._settings.orders)
                self._metrics.count(AgentEvent.ORDERS if taken else AgentEvent.DROPPED)
            elif body == "recheck":
                self._stalls.ask(*job_addresses.recheck_of(message.recheck, self._here))
                self._asked.set()
            elif body == "diagnose" and self._remote_tests is not None:
                await self._remote_tests.take(message.diagnose, self._servers.current)
            elif body == "abort" and self._remote_tests is not None:
                self._remote_tests.abort(message.abort.launch)
            elif body == "ack" and self._recording is not None:
                self._recording.received(message.ack)
            elif body == "redirect":
                if self._servers.send(message.redirect.address):
                    log.info("job %s is led by %s: connecting to it", message.redirect.job, self._servers.current)
                    return
            elif body == "renewed":
                self._identity.answered(message.renewed)
            elif body == "missing_pieces":
                for pieces in self._packer.find(message.missing_pieces.digests, self._most_bytes):
                    await session.outbox.put(pb.FromAgent(pieces=pieces))

    async def _report(self, session: ServerSession) -> None:
        """Presence on every change and as a heartbeat; what ranks show on every change, and again while it is suspicious."""
        loop = asyncio.get_running_loop()
        sent: tuple[LocalJob, ...] | None = None
        sent_at = -math.inf
        found_at, reported = -math.inf, cast("object", ({}, {}))
        slow_reported: set[str] = set()
        while True:
            changes, here, signs, moving = self._changed, self._here, self._signs, self._moving
            shown = comparable_signs(signs), moving
            due = here is not None and loop.time() - max(sent_at, session.spoke_at) >= self._heartbeat_s
            if here is not None and here != sent:
                await session.outbox.put(pb.FromAgent(presence=pb.Presence(jobs=map(local, here))))
                sent, sent_at, due = here, loop.time(), False
            if shown != reported or (signs and due):  # the server counts the seconds on by itself
                packed_signs = stall_signs.pack(signs, job_addresses.names(self._members), moving)
                await session.outbox.put(pb.FromAgent(stall_report=packed_signs))
                reported, sent_at = shown, loop.time()
            elif due:
                await session.outbox.put(self._heartbeat())
                sent_at = loop.time()
            slow = self._stalls.slowdowns
            if set(slow) != slow_reported or (slow and due):
                packed = slow_report.pack(slow, job_addresses.names(self._members))
                await session.outbox.put(pb.FromAgent(slow_report=packed))
                slow_reported = set(slow)
            if self._welcomed and self._communicators.due(windows := self._stalls.communicators, loop.time()):
                report = self._communicators.take(windows, job_addresses.names(self._members), loop.time())
                await session.outbox.put(pb.FromAgent(communicator_report=report))
            findings, now = self._findings(), loop.time()
            again = findings and now - found_at >= self._heartbeat_s
            if self._welcomed and (again or findings_named(findings) != self._found):
                found_at = now
                await session.outbox.put(pb.FromAgent(health=pb.Health(findings=found.pack(findings))))
                self._found = findings_named(findings)
            with contextlib.suppress(TimeoutError):  # not wait_for, which may swallow that we are cancelled (bpo-37658)
                spoken_at = max(sent_at, session.spoke_at)
                async with asyncio.timeout(max(0.05, spoken_at + self._heartbeat_s - loop.time())):
                    await changes.wait()

    def _heartbeat(self) -> pb.FromAgent:
        """To be heard is all it is, and where steps are timed it tells how they go on."""
        paces = self._stalls.paces
        if not paces:
            return pb.FromAgent()
        return pb.FromAgent(step_report=step_report.pack(paces, job_addresses.names(self._members)))

    async def _answer(self, session: ServerSession, order: pb.CaptureOrder) -> None:
        """Everything there is to answer to an order, as it comes."""
        rounds = 1 if order.native else min(max(order.rounds, 1), self._settings.rounds)
        least_s = self._settings.light_s if order.light else 0.0
        interval_s = within(order.interval_s, least_s, max(least_s, self._settings.interval_s))
        if order.light:  # however many orders there are
            loop = asyncio.get_running_loop()
            self._light_at = begin = max(self._light_at + least_s, loop.time())
            await asyncio.sleep(begin - loop.time())
        answering = self._answering(order, self._most_bytes, self._pack)
        async with contextlib.aclosing(answering.messages(rounds, interval_s)) as looks:
            joined = together(looks, rounds, interval_s, self._most_bytes, order.together)
            async with contextlib.aclosing(joined if self._together else looks) as messages:
                async for captured in messages:
                    await session.outbox.put(pb.FromAgent(captured=captured))

    def _answering(self, order: pb.CaptureOrder, most: int, pack: Pack = traces.pack) -> CaptureAnswer:
        series = job_addresses.series(order, self._watch, self._tools, self._here)
        return CaptureAnswer(series, order, self._lookers, most, self._findings, pack, self._metrics)

    async def _running(self) -> tuple[LocalJob, ...]:
        """The jobs that run here now."""
        return jobs(await self._in(self._scanners, self._watch.see))

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


def comparable_signs(signs: StallSigns) -> object:
    """What signs say, apart from the seconds that pass; crowding by halves, for it changes the server's patience."""
    return {
        job: {rank: (sign.doing, sign.overdue, sign.stopped, round(2 * sign.crowding)) for rank, sign in shown.items()}
        for job, shown in signs.items()
    }


def findings_named(findings: Sequence[Finding]) -> object:
    """What findings say, apart from how often and when."""
    return {(finding.source, finding.code, finding.impact, finding.device) for finding in findings}
