"""Reads the store barrier of start-up, which repeats its line until all have come: how many did, and who says so."""

import re
from dataclasses import dataclass, field

from hangdog_models.findings import Impact

_WAITING = re.compile(
    r"store[ -]based barrier .{0,200}?key: ?(\S{1,128}) \(world_size=(\d{1,9}), "
    r"(?:worker_count|num_workers_joined)=(\d{1,9}), "
)
#: Whose line it is: `for rank: 3`, `on rank: 3`, `on rank 3`.
_SPEAKER = re.compile(r"\brank:? (\d{1,7})\b")
_PASSED = re.compile(r"Completed store-based barrier for key: ?(\S{1,128}) ")
_CLIENTS = re.compile(r"waiting for (?:clients|workers)\. (\d{1,9})/(\d{1,9}) (?:clients|workers) joined")
#: What JAX's coordination service says of a barrier, with the tasks that did not come behind it or below it.
_TASKS = re.compile(r"[Tt]imed out task names:")
_TASK = re.compile(r"/job:\w{1,64}/replica:\d{1,7}/task:(\d{1,7})")
_MOST_TASKS = 4_096
#: A job has a barrier for each process group it makes.
_MOST = 64


@dataclass(slots=True)
class StoreBarrier:
    """Where a barrier stood when it was last told of; `came` are the ranks that say they wait in it, `lines` how often."""

    world: int
    arrived: int
    lines: int = 1
    came: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Arrivals:
    """What one log tells of start-up: barriers by their keys, the keys of those that were passed, and the store's clients.

    `tasks` are those that a barrier of JAX names as missing; `lists_tasks`: the next line may name another.
    """

    barriers: dict[str, StoreBarrier] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    clients: tuple[int, int] | None = None
    tasks: set[int] = field(default_factory=set)
    lists_tasks: bool = False

    @property
    def mentioned(self) -> bool:
        """Whether the log tells of start-up at all."""
        return bool(self.barriers or self.passed or self.clients)

    def take(self, line: str) -> None:
        """Notes a line of a barrier or of the store; a barrier that was passed is forgotten."""
        if found := _WAITING.search(line):
            key, world, arrived = found[1].rstrip(","), int(found[2]), int(found[3])
            known = self.barriers.get(key)
            if known is None and len(self.barriers) >= _MOST:
                return
            came = known.came if known else set()
            if speaker := _SPEAKER.search(line, 0, found.start(1)):
                came.add(int(speaker[1]))
            self.barriers[key] = StoreBarrier(world, arrived, known.lines + 1 if known else 1, came)
        elif found := _PASSED.search(line):
            key = found[1].rstrip(",")
            self.barriers.pop(key, None)
            if len(self.passed) < _MOST:
                self.passed.add(key)
        elif found := _CLIENTS.search(line):
            self.clients = int(found[1]), int(found[2])

    def take_tasks(self, line: str) -> None:
        """Notes the tasks that a barrier waited for in vain."""
        begins = _TASKS.search(line)
        self.lists_tasks = begins is not None or (self.lists_tasks and line.startswith("/job:"))
        if self.lists_tasks and len(self.tasks) < _MOST_TASKS:
            self.tasks.update(int(task[1]) for task in _TASK.finditer(line, begins.end() if begins else 0))


def meaning(barrier: StoreBarrier) -> tuple[str, Impact, str] | None:
    """Code, bearing and sentence for a barrier that was not passed; None where all have arrived."""
    if barrier.arrived > barrier.world:
        words = f"{barrier.arrived} workers came to the barrier of a job of {barrier.world}: a second job uses the same store"
        return "store barrier, too many", Impact.PROGRAM, words
    if barrier.arrived < barrier.world:
        late = barrier.world - barrier.arrived
        words = f"{late} of {barrier.world} ranks {'has' if late == 1 else 'have'} not come to the barrier at start-up"
        return "store barrier, ranks missing", Impact.VICTIM, words
    return None
