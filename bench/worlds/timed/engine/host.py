"""One rank of a simulated job: its host's program and history, and what its device has to do."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position
from worlds.timed.engine.steps import Kernel, Payload, Program
from worlds.timed.engine.work import Recorded, Work

#: The newest operations that are kept of a process: more than any recorder shows.
_KEPT = 600


@dataclass(eq=False, slots=True)
class Host:
    """A process. `slower` are the factors by which its host and its device are slow; `queue` is how far it runs ahead."""

    rank: Rank
    program: Program
    queue: int = 70
    host_slower: float = 1.0
    device_slower: float = 1.0
    positions: list[Position] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    stopped: float | None = None
    dead: float | None = None
    device_hangs: bool = False
    newest: dict[str, Work] = field(default_factory=dict)
    joins: list[Work] = field(default_factory=list)
    queued: int = 0
    held_back: Kernel | None = None
    numbers: Counter[str] = field(default_factory=Counter)
    message_numbers: Counter[str] = field(default_factory=Counter)
    messages: Counter[tuple[str, Rank, Rank, bool]] = field(default_factory=Counter)
    operations: int = 0
    records: list[Recorded] = field(default_factory=list)

    @property
    def halted(self) -> bool:
        return self.stopped is not None or self.dead is not None

    def is_at(self, position: Position, time: float) -> None:
        """The host gets somewhere."""
        self.positions.append(position)
        self.times.append(time)

    def seen(self, time: float) -> Position | None:
        """Where the host is at a time; None before it started."""
        if not self.positions:
            return None
        return self.positions[max(0, bisect_right(self.times, time) - 1)]

    def cpu_s(self, time: float) -> float:
        """CPU seconds until a time."""
        used = 0.0
        for at in range(bisect_right(self.times, time)):
            end = self.times[at + 1] if at + 1 < len(self.times) else time
            used += max(0.0, min(end, time) - self.times[at]) * self.positions[at].cpu
        return used

    def record(self, work: Work, payload: Payload, at: Position, now: float, *, message: bool, on_host: bool) -> None:
        """Enters an operation into the flight recorder; a collective gets the next number of its group."""
        self.operations += 1
        (self.message_numbers if message else self.numbers)[work.group] += 1
        number, message_number = self.numbers[work.group], self.message_numbers[work.group]
        work.number = number
        self.records.append(Recorded(work, payload, number, message_number, self.operations, now, at, on_host, message))
        if len(self.records) > _KEPT:
            del self.records[: _KEPT // 3]

    def count(self, group: str, time: float) -> int:
        """The number of the newest collective of a group that was given to the device by a time."""
        numbers = [
            one.number
            for one in self.records
            if one.work.group == group and not one.one_to_one and not one.on_host and one.created <= time
        ]
        return max(numbers, default=0)
