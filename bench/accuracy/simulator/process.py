"""One rank of a running job, its part in every operation, and the operations themselves."""

from array import array
from collections import deque
from collections.abc import Mapping, Sequence

from accuracy.simulator.groups import Group
from accuracy.simulator.program import Op

#: Later than anything that happens; a kernel that ends at infinity has not ended by then.
NEVER = 1e18


class Work:
    """One operation of several ranks. `done` is its end in seconds; None while it has none."""

    __slots__ = ("agreed", "broken", "done", "left", "members", "ready", "seconds")

    def __init__(self, members: tuple[int, ...], seconds: float, agreed: object) -> None:
        self.members, self.left, self.seconds = members, len(members), seconds
        self.agreed, self.broken, self.ready = agreed, False, 0.0
        self.done: float | None = None


class Item:
    """One rank's part in a work (or in the works of one batch): when it was launched and when the device began it."""

    __slots__ = ("gate", "launched", "number", "op", "start", "works")

    def __init__(self, op: Op, works: tuple[Work, ...], number: int, launched: float, gate: int) -> None:
        self.op, self.works, self.number, self.launched, self.gate = op, works, number, launched, gate
        self.start: float | None = None

    def done(self) -> float | None:
        works = self.works
        if len(works) == 1:
            return works[0].done
        end = 0.0
        for work in works:
            if work.done is None:
                return None
            end = max(end, work.done)
        return end


class Process:
    """One rank: its host at `at` in its program, and its device."""

    __slots__ = (
        "at", "clock", "counts", "device_stop", "fifo", "free", "groups", "handles", "host_stop", "kernels", "launched",
        "log", "numbers", "ops", "pace", "pending", "queue", "rank", "speed", "tail", "times", "usual", "why",
    )  # fmt: skip

    def __init__(self, rank: int, ops: Sequence[Op], groups: Mapping[str, Group]) -> None:
        self.rank, self.ops, self.groups = rank, ops, groups
        self.usual = ops  # as in the steps before, whatever a fault makes of `ops`
        self.at, self.clock, self.why = 0, 0.0, ""
        self.queue: list[tuple[float, float, Item | None]] = []  # the computing stream: launched, seconds, waits for
        self.kernels: list[float] = []  # when each of them ended
        self.counts: list[int] = []  # kernels launched up to each of them
        self.launched = self.tail = 0
        self.fifo: dict[str, deque[Item]] = {}
        self.free: dict[str, float] = {}
        self.log: dict[str, list[Item]] = {}  # by the slot of the group, which may serve as two
        self.numbers: dict[object, int] = {}
        self.handles: dict[str, Item] = {}
        self.pending: Item | None = None
        self.times = array("d")  # when the host was done with each operation
        self.host_stop = self.device_stop = NEVER
        self.pace = 1.0  # the host's time for work of its own is multiplied by it
        self.speed = 1.0  # the device's time for a kernel is multiplied by it: a degrader has more than 1
