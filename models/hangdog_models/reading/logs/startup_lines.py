"""Reads how far start-up came: the store barrier, which repeats its line until all have come, and who signed up with Lightning."""

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
#: Lightning: each process says once who it is, and all of them when they are complete.
_MEMBER = re.compile(r"nitializing (?:ddp|distributed): GLOBAL_RANK: (\d{1,7}), MEMBER: \d{1,7}/(\d{1,7})(?!\d)")
_COMPLETE = re.compile(r"All (?:DDP|distributed) processes registered\b")
#: A job has a barrier for each process group it makes.
_MOST = 64
#: Ranks that are kept; the largest job of Lightning known has some thousands.
_MEMBERS = 1 << 16


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

    `members` are the ranks that signed up with Lightning, each with how often, `size` is how many it expects, and `complete`
    whether all have come.
    """

    barriers: dict[str, StoreBarrier] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    clients: tuple[int, int] | None = None
    members: dict[int, int] = field(default_factory=dict)
    size: int = 0
    complete: bool = False

    @property
    def mentioned(self) -> bool:
        """Whether the log tells of start-up at all."""
        return bool(self.barriers or self.passed or self.clients or self.members or self.complete)

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
        elif found := _MEMBER.search(line):
            rank, self.size = int(found[1]), int(found[2])
            if rank in self.members or len(self.members) < _MEMBERS:
                self.members[rank] = self.members.get(rank, 0) + 1
        elif _COMPLETE.search(line):
            self.complete = True


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
