"""One machine of a cluster that lives: its agent's line, and what it says on it, which its cluster has it say."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, cast

import grpc
from msgspec import structs

from hangdog_models.stack import ProcessTrace
from hangdog_proto.codec.dedup import Packer
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import AgentsStub
from scale.stacks import PER_MACHINE, Job

HEARTBEAT_S = 5.0


class Around(Protocol):
    """What a machine needs of its cluster."""

    address: str
    draw: Random
    gate: asyncio.Semaphore

    def next(self) -> int:
        """A number that nobody else gets."""

    def count(self, what: str) -> None:
        """Notes that something happened."""


@dataclass(eq=False)
class Running:
    """One job on its machines. `stacks` are those of a hung one; `hung` is since when it stands still."""

    name: str
    first: int
    stacks: Job
    hung: float | None = None


class Machine:
    """One machine and its agent's line, which `live` keeps until it is cancelled."""

    def __init__(self, cluster: Around, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.name = f"gpu-{number:05}"
        self.job: Running | None = None
        self.outbox: asyncio.Queue[pb.FromAgent] = asyncio.Queue()
        self.packer = Packer()
        self.beside: set[asyncio.Task[None]] = set()
        self.leaves = False

    def presence(self, leaving: bool = False) -> pb.FromAgent:
        return pb.FromAgent(presence=pb.Presence(jobs=[self.local()] if self.job else [], leaving=leaving))

    def local(self) -> pb.LocalJob:
        assert self.job is not None
        at = (self.number - self.job.first) * PER_MACHINE
        ranks = range(at, at + PER_MACHINE)
        return pb.LocalJob(
            job=self.job.name, ranks=ranks, world_size=self.job.stacks.ranks, topology=self.job.stacks.topology
        )

    async def live(self, brings: bool) -> None:
        """One connection, to its end, after which all that belonged to it is gone."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.insecure_channel(self.cluster.address, options=options)
        tasks: list[asyncio.Task[None]] = []
        try:
            async with self.cluster.gate:
                call = cast("Callable[[], Any]", AgentsStub(channel).Connect)()
                await call.write(pb.FromAgent(hello=pb.Hello(machine=self.name, version="soak")))
                await call.read()
            self.outbox = asyncio.Queue()
            self.outbox.put_nowait(self.presence())
            if brings and self.job is not None:
                self.outbox.put_nowait(self._recorded())
            tasks = [asyncio.create_task(self._write(call)), asyncio.create_task(self._beat())]
            while isinstance(message := await call.read(), pb.ToAgent):
                self._heard(message)
        finally:
            for task in (*tasks, *self.beside):
                task.cancel()
            await channel.close(None)

    async def _write(self, call: Any) -> None:
        while True:
            message = await self.outbox.get()
            await call.write(message)
            if message.presence.leaving:
                await call.done_writing()
                return

    async def _beat(self) -> None:
        await asyncio.sleep(self.cluster.draw.uniform(0, HEARTBEAT_S))
        while True:
            self.outbox.put_nowait(pb.FromAgent())
            await asyncio.sleep(HEARTBEAT_S)

    def _heard(self, message: pb.ToAgent) -> None:
        if message.HasField("capture"):
            task = asyncio.create_task(self._answer(message.capture))
            self.beside.add(task)
            task.add_done_callback(self.beside.discard)
        elif message.HasField("missing_pieces"):
            for pieces in self.packer.find(message.missing_pieces.digests, 1 << 20):
                self.outbox.put_nowait(pb.FromAgent(pieces=pieces))
        elif message.HasField("ack"):
            self.cluster.count("receipts")

    async def _answer(self, order: pb.CaptureOrder) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(order.rounds):
            await asyncio.sleep(max(0.0, began + number * order.interval_s - loop.time()))
            capture = pb.Capture() if order.native else self._look(number)
            last = number == order.rounds - 1
            self.outbox.put_nowait(
                pb.FromAgent(captured=pb.Captured(order=order.order, round=number, capture=capture, last=last))
            )
            self.cluster.count("looks")

    def _look(self, number: int) -> pb.Capture:
        if self.job is None:
            return pb.Capture()
        return self.packer.pack(self._traces(self.job, number))

    def _traces(self, job: Running, number: int) -> list[ProcessTrace]:
        found = job.stacks.machine(self.number - job.first, number, job.hung is None)
        return [
            structs.replace(
                trace, state=structs.replace(trace.state, cmdline=f"{trace.state.cmdline} --save {job.name}")
            )
            if trace.state
            else trace
            for trace in found
        ]

    def _recorded(self) -> pb.FromAgent:
        assert self.job is not None
        self.cluster.count("brought")
        number = self.cluster.next()
        captured = pb.Captured(order="", round=0, capture=self._look(0), last=True)
        return pb.FromAgent(
            spooled=pb.Spooled(
                id=f"{number}-0", stall=str(number), job=self.local(), began_s=0.0, age_s=20.0,
                captured=captured, rounds=1, interval_s=2.0, why="ranks stand still",
            )
        )  # fmt: skip
