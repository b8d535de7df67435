"""Some thousand played agents in one process: `python -m scale.agents ADDRESS JOBRANKS FIRST COUNT SEED SHARE`.

Each holds a line of its own and answers orders to look as a real one does, with its own messages, which it makes before it is
asked: what a look costs is its machine's affair and not the server's. Says `ready` once all are connected, then a line of
JSON on each line read from stdin; ends with it.
"""

import asyncio
import json
import resource
import sys
from collections.abc import Callable
from typing import Any, cast

import grpc

from hangdog_proto.alike import Packer
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import AgentsStub
from scale.stacks import PER_MACHINE, Job

#: Agents that connect at the same time, as a cluster's do after a restart of their server, spread by their back-off.
AT_ONCE = 128


class Agents:
    """The agents of machines `first` to `first + count`; `share` of them share one connection (1: none does)."""

    def __init__(self, address: str, job: Job, first: int, count: int, share: int) -> None:
        self._job = job
        self._machines = range(first, first + count)
        self._share = share
        self._address = address
        self._packer = Packer()
        self._tasks: list[asyncio.Task[None]] = []
        self._looks: dict[tuple[int, int], pb.Capture] = {}
        self.sent = self.sent_bytes = self.told = self.told_bytes = 0

    def prepare(self, rounds: int, moving: bool) -> None:
        """Makes the looks that will be asked for."""
        for number in range(rounds):
            for at in self._machines:
                self._looks[at, number] = self._packer.pack(self._job.machine(at, number, moving))

    async def connect(self) -> None:
        """Connects all of them."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.keepalive_time_ms", 600_000)]
        channels: list[grpc.aio.Channel] = []
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(at: int, channel: grpc.aio.Channel) -> None:
            async with gate:
                call = cast("Callable[[], Any]", AgentsStub(channel).Connect)()
                await call.write(pb.FromAgent(hello=pb.Hello(machine=f"gpu-{at:05}", version="bench")))
                await call.read()
                ranks = range(at * PER_MACHINE, (at + 1) * PER_MACHINE)
                local = pb.LocalJob(job="big", ranks=ranks, world_size=self._job.ranks, topology=self._job.topology)
                await call.write(pb.FromAgent(presence=pb.Presence(jobs=[local])))
            self._tasks.append(asyncio.create_task(self._serve(at, call)))

        for index, _ in enumerate(self._machines):
            if index % self._share == 0:
                channels.append(grpc.aio.insecure_channel(self._address, options=options))
        await asyncio.gather(*(one(at, channels[i // self._share]) for i, at in enumerate(self._machines)))
        self._channels = channels

    async def _serve(self, at: int, call: Any) -> None:
        outbox: asyncio.Queue[pb.FromAgent] = asyncio.Queue()
        beside = [asyncio.create_task(self._beat(outbox)), asyncio.create_task(self._write(call, outbox))]
        try:
            while isinstance(message := await call.read(), pb.ToAgent):
                if message.HasField("capture"):
                    beside.append(asyncio.create_task(self._answer(at, outbox, message.capture)))
                elif message.HasField("need"):
                    for pieces in self._packer.find(message.need.digests, 1 << 20):
                        self.told += len(pieces.pieces)
                        self.told_bytes += pieces.ByteSize()
                        outbox.put_nowait(pb.FromAgent(pieces=pieces))
        finally:
            for task in beside:
                task.cancel()

    async def _write(self, call: Any, outbox: "asyncio.Queue[pb.FromAgent]") -> None:
        """One writer for each line: gRPC takes one message at a time."""
        while True:
            await call.write(await outbox.get())

    async def _beat(self, outbox: "asyncio.Queue[pb.FromAgent]") -> None:
        while True:
            await asyncio.sleep(5.0)
            outbox.put_nowait(pb.FromAgent())

    async def _answer(self, at: int, outbox: "asyncio.Queue[pb.FromAgent]", order: pb.CaptureOrder) -> None:
        if order.native:
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(order.rounds):
            await asyncio.sleep(max(0.0, began + number * order.interval_s - loop.time()))
            last = number == order.rounds - 1
            captured = pb.Captured(order=order.order, round=number, capture=self._looks[at, number], last=last)
            self.sent += 1
            self.sent_bytes += captured.ByteSize()
            outbox.put_nowait(pb.FromAgent(captured=captured))


async def main() -> None:
    address, ranks, first, count, seed, share, rounds, moving = sys.argv[1], *map(int, sys.argv[2:9])
    agents = Agents(address, Job(ranks, seed), first, count, share)
    agents.prepare(rounds, bool(moving))
    await agents.connect()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        used = resource.getrusage(resource.RUSAGE_SELF)
        told = {"cpu_s": used.ru_utime + used.ru_stime, "sent": agents.sent, "sent_bytes": agents.sent_bytes}
        print(json.dumps(told | {"told": agents.told, "told_bytes": agents.told_bytes}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
