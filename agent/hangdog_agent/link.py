"""Keeps the agent's line to the server: says who and what is here and what is suspicious, and answers orders to look.

Nothing here waits for a process: looks, scans and pulses run in threads of their own, one each, and all are bounded.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import grpc

from hangdog_agent.answering import Answering, Found
from hangdog_agent.capture.look import Tools
from hangdog_agent.capture.series import Series
from hangdog_agent.discover import Member
from hangdog_agent.settings import LinkSettings
from hangdog_agent.vigil.vigil import Vigil
from hangdog_agent.watch import LocalJob, Watch, jobs
from hangdog_proto import pulses
from hangdog_proto.client import CHANNEL_OPTIONS
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated import hangdog_pb2_grpc as rpc
from hangdog_proto.pulses import Signs

log = logging.getLogger(__name__)

#: What stands around a capture in its message: the order's name and a few numbers. Bytes.
_ENVELOPE = 256
#: The longest a server may have us look closer without asking again. Seconds.
_DOUBT_S = 60.0
#: Messages waiting to be written; a stream that does not take them has broken.
_OUTBOX = 64
#: Reconnection is ours alone, with its jitter: the library must not keep a second clock behind our back.
_OPTIONS = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))

T = TypeVar("T")
Call = grpc.aio.StreamStreamCall[pb.FromAgent, pb.ToAgent]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls whom: `server` is HOST:PORT, `machine` the name the agent speaks for."""

    server: str
    machine: str
    version: str


class Link:
    """One agent's line; `keep` holds it until told to stop."""

    def __init__(
        self,
        identity: Identity,
        watch: Watch,
        vigil: Vigil,
        tools: Tools,
        settings: LinkSettings,
        findings: Found = tuple,
    ) -> None:
        """`findings` says what the checks of this machine have found."""
        self._findings = findings
        self._identity = identity
        self._watch = watch
        self._vigil = vigil
        self._tools = tools
        self._settings = settings
        self._here: tuple[LocalJob, ...] | None = None
        self._members: tuple[Member, ...] = ()
        self._signs: Signs = {}
        self._news = asyncio.Event()
        self._heartbeat_s = settings.heartbeat_s
        self._most_bytes = 0
        self._light_at = -math.inf
        self._welcomed = False
        self._lookers = ThreadPoolExecutor(1, "hangdog-order")
        self._scanners = ThreadPoolExecutor(1, "hangdog-scan")
        self._feelers = ThreadPoolExecutor(1, "hangdog-pulse")

    async def keep(self, stop: asyncio.Event) -> None:
        """Connects, and connects again after every loss, until `stop` is set; then leaves no thread and no child behind."""
        failures = 0
        watching = [asyncio.create_task(self._scan()), asyncio.create_task(self._feel())]
        try:
            while not stop.is_set():
                self._welcomed = False
                why = await self._session(stop)
                failures = 0 if self._welcomed else failures + 1
                pause = backoff(failures, self._settings, random.uniform)
                if not stop.is_set():
                    log.warning("no line to %s (%s), next try in %.1f s", self._identity.server, why, pause)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), pause)
        finally:
            if self._tools.stop is not None:
                self._tools.stop.set()
            await _cancel(watching)
            for pool in (self._lookers, self._scanners, self._feelers):
                pool.shutdown(wait=True, cancel_futures=True)

    async def _scan(self) -> None:
        """Sees again and again who runs here, whether the server is there or not."""
        while True:
            try:
                self._members = await self._in(self._scanners, self._watch.see)
            except Exception:  # a bug met in one process must not make the agent blind from then on
                log.exception("the process table could not be read")
            else:
                here = jobs(self._members)
                if here != self._here:
                    self._here = here
                    self._tell()
            await asyncio.sleep(self._settings.scan_s)

    async def _feel(self) -> None:
        """Watches the jobs' pulses, whether the server is there or not: their rhythm is learned all the time."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                signs = await self._in(self._feelers, lambda: self._vigil.tick(self._members))
            except Exception:  # likewise
                log.exception("the pulses could not be felt")
                signs = {}
            if _said(signs) != _said(self._signs):
                self._tell()
            self._signs = signs
            await asyncio.sleep(max(0.0, began + self._vigil.beat_s - loop.time()))

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _session(self, stop: asyncio.Event) -> str:
        """One connection, from Hello until it breaks or `stop` is set; says why it ended."""
        async with grpc.aio.insecure_channel(self._identity.server, options=_OPTIONS) as channel:
            call = cast(
                "Callable[[], Call]", rpc.AgentsStub(channel).Connect
            )()  # the stubs know only the synchronous call
            session = _Session(call)
            session.outbox.put_nowait(
                pb.FromAgent(hello=pb.Hello(machine=self._identity.machine, version=self._identity.version))
            )
            parts = (self._write(session), self._report(session), self._read(session), stop.wait())
            tasks = [asyncio.ensure_future(cast("Coroutine[Any, Any, object]", part)) for part in parts]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _cancel([*tasks, *session.orders])
                call.cancel()
        return next((_why(error) for task in done if (error := task.exception()) is not None), "the server ended it")

    async def _write(self, session: "_Session") -> None:
        while True:
            await session.call.write(await session.outbox.get())

    async def _read(self, session: "_Session") -> None:
        async for message in session.call:
            body = message.WhichOneof("body")
            if body == "welcome":
                self._welcomed = True
                self._heartbeat_s = within(message.welcome.heartbeat_s, 0.1, 300.0)
                self._most_bytes = (
                    message.welcome.max_message_bytes - _ENVELOPE if message.welcome.max_message_bytes else 0
                )
                self._tell()  # the next heartbeat may be due sooner than was thought
                log.info("connected to %s as %s", self._identity.server, self._identity.machine)
            elif body == "capture":
                session.start(self._answer(session, message.capture), self._settings.orders)
            elif body == "doubt":
                self._vigil.ask(message.doubt.job, within(message.doubt.seconds, 0.0, _DOUBT_S))

    async def _report(self, session: "_Session") -> None:
        """Presence on every change and as a heartbeat, and so the pulse while anything is suspicious."""
        loop = asyncio.get_running_loop()
        sent: tuple[LocalJob, ...] | None = None
        sent_at = -math.inf
        told: object = {}
        while True:
            news, here, signs = self._news, self._here, self._signs
            due = loop.time() - sent_at >= self._heartbeat_s
            if here is not None and (here != sent or due):
                await session.outbox.put(pb.FromAgent(presence=_presence(here)))
                sent, sent_at = here, loop.time()
            if _said(signs) != told or (signs and due):  # the server counts the seconds on by itself
                await session.outbox.put(pb.FromAgent(pulse=pulses.pack(signs)))
                told = _said(signs)
            with contextlib.suppress(TimeoutError):  # not wait_for, which may swallow that we are cancelled (bpo-37658)
                async with asyncio.timeout(max(0.05, sent_at + self._heartbeat_s - loop.time())):
                    await news.wait()

    async def _answer(self, session: "_Session", order: pb.CaptureOrder) -> None:
        """Everything there is to answer to an order, as it comes."""
        rounds = 1 if order.native else min(max(order.rounds, 1), self._settings.rounds)
        least_s = self._settings.light_s if order.light else 0.0
        interval_s = within(order.interval_s, least_s, max(least_s, self._settings.interval_s))
        if order.light:  # however many orders there are
            loop = asyncio.get_running_loop()
            self._light_at = begin = max(self._light_at + least_s, loop.time())
            await asyncio.sleep(begin - loop.time())
        series = Series(order.job, self._watch.see, self._tools, self._watch.known())
        answering = Answering(series, order, self._lookers, self._most_bytes, self._findings)
        async with contextlib.aclosing(answering.messages(rounds, interval_s)) as messages:
            async for captured in messages:
                await session.outbox.put(pb.FromAgent(captured=captured))

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


class _Session:
    """One connection's call, what waits to be written, and the orders being answered."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.outbox: asyncio.Queue[pb.FromAgent] = asyncio.Queue(_OUTBOX)
        self.orders: set[asyncio.Task[None]] = set()

    def start(self, answer: Coroutine[Any, Any, None], most: int) -> None:
        if len(self.orders) >= most:
            log.warning("an order was dropped: %d are being answered", most)
            answer.close()
            return
        task = asyncio.ensure_future(answer)
        self.orders.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.orders.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an order could not be answered", exc_info=error)


def backoff(failures: int, settings: LinkSettings, draw: Callable[[float, float], float]) -> float:
    """Seconds until the next try: evenly drawn below a bound that doubles with each failure in a row (full jitter)."""
    bound = settings.backoff_first_s * 2.0 ** min(failures, 32)
    return draw(0.0, min(settings.backoff_most_s, bound))


def within(value: float, least: float, most: float) -> float:
    """A number from the wire, brought between two bounds; one that is no number becomes the lower one."""
    return least if math.isnan(value) else min(max(value, least), most)


def _said(signs: Signs) -> object:
    """What signs say, apart from the seconds that pass."""
    return {job: {rank: (sign.doing, sign.overdue) for rank, sign in shown.items()} for job, shown in signs.items()}


def _presence(here: tuple[LocalJob, ...]) -> pb.Presence:
    return pb.Presence(
        jobs=[
            pb.LocalJob(job=job.name, ranks=job.ranks, world_size=job.world_size, topology=job.topology) for job in here
        ]
    )


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _why(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return f"{type(error).__name__}: {error}"
