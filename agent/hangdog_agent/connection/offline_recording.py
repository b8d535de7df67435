"""Takes the looks that a server would take while none is there, and hands them over when one is: one at a time, behind orders."""

import asyncio
import contextlib
import hashlib
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from hangdog_agent.checks.check_state import Notes
from hangdog_agent.connection.answer import CaptureAnswer
from hangdog_agent.connection.offline_policy import OfflinePolicy, OfflineStall
from hangdog_agent.connection.settings import SpoolSettings
from hangdog_agent.connection.spool import Clocks, Spool
from hangdog_agent.discovery.discover import ProcessRole, RankProcesses
from hangdog_agent.discovery.watch import LocalJob
from hangdog_agent.job_report import JobReport
from hangdog_proto.codec import owners
from hangdog_proto.codec.stall_signs import StallSigns
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.private_files import restrict_folder

#: Largest message while no server has said what it takes; a server takes 16 MiB unless told otherwise.
MOST_BYTES = 4 << 20
#: Bytes around the capture in its message: names, ranks, reasons.
_ENVELOPE = 64 << 10
#: Bytes around a message in what the agent says.
_TAG = 16
#: Jobs of which it is noted; the last ones.
_NOTED = 64
#: Under which name it is noted whose standstills are recorded.
_NOTE = "recorded"
#: What is the agent's in its folder: notes, those that were half written when it was killed, and the spool.
_OURS = ("*.json", "*.new", "spool", "lost+found")

log = logging.getLogger(__name__)
T = TypeVar("T")
Say = Callable[[pb.FromAgent], Awaitable[None]]
#: Makes ready to answer an order: its messages fit into so many bytes.
Prepare = Callable[[pb.CaptureOrder, int], CaptureAnswer]


@dataclass(frozen=True, slots=True)
class Spooling:
    """Where and how much is kept: in `folder`, or in memory where that is None. `serial` is the hardware's; empty: not known."""

    folder: Path | None
    settings: SpoolSettings
    clocks: Clocks
    serial: str = ""


class OfflineRecording:
    """What is recorded and waits; `open` it, `feel` it with every pulse, `deliver` once on each connection."""

    def __init__(self, spooling: Spooling, prepare: Prepare) -> None:
        """`prepare` makes ready to look."""
        self._spooling = spooling
        self._notes = Notes(spooling.folder, spooling.clocks.boot)
        self._settings = spooling.settings
        self._prepare = prepare
        self._away: OfflinePolicy | None = None
        self._spool: Spool | None = None
        self._noted: dict[str, str] = {}
        self._most = MOST_BYTES
        self._receipt: tuple[str, asyncio.Future[str]] | None = None
        self._series: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._disk = ThreadPoolExecutor(1, "hangdog-spool")

    async def open(self) -> None:
        """Takes up what was kept before; until then nothing is recorded, for a disk may let one wait."""
        born = asyncio.get_running_loop().time()
        folder, clocks = self._spooling.folder, self._spooling.clocks
        if folder is not None:
            await self._on_disk(lambda: restrict_folder(folder, _OURS))
        spool = await self._on_disk(lambda: Spool(folder / "spool" if folder else None, self._settings, clocks))
        recalled = await self._on_disk(lambda: self._notes.recall(_NOTE))
        self._noted = {job: str(whose) for job, whose in recalled.items()}
        self._away, self._spool = OfflinePolicy(self._settings.away_s, born, dict(self._noted)), spool
        self._tell()

    def feel(
        self, welcomed: bool, here: Sequence[LocalJob], members: Sequence[RankProcesses], signs: StallSigns
    ) -> Sequence[str]:
        """Starts what is to be recorded; the jobs to look at closer, for `suspicion.DOUBT_S`."""
        if self._away is None or self._spool is None:
            return ()
        whose = _whose(members)
        thought = self._away.think(asyncio.get_running_loop().time(), welcomed, here, signs, whose)
        for stall in thought.record:
            job = stall.job.key
            log.warning("job %s is stalled and no server is connected: capturing it here; %s", job, stall.why)
            task = asyncio.create_task(self._record(self._spool, stall, whose.get(job, "")))
            self._series.add(task)
            task.add_done_callback(self._ended)
        return thought.closer

    async def keep(self, report: JobReport) -> None:
        """Keeps a report for the server."""
        if self._spool is None:
            log.warning("a report of job %s is lost, because there is no spool: %s", report.job.key, report.message.why)
            return
        boot = self._spooling.clocks.boot
        report.message.boot, report.message.serial = "" if boot == "unknown" else boot, self._spooling.serial
        report.message.job.CopyFrom(local(report.job))
        since_s = asyncio.get_running_loop().time() - report.at
        await self._on_disk(partial(self._spool.put, report.message, since_s))
        self._tell()

    async def deliver(self, say: Say, most: int, busy: Callable[[], bool], knows: pb.Welcome) -> None:
        """Hands over what is kept, oldest first, until the connection ends or the server does not say that it keeps it.

        `most` is the largest message the server takes (0: no bound), `busy` says whether orders are being answered.
        `knows` says which reports it takes.
        """
        if most:
            self._most = most
        tried: set[str] = set()
        while True:
            changes, spool = self._changed, self._spool
            kept = await self._on_disk(spool.waiting) if spool is not None else ()
            waiting = [name for name in kept if name not in tried]
            if spool is None or not waiting:
                await changes.wait()
                continue
            message = await self._on_disk(partial(spool.read, waiting[0]))
            reports = message is not None and (message.crash or message.numbers)
            if message is None or (message.crash and not knows.crashes) or (message.numbers and not knows.numbers):
                tried.add(waiting[0])
                continue
            if not reports:  # not all agents at once
                await asyncio.sleep(random.uniform(0.0, 2.0 * self._settings.spool_pause_s))
                if busy():
                    continue
            tried.add(waiting[0])
            if most and message.ByteSize() + _TAG > most:
                log.warning("spooled look %s is larger than this server accepts: kept for another server", message.id)
                continue
            if not await self._hand_over(spool, message, say):
                return

    def received(self, receipt: pb.Ack) -> None:
        """The server has a message, or never will."""
        if self._receipt is not None and self._receipt[0] == receipt.id and not self._receipt[1].done():
            self._receipt[1].set_result(receipt.refused)

    @property
    def waiting(self) -> int:
        """How many looks wait for a server."""
        return len(self._spool.waiting()) if self._spool is not None else 0

    async def close(self) -> None:
        """Ends what is being recorded; what is kept on the disk stays."""
        for task in self._series:
            task.cancel()
        await asyncio.gather(*self._series, return_exceptions=True)
        self._disk.shutdown(wait=True, cancel_futures=True)

    async def _hand_over(self, spool: Spool, message: pb.Spooled, say: Say) -> bool:
        receipt = asyncio.get_running_loop().create_future()
        self._receipt = (message.id, receipt)
        try:
            await say(pb.FromAgent(spooled=message))
            async with asyncio.timeout(self._settings.receipt_s):
                refused = await receipt
        except TimeoutError:
            log.warning("the server did not acknowledge a spooled look: it stays here")
            return False
        finally:
            self._receipt = None
        if refused:
            log.warning("the server refused spooled look %s: %s", message.id, refused[:200])
        await self._on_disk(lambda: spool.drop(message.id))
        return True

    async def _record(self, spool: Spool, stall: OfflineStall, whose: str) -> None:
        """One series of looks, each kept as it comes."""
        loop, settings, job = asyncio.get_running_loop(), self._settings, stall.job
        boot = self._spooling.clocks.boot
        stood_since = loop.time() - stall.seconds
        rounds = max(1, settings.away_rounds)
        order = pb.CaptureOrder(
            order=secrets.token_hex(8), job=job.name, rounds=rounds, interval_s=settings.away_interval_s,
            owner=owners.pack(job.owner),
        )  # fmt: skip
        answering = self._prepare(order, max(self._most - _ENVELOPE, _ENVELOPE))
        async with contextlib.aclosing(answering.messages(rounds, settings.away_interval_s)) as messages:
            async for captured in messages:
                message = pb.Spooled(
                    stall=order.order,
                    job=local(job),
                    captured=captured,
                    rounds=rounds,
                    interval_s=settings.away_interval_s,
                    why=stall.why[:500],
                    boot="" if boot == "unknown" else boot,
                    serial=self._spooling.serial,
                )
                await self._on_disk(partial(spool.put, message, loop.time() - stood_since))
                if self._noted.get(job.key) != whose:
                    self._noted = dict([*self._noted.items(), (job.key, whose)][-_NOTED:])
                    await self._on_disk(lambda: self._notes.note(_NOTE, dict(self._noted)))
                self._tell()

    def _tell(self) -> None:
        changes, self._changed = self._changed, asyncio.Event()
        changes.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._series.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("cannot capture a stall", exc_info=error)

    async def _on_disk(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)


def local(job: LocalJob) -> pb.LocalJob:
    """A job as it is announced."""
    return pb.LocalJob(
        job=job.name, ranks=job.ranks, world_size=job.world_size, topology=job.topology, owner=owners.pack(job.owner),
        rendezvous=job.rendezvous, contested=job.contested, pods=job.pods, notes=job.notes,
        switch=job.switch,
    )  # fmt: skip


def _whose(members: Iterable[RankProcesses]) -> dict[str, str]:
    """A name for the trainers of each job: the same only for the same processes of the same start of the machine."""
    keys: dict[str, list[tuple[int, int]]] = {}
    for member in members:
        if member.kind is ProcessRole.TRAINER:
            keys.setdefault(member.key, []).append(member.process.key)
    return {job: hashlib.blake2b(repr(sorted(of)).encode(), digest_size=16).hexdigest() for job, of in keys.items()}
