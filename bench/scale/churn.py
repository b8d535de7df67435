"""A cluster that lives, in one process: `python -m scale.churn ADDRESS AGENTS SEED`, and a line of JSON on each line read.

Agents of eight ranks join and leave, in order and by a broken line, a tenth of them at once now and then; jobs under names of
their own begin and end; some come to stand still, are suspected, looked at, and killed or go on; some agents bring looks that
they took while they were away.
"""

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from random import Random

import grpc

from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_proto.codec import stall_signs
from hangdog_proto.codec.dedup import Packer
from hangdog_proto.generated import hangdog_pb2 as pb
from scale.machines import Machine, Running
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
#: Agents that connect at the same time.
AT_ONCE = 128


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
            said = stall_signs.pack({job.name: {Rank(rank): sign for rank in ranks}} if ranks else {})
            machine.outbox.put_nowait(pb.FromAgent(stall_report=said))

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="of the server")
    parser.add_argument("agents", type=int, help="at once, about")
    parser.add_argument("seed", type=int, help="draws another life")
    given = parser.parse_args()
    cluster = Cluster(given.address, given.agents, given.seed)
    living = asyncio.create_task(cluster.live(lambda: print("ready", flush=True)))
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(cluster.counts), flush=True)
    living.cancel()


if __name__ == "__main__":
    asyncio.run(main())
