"""Runs all programs to quiescence: hosts ahead of their devices, collectives that complete when all members arrived.

Each operation gets its time by the largest of what it waits for, so the order in which ranks are visited does not
matter, and one run answers both what a hang leaves behind and where everybody stood at any instant before.
Sources: field.md sections 10.1, 10.2 and 12, real-stacks.md section 2 (launch queue, read-back, backward, gloo).
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import inf

from accuracy.simulator.process import NEVER, Item, Process, Work
from accuracy.simulator.program import Code, Mode, Op

#: Kernels a stream takes before a launch blocks: CUDA's queue holds 1,024 (real-stacks.md section 2, "launch queue full").
LAUNCH_LIMIT = 1024
#: Host time to launch one kernel, in seconds: 5 us, the field's rule of thumb for eager torch.
LAUNCH_S = 5e-6
#: Host time to launch a collective, in seconds.
ISSUE_S = 3e-5


class Engine:
    """All ranks. `gloo`: operations run on host threads; `blocking`: the host waits for each synchronous collective.

    `cuts(members, time)` says whether the network fails between these ranks at that time.
    """

    def __init__(
        self, processes: Sequence[Process], *, gloo: bool = False, blocking: bool = False,
        cuts: Callable[[tuple[int, ...], float], bool] | None = None,
    ) -> None:  # fmt: skip
        self.processes, self.gloo, self.blocking, self.cuts = processes, gloo, blocking, cuts
        self.steps = 0
        self._todo = deque(range(len(processes)))
        self._listed = bytearray(b"\x01") * len(processes)

    def run(self) -> None:
        """Goes on until nothing can advance: the job is finished, or it hangs."""
        todo, listed, processes = self._todo, self._listed, self.processes
        while todo:
            rank = todo.popleft()
            listed[rank] = 0
            self.advance(processes[rank])

    def advance(self, process: Process) -> bool:
        """Lets one rank go as far as it can; tells whether it went anywhere."""
        before = self.steps
        while True:
            seen = self.steps
            self._host(process)
            self._device(process)
            if self.steps == seen:
                return seen != before

    def _host(self, process: Process) -> None:
        ops, calls = process.ops, _CALLS
        while True:
            if process.clock > process.host_stop:
                process.why = "stopped"
                return
            op = ops[process.at]
            if op.code >= Code.STALL:
                process.why = "stall" if op.code is Code.STALL else "end"
                return
            if not calls[op.code](self, process, op):
                return
            process.times.append(process.clock)
            process.at += 1
            self.steps += 1

    def _local(self, process: Process, op: Op) -> bool:
        process.clock += op.seconds * process.pace
        return True

    def _room(self, process: Process, amount: int) -> bool:
        """Waits until the launch queue takes so many more."""
        need = process.launched + amount - LAUNCH_LIMIT
        if need > 0:
            counts = process.counts
            while process.tail < len(counts) and counts[process.tail] < need:
                process.tail += 1
            if process.tail >= len(process.kernels):
                process.why = "launch"
                return False
            process.clock = max(process.clock, process.kernels[process.tail])
        return True

    def _launch(self, process: Process, amount: int, seconds: float, item: Item | None) -> None:
        process.launched += amount
        process.counts.append(process.launched)
        process.queue.append((process.clock, seconds, item))

    def _kernel(self, process: Process, op: Op) -> bool:
        if self.gloo:  # the job computes on the CPU
            process.clock += op.seconds * process.speed
            process.why = "compute"
            return process.clock < NEVER
        if not self._room(process, op.amount):
            return False
        process.clock += op.amount * LAUNCH_S
        self._launch(process, op.amount, op.seconds * process.speed, None)
        return True

    def _number(self, process: Process, key: object) -> int:
        number = process.numbers.get(key, 0)
        process.numbers[key] = number + 1
        return number

    def _collective(self, process: Process, op: Op) -> bool:
        if process.pending is None:
            if not self.gloo and not self._room(process, 1):
                return False
            group = process.groups[op.slot]
            number = self._number(process, group.slot)
            agreed = (op.kind, op.size, op.dtype)
            work = group.works.get(number)
            if work is None:
                work = group.works[number] = Work(group.ranks, op.seconds, agreed)
            elif work.agreed != agreed:
                work.broken = True  # type, size or dtype differ: it never completes (real-stacks.md, ms-swift#10183)
            process.clock += ISSUE_S
            item = self._issue(process, op, (work,), number, group.slot)
            if op.mode is Mode.ASYNC:
                return True
            if op.mode is Mode.SYNC and not (self.gloo or self.blocking):
                self._launch(process, 1, 0.0, item)
                return True
            process.pending = item
            self.steps += 1
        return self._until(process, process.pending, "collective")

    def _p2p(self, process: Process, op: Op) -> bool:
        if not self.gloo and not self._room(process, 1):
            return False
        group = process.groups[op.slot]
        me, size = group.index[process.rank], len(group.ranks)
        works = []
        for offset, send, tag in op.peers:
            peer = group.ranks[(me + offset) % size]
            ends = (process.rank, peer) if send else (peer, process.rank)
            key = (op.slot, ends, tag)
            number = self._number(process, (key, send))
            work = group.works.get((key, number))
            if work is None:
                work = group.works[key, number] = Work(ends, op.seconds, None)
            works.append(work)
        process.clock += ISSUE_S
        # A batch runs as one kernel on the group's own communicator; single sends and receives have one for each pair.
        stream = op.slot if len(op.peers) > 1 or not op.peers[0][2] else f"{op.slot}:{op.peers[0]}"
        self._issue(process, op, tuple(works), self._number(process, (op.slot, "p2p")), stream)
        return True

    def _issue(self, process: Process, op: Op, works: tuple[Work, ...], number: int, stream: str) -> Item:
        item = Item(op, works, number, process.clock, 0 if self.gloo else len(process.queue))
        log = process.log.setdefault(process.groups[op.slot].slot, [])
        if self.gloo:  # host threads carry it at once, whatever was launched before
            stream = f"{stream}#{len(log)}"
        fifo = process.fifo.get(stream)
        if fifo is None:
            process.fifo[stream] = deque((item,))
        else:
            fifo.append(item)
        log.append(item)
        if op.handle:
            process.handles[op.handle] = item
        return item

    def _wait(self, process: Process, op: Op) -> bool:
        item = process.handles.get(op.handle)
        if item is None:  # left out, because the rank has no such group
            return True
        if self.gloo or self.blocking:
            return self._until(process, item, "collective")
        if not self._room(process, 1):
            return False
        self._launch(process, 1, 0.0, item)
        return True

    def _until(self, process: Process, item: Item, why: str) -> bool:
        done = item.done()
        if done is None or done > process.device_stop:
            process.why = why
            return False
        process.clock = max(process.clock, done)
        process.pending = None
        return True

    def _read(self, process: Process, op: Op) -> bool:
        if len(process.kernels) < len(process.queue):
            process.why = "device"
            return False
        if process.kernels:
            process.clock = max(process.clock, process.kernels[-1])
        return True

    def _sync(self, process: Process, op: Op) -> bool:
        if any(process.fifo.values()):
            process.why = "device"
            return False
        process.clock = max(process.clock, *process.free.values()) if process.free else process.clock
        return self._read(process, op)

    def _device(self, process: Process) -> None:
        kernels, queue, stop = process.kernels, process.queue, process.device_stop
        while True:
            seen = self.steps
            while len(kernels) < len(queue):
                launched, seconds, item = queue[len(kernels)]
                end = max(kernels[-1], launched) if kernels else launched
                if item is None:
                    end += seconds
                else:
                    done = item.done()
                    if done is None:
                        break
                    end = max(end, done)
                if end > stop:
                    break
                kernels.append(end)
                self.steps += 1
            for stream, fifo in process.fifo.items():
                while fifo and self._stream(process, stream, fifo[0]):
                    fifo.popleft()
                    self.steps += 1
            if self.steps == seen:
                return

    def _stream(self, process: Process, stream: str, item: Item) -> bool:
        """Begins the item at the head of a stream if the device has got there; True when it is over."""
        if item.start is None:
            gate = item.gate
            if gate > len(process.kernels):
                return False
            start = max(process.free.get(stream, 0.0), item.launched, process.kernels[gate - 1] if gate else 0.0)
            if start > process.device_stop:
                return False
            item.start = start
            self.steps += 1
            for work in item.works:
                self._arrive(work, start)
        done = item.done()
        if done is None or done > process.device_stop:
            return False
        process.free[stream] = done
        return True

    def _arrive(self, work: Work, start: float) -> None:
        work.ready = max(work.ready, start)
        work.left -= 1
        if work.left or work.broken:
            return
        done = work.ready + work.seconds
        if done == inf or (self.cuts is not None and self.cuts(work.members, done)):
            return
        work.done = done
        for rank in work.members:
            if not self._listed[rank]:
                self._listed[rank] = 1
                self._todo.append(rank)


#: What each code does, in the order of the codes. Not kept by the engine itself, which would then never be freed.
_CALLS = (
    Engine._local, Engine._kernel, Engine._collective, Engine._p2p, Engine._wait, Engine._read, Engine._sync,
)  # fmt: skip
