"""Runs the programs of all hosts against their devices, and keeps where each host was when."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine import steps
from worlds.timed.engine.clock import Clock
from worlds.timed.engine.devices import COMPUTE, Devices
from worlds.timed.engine.host import Host
from worlds.timed.engine.position import Position
from worlds.timed.engine.steps import Program, Step
from worlds.timed.engine.work import Message, Work
from worlds.timed.layout import Layout

#: A host that waited takes so long to notice that it need not any more.
_WAKES_S = 1e-4
#: The members of a collective on hosts leave it within so many seconds.
_LEAVES_S = 0.002
#: Instead of how long a step keeps a host busy: it waits until something wakes it.
_WAITS = -1.0


class Engine:
    """A job in time. `step_times` says when which rank finished which step, `marks` when phases began and ended."""

    def __init__(self, layout: Layout, rng: Random) -> None:
        self.clock = Clock()
        self.layout = layout
        self.devices = Devices(self.clock, layout)
        self.hosts: dict[Rank, Host] = {}
        self.marks: list[tuple[float, Rank, str]] = []
        self.step_times: defaultdict[int, dict[Rank, float]] = defaultdict(dict)
        self.on_step: list[Callable[[Rank, int], None]] = []
        self._rng = rng
        self._flags: set[str] = set()
        self._waiting: defaultdict[str, list[Host]] = defaultdict(list)
        self._gathered: defaultdict[tuple[str, int], dict[Rank, Work]] = defaultdict(dict)

    @property
    def now(self) -> float:
        return self.clock.now

    def start(self, rank: Rank, program: Program, delay: float, queue: int) -> None:
        """Adds a rank."""
        host = Host(rank, program, queue)
        self.hosts[rank] = host
        self.clock.at(delay, lambda: self._advance(host))

    def run(self, until: float) -> None:
        """Lets the job run."""
        self.clock.run(until)

    def raise_flag(self, flag: str) -> None:
        """Lets those go on that wait for a flag."""
        self._flags.add(flag)
        for host in self._waiting.pop(flag, []):
            self._wake(host)

    def stop(self, rank: Rank) -> None:
        """Stops a process, as a signal does."""
        host = self.hosts[rank]
        before = host.positions[-1]
        host.stopped = self.now
        host.is_at(Position(before.frames, before.native, "T", "do_signal_stop", 0.0), self.now)

    def kill(self, rank: Rank) -> None:
        """Ends a process."""
        self.hosts[rank].dead = self.now

    def freeze(self, machine: str) -> None:
        """Nothing of a machine gets on any more."""
        self.devices.frozen.add(machine)
        for rank, host in self.hosts.items():
            if self.layout.machine(rank) == machine:
                host.stopped = self.now

    def last_step(self, time: float) -> float:
        """When the job as a whole last finished a step, before a time."""
        ends = [max(of.values()) for of in self.step_times.values() if len(of) == len(self.hosts)]
        return max((end for end in ends if end <= time), default=0.0)

    def _wake(self, host: Host, after: float = 0.001) -> None:
        self.clock.at(self.now + after, lambda: self._advance(host))

    def _advance(self, host: Host, sent: Work | None = None) -> None:
        if host.halted:
            return
        while True:
            try:
                step = host.program.send(sent)
            except StopIteration:
                return
            sent, busy = self._take(host, step)
            if busy is None:
                continue
            if busy != _WAITS:
                self._resume(host, sent, busy)
            return

    def _resume(self, host: Host, sent: Work | None, after: float) -> None:
        self.clock.at(self.now + after, lambda: self._advance(host, sent))

    def _take(self, host: Host, step: Step) -> tuple[Work | None, float | None]:
        """Does a step: the work that it gave to the device, and for how long the host is busy (None: not at all)."""
        match step:
            case steps.Run():
                host.is_at(step.at, self.now)
                return None, step.seconds * host.host_slower
            case steps.Kernel():
                return self._kernel(host, step)
            case steps.Collective() | steps.Exchange():
                return self._communicate(host, step), step.host_s * host.host_slower
            case steps.HostCollective():
                self._gather(host, step)
            case steps.Synchronise():
                return None, self._synchronise(host, step)
            case steps.Join():
                if step.work is not None:
                    host.joins.append(step.work)
                return None, None
            case steps.Await():
                if step.flag in self._flags:
                    return None, None
                host.is_at(step.at, self.now)
                self._waiting[step.flag].append(host)
            case steps.Mark():
                self.marks.append((self.now, host.rank, step.name))
                return None, None
            case steps.StepDone():
                self.step_times[step.step][host.rank] = self.now
                for due in self.on_step:
                    due(host.rank, step.step)
                return None, None
            case steps.Forever():
                host.is_at(step.at, self.now)
            case steps.Die():
                host.is_at(step.at, self.now)
                host.dead = self.now
        return None, _WAITS

    def _kernel(self, host: Host, step: steps.Kernel) -> tuple[Work | None, float]:
        if host.queued >= host.queue:
            at = step.at
            waits = Position(at.frames, "backward" if at.autograd else "launch", autograd=at.autograd, waits=True)
            host.is_at(waits, self.now)
            host.held_back = step
            return None, _WAITS
        host.is_at(step.at, self.now)
        work = Work(host, COMPUTE, step.seconds)
        host.queued += 1
        work.then.append(lambda: self._kernel_done(host))
        self.devices.enqueue(work)
        return work, step.host_s * host.host_slower

    def _kernel_done(self, host: Host) -> None:
        host.queued -= 1
        if host.held_back is not None and not host.halted:
            step, host.held_back = host.held_back, None
            work, busy = self._kernel(host, step)
            self._resume(host, work, busy)

    def _communicate(self, host: Host, step: steps.Collective | steps.Exchange) -> Work:
        group = self.layout.group(step.dim, host.rank)
        host.is_at(step.at, self.now)
        work = Work(host, f"communicator {group}", step.seconds, group, payload=step.payload)
        if isinstance(step, steps.Exchange):
            work.messages = tuple(self._messages(host, group, step))
            for message in work.messages:
                payload = replace(step.payload, name=self._called(host.rank, message))
                host.record(work, payload, step.at, self.now, message=True, on_host=False)
        else:
            host.record(work, step.payload, step.at, self.now, message=False, on_host=False)
        newest = host.newest.get(COMPUTE)
        self.devices.enqueue(work, [newest] if newest is not None else [])
        if isinstance(step, steps.Exchange) or not step.apart:
            host.joins.append(work)
        return work

    def _messages(self, host: Host, group: str, step: steps.Exchange) -> Sequence[Message]:
        found = []
        for peer, sends in [(peer, True) for peer in step.sends] + [(peer, False) for peer in step.receives]:
            sender, receiver = (host.rank, peer) if sends else (peer, host.rank)
            host.messages[group, sender, receiver, sends] += 1
            found.append((group, sender, receiver, host.messages[group, sender, receiver, sends]))
        return found

    def _called(self, rank: Rank, message: Message) -> str:
        """How a flight recorder calls a message: by the places of the two in their group."""
        group, sender, receiver, _ = message
        first, second = (self.layout.groups[group].index(one) for one in (sender, receiver))
        return f"nccl:send {first}->{second}" if rank == sender else f"nccl:recv {second}<-{first}"

    def _gather(self, host: Host, step: steps.HostCollective) -> None:
        group = self.layout.group(step.dim, host.rank)
        host.is_at(step.at, self.now)
        work = Work(host, "host", step.seconds, group, payload=step.payload, started=self.now)
        host.record(work, step.payload, step.at, self.now, message=False, on_host=True)
        members = self.layout.groups[group]
        gathered = self._gathered[group, work.number]
        gathered[host.rank] = work
        if (
            len(gathered) == len(members)
            and self.devices.agree(list(gathered.values()))
            and not self.devices.cut(members)
        ):
            for one in gathered.values():
                self.clock.at(self.now + step.seconds + self._rng.random() * _LEAVES_S, self._leaving(one))

    def _leaving(self, work: Work) -> Callable[[], None]:
        def leave() -> None:
            work.done = self.now
            self._advance(work.host)

        return leave

    def _synchronise(self, host: Host, step: steps.Synchronise) -> float | None:
        newest = host.newest.get(COMPUTE)
        of = [step.work] if step.work is not None else [*([newest] if newest is not None else []), *host.joins]
        pending = [one for one in of if one.done is None]
        if not pending:
            return None
        host.is_at(step.at, self.now)
        left = len(pending)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._wake(host, _WAKES_S)

        for one in pending:
            one.then.append(one_done)
        return _WAITS
