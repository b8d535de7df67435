"""Some thousand played agents in one process: `python -m scale.agents ADDRESS JOB JOBRANKS FIRST COUNT SEED SHARE ROUNDS MOVING`.

Each holds a line of its own and answers orders to look as a real one does, with its own messages, which it makes before it is
asked: what a look costs is its machine's affair and not the server's. Says `ready` once all are connected, then a line of
JSON on each line read from stdin; ends with it.
"""

import argparse
import asyncio
import json
import resource
import sys

from hangdog_agent.connection.batch import KEPT_S
from hangdog_proto.client.channel_options import CHANNEL_OPTIONS
from hangdog_proto.codec.dedup import Packer
from hangdog_proto.codec.rounds import same_but_for_counts
from hangdog_proto.generated import hangdog_pb2 as pb
from scale.stacks import PER_MACHINE, Job
from scale.wire import Call, Line, connected

#: Agents that connect at the same time, as a cluster's do after a restart of their server, spread by their back-off.
AT_ONCE = 128
#: A line on which nothing was heard for so long is asked, as by gRPC in a real agent. Seconds.
QUIET_S = dict(CHANNEL_OPTIONS)["grpc.keepalive_time_ms"] / 1000

#: What stands for the last look together with those between it and the first, and with all before it.
TOGETHER, ALL = -1, -2


class Agent:
    """One machine's agent, on its line."""

    def __init__(self, at: int, agents: "Agents") -> None:
        self.at = at
        self.welcomed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._agents = agents
        self._heartbeat_s = 0.0
        self._spoke_at = 0.0
        self._call: Call | None = None

    async def begin(self, line: Line) -> None:
        """Says who and what is here."""
        self._call = line.call("/hangdog.v1.Agents/Connect", self._hear)
        self._say(
            pb.FromAgent(hello=pb.Hello(machine=f"{self._agents.name}-{self.at:05}", version="bench", paced=True))
        )
        await self.welcomed
        ranks = range(self.at * PER_MACHINE, (self.at + 1) * PER_MACHINE)
        job = self._agents.job
        local = pb.LocalJob(job=self._agents.name, ranks=ranks, world_size=job.ranks, topology=job.topology)
        self._say(pb.FromAgent(presence=pb.Presence(jobs=[local])))
        self._beat(first=True)

    def _say(self, message: pb.FromAgent) -> None:
        self._send(message.SerializeToString())

    def _send(self, message: bytes) -> None:
        assert self._call is not None
        self._spoke_at = asyncio.get_running_loop().time()
        self._call.send(message)

    def _hear(self, data: bytes) -> None:
        message = pb.ToAgent.FromString(data)
        if message.HasField("welcome"):
            self._heartbeat_s = message.welcome.heartbeat_s
            self.welcomed.set_result(None)
        elif message.HasField("heartbeat_interval"):
            self._heartbeat_s = message.heartbeat_interval.heartbeat_s
        elif message.HasField("capture") and not message.capture.native:
            self._look(message.capture)
        elif message.HasField("missing_pieces"):
            for pieces in self._agents.packer.find(message.missing_pieces.digests, 1 << 20):
                self._agents.told += len(pieces.pieces)
                self._agents.told_bytes += pieces.ByteSize()
                self._say(pb.FromAgent(pieces=pieces))

    def _beat(self, first: bool = False) -> None:
        loop = asyncio.get_running_loop()
        due_at = self._spoke_at + self._heartbeat_s
        if not first and due_at <= loop.time():  # whatever else was said is a sign of life, too
            self._send(b"")
            due_at = self._spoke_at + self._heartbeat_s
        loop.call_at(due_at, self._beat)

    def _look(self, order: pb.CaptureOrder) -> None:
        """The first look goes at once, unless the server has it wait; those between it and the last with that, if it is soon."""
        loop, last = asyncio.get_running_loop(), order.rounds - 1
        made = 0 < last == self._agents.rounds - 1
        all_ = made and order.together and last * order.interval_s <= KEPT_S
        together = all_ or (made and (last - 1) * order.interval_s <= KEPT_S)
        for number in range(order.rounds):
            if number == last or not together or (number == 0 and not all_):
                kind = (ALL if all_ else TOGETHER) if together and number == last else number
                loop.call_later(number * order.interval_s, self._answer, order.order, kind, number == last)

    def _answer(self, order: str, kind: int, last: bool) -> None:
        agents = self._agents
        said = pb.Captured(order=order, last=last).SerializeToString() + agents.looks[self.at, kind]
        agents.sent += 1
        agents.sent_bytes += len(said)
        self._send(b"\x1a" + _varint(len(said)) + said)  # FromAgent.captured


def _older(look: pb.Capture) -> pb.Capture:
    """The same look a second of CPU later."""
    older = pb.Capture(alike=look.alike)
    for group in older.alike:
        group.cpu_s[:] = [cpu_s + 1 for cpu_s in group.cpu_s]
    return older


def _varint(number: int) -> bytes:
    """A length as protobuf writes it, for one below 2 MiB."""
    low, middle, high = number & 127, number >> 7 & 127, number >> 14
    return bytes((low | 128, middle | 128, high) if high else (low | 128, middle) if middle else (low,))


class Agents:
    """The agents of machines `first` to `first + count` of a job; `share` of them share one connection (1: none does)."""

    def __init__(self, address: str, name: str, job: Job, first: int, count: int, share: int) -> None:
        self.name = name
        self.job = job
        self.packer = Packer()
        #: What each machine says of each look, written; under `TOGETHER` of the last one and those between.
        self.looks: dict[tuple[int, int], bytes] = {}
        self.rounds = 0
        self.sent = self.sent_bytes = self.told = self.told_bytes = 0
        self._machines = range(first, first + count)
        self._share = share
        self._address = address
        self._lines: list[Line] = []
        self._agents: list[Agent] = []

    def prepare(self, rounds: int, moving: bool) -> None:
        """Makes the looks that will be asked for."""
        self.rounds = rounds
        for at in self._machines:
            looks = [self.packer.pack(self.job.machine(at, 0, moving))]
            for number in range(1, rounds):
                looks.append(self.packer.pack(self.job.machine(at, number, True)) if moving else _older(looks[-1]))
            for number, look in enumerate(looks):
                self.looks[at, number] = pb.Captured(round=number, capture=look).SerializeToString()
            for kind, first in ((TOGETHER, 1), (ALL, 0)):
                joined = pb.Captured(round=rounds - 1, capture=looks[-1])
                for number, look in enumerate(looks[first:-1], first):
                    counted = same_but_for_counts(look, looks[-1]) or pb.Before(capture=look)
                    counted.round = number
                    joined.before.append(counted)
                self.looks[at, kind] = joined.SerializeToString()

    async def connect(self) -> None:
        """Connects all of them."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def some(machines: range) -> None:
            async with gate:
                line = await connected(self._address, machines.start)
                self._lines.append(line)
                for at in machines:
                    self._agents.append(Agent(at, self))
                    await self._agents[-1].begin(line)

        each = range(0, len(self._machines), self._share)
        await asyncio.gather(*(some(self._machines[at : at + self._share]) for at in each))

    async def ping(self) -> None:
        """Asks quiet lines whether the server is there, for ever."""
        while True:
            now = asyncio.get_running_loop().time()
            for line in self._lines:
                if now - line.heard_at >= QUIET_S:
                    line.ping()
            await asyncio.sleep(1.0)

    def figures(self) -> dict[str, float]:
        """What all this cost so far, and how it stands."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "cpu_s": used.ru_utime + used.ru_stime,
            "sent": self.sent,
            "sent_bytes": self.sent_bytes,
            "told": self.told,
            "told_bytes": self.told_bytes,
            "gone": len(self._agents) - sum(len(line.calls) for line in self._lines),
            "ping_s": max(line.slowest_s for line in self._lines),
        }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for word in ("address", "job"):
        parser.add_argument(word)
    for number in ("ranks", "first", "count", "seed", "share", "rounds", "moving"):
        parser.add_argument(number, type=int)
    address, name, ranks, first, count, seed, share, rounds, moving = vars(parser.parse_args()).values()
    agents = Agents(address, name, Job(ranks, seed), first, count, share)
    agents.prepare(rounds, bool(moving))
    await agents.connect()
    pinging = asyncio.create_task(agents.ping())
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(agents.figures()), flush=True)
    pinging.cancel()


if __name__ == "__main__":
    asyncio.run(main())
