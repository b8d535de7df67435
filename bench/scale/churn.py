"""A cluster that lives, in one process: `python -m scale.churn ADDRESS AGENTS SEED`, and a line of JSON on each line read.

Agents of eight ranks join and leave, in order and by a broken line, a tenth of them at once now and then; jobs under names of
their own begin and end; some come to stand still, are suspected, looked at, and killed or go on; some agents bring looks that
they took while they were away.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, cast

import grpc

from hangdog_models.ranks import Rank
from hangdog_models.stack import ProcessTrace
from hangdog_models.suspicion import Doing, Sign
from hangdog_proto import pulses
from hangdog_proto.alike import Packer
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import AgentsStub
from scale.stacks import PER_MACHINE, Job

#: Machines of a job: large enough that a cluster of 2,000 has some fifty jobs, small enough that making a look is cheap here.
BLOCK = 40
#: A job lives for so long on average, and its machines lie idle for so long before the next one. Seconds.
LIFE_S, IDLE_S = 240.0, 5.0
#: A job comes to stand still so often in the whole cluster, and is then left alone for so long by those who run it. Seconds.
HANG_EVERY_S, HUNG_S = 15.0, 30.0
#: An agent leaves so often, for so long at most; the line of a tenth of the cluster breaks so often. Seconds.
LEAVE_EVERY_S, AWAY_S, BLOW_EVERY_S = 1.0, 20.0, 300.0
#: Of those who left: share that comes back as another machine, and share that brings a recorded look.
REPLACED, BROUGHT = 0.1, 0.05
HEARTBEAT_S = 5.0
#: Agents that connect at the same time.
AT_ONCE = 128


@dataclass(eq=False)
class Running:
    """One job on its machines. `stacks` are those of a hung one; `hung` is since when it stands still."""

    name: str
    first: int
    stacks: Job
    hung: float | None = None


class Machine:
    """One machine and its agent's line, which `live` keeps until it is cancelled."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
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
        elif message.HasField("need"):
            for pieces in self.packer.find(message.need.digests, 1 << 20):
                self.outbox.put_nowait(pb.FromAgent(pieces=pieces))
        elif message.HasField("receipt"):
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
            replace(trace, state=replace(trace.state, cmdline=f"{trace.state.cmdline} --save {job.name}"))
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
                id=f"{number}-0", standstill=str(number), job=self.local(), began_s=0.0, age_s=20.0,
                captured=captured, rounds=1, interval_s=2.0, why="ranks stand still",
            )
        )  # fmt: skip


class Cluster:
    """All machines, their jobs, and what happens to them."""

    def __init__(self, address: str, agents: int, seed: int) -> None:
        self.address = address
        self.draw = Random(seed)
        self.gate = asyncio.Semaphore(AT_ONCE)
        self.counts: dict[str, int] = {}
        self.machines = [Machine(self, number) for number in range(agents)]
        self._lives: dict[Machine, asyncio.Task[None]] = {}
        self._gone: set[asyncio.Task[None]] = set()
        self._jobs: list[Running] = []
        self._number = agents

    def next(self) -> int:
        self._number += 1
        return self._number

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def live(self, ready: Callable[[], None]) -> None:
        """Everybody joins, then everything goes on until it is cancelled."""
        for machine in self.machines:
            self._join(machine, brings=False)
        ready()
        async with asyncio.TaskGroup() as group:
            for first in range(0, len(self.machines), BLOCK):
                group.create_task(self._jobs_on(self.machines[first : first + BLOCK]))
            group.create_task(self._again(HANG_EVERY_S, self._hang))
            group.create_task(self._again(LEAVE_EVERY_S, lambda: self._part(self.draw.choice(self.machines))))
            group.create_task(self._again(BLOW_EVERY_S, self._blow))

    async def _again(self, every_s: float, what: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(self.draw.uniform(0.5, 1.5) * every_s)
            what()

    async def _jobs_on(self, machines: list[Machine]) -> None:
        """One job after the other on these machines."""
        while True:
            stacks = Job(len(machines) * PER_MACHINE, self.draw.randrange(1 << 30))
            job = Running(f"run-{self.next()}", machines[0].number, stacks)
            self._jobs.append(job)
            self.count("jobs")
            self._tell(machines, job)
            clock = asyncio.get_running_loop().time
            ends = clock() + self.draw.expovariate(1 / LIFE_S)
            while clock() < ends or job.hung is not None:
                await asyncio.sleep(1.0)
                if job.hung is not None:
                    self._pulse(machines, job, clock() - job.hung)
                    if clock() - job.hung > HUNG_S:
                        self._pulse(machines, job, 0.0)
                        if self.draw.random() < 0.5:  # killed
                            break
                        job.hung = None
            self._jobs.remove(job)
            self._tell(machines, None)
            await asyncio.sleep(self.draw.uniform(0, 2 * IDLE_S))

    def _tell(self, machines: list[Machine], job: Running | None) -> None:
        for machine in machines:
            machine.job = job
            machine.outbox.put_nowait(machine.presence())

    def _pulse(self, machines: list[Machine], job: Running, seconds: float) -> None:
        sign = Sign(Doing.STILL, seconds, seconds > 5.0, "all_reduce")
        for machine in machines:
            ranks = machine.local().ranks if seconds else ()
            said = pulses.pack({job.name: {Rank(rank): sign for rank in ranks}} if ranks else {})
            machine.outbox.put_nowait(pb.FromAgent(pulse=said))

    def _hang(self) -> None:
        going = [job for job in self._jobs if job.hung is None]
        if going:
            self.count("hangs")
            self.draw.choice(going).hung = asyncio.get_running_loop().time()

    def _blow(self) -> None:
        first = self.draw.randrange(len(self.machines))
        for machine in self.machines[first : first + len(self.machines) // 10]:
            self._part(machine, in_order=False)

    def _part(self, machine: Machine, in_order: bool | None = None) -> None:
        task = self._lives.pop(machine, None)
        if task is None:
            return  # it is away already
        self.count("left")
        leaving = self.draw.random() < 0.5 if in_order is None else in_order
        away = asyncio.create_task(self._away(machine, task, leaving))
        self._gone.add(away)
        away.add_done_callback(self._gone.discard)

    async def _away(self, machine: Machine, task: asyncio.Task[None], leaving: bool) -> None:
        if leaving:
            machine.leaves = True
            machine.outbox.put_nowait(machine.presence(leaving=True))
            await asyncio.wait((task,), timeout=2.0)
        task.cancel()
        await asyncio.wait((task,))
        await asyncio.sleep(self.draw.uniform(1.0, AWAY_S))
        if self.draw.random() < REPLACED:
            machine.name = f"gpu-{self.next():05}"
            machine.packer = Packer()
        self._join(machine, brings=self.draw.random() < BROUGHT)

    def _join(self, machine: Machine, brings: bool) -> None:
        self._lives[machine] = asyncio.create_task(self._stay(machine, brings))

    async def _stay(self, machine: Machine, brings: bool) -> None:
        """Connected for as long as nobody has it part; what breaks by itself is counted, and tried again."""
        machine.leaves = False
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await machine.live(brings)
            if machine.leaves:
                return
            self.count("broke")
            brings = False
            await asyncio.sleep(self.draw.uniform(0.0, 5.0))


async def main() -> None:
    address, agents, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    cluster = Cluster(address, agents, seed)
    living = asyncio.create_task(cluster.live(lambda: print("ready", flush=True)))
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(cluster.counts), flush=True)
    living.cancel()


if __name__ == "__main__":
    asyncio.run(main())
