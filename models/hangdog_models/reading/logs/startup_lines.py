"""Reads two reports that span lines or repeat: the store barrier of start-up, and torchrun's list of failures."""

import re
from dataclasses import dataclass

from hangdog_models.findings import Impact
from hangdog_models.reading.json_document import int_of

_WAITING = re.compile(
    r"store[ -]based barrier .{0,200}?key: ?(\S{1,128}) \(world_size=(\d{1,9}), "
    r"(?:worker_count|num_workers_joined)=(\d{1,9}), "
)
_PASSED = re.compile(r"Completed store-based barrier for key: ?(\S{1,128}) ")
_FIRST = re.compile(r"Root Cause \(first observed failure\)")
_FIELD = re.compile(r"\s{1,32}(host|rank|exitcode)\s{0,32}: (\S{1,255})")
#: Lines of one entry of torchrun's list.
_ENTRY = 12


@dataclass(slots=True)
class StoreBarrier:
    """Where one process stood at the barrier last; `said` counts how often."""

    world: int
    arrived: int
    lines: int = 1


def take_barrier(barriers: dict[str, StoreBarrier], line: str) -> None:
    """Notes a line of the barrier; a barrier that was passed is forgotten."""
    if found := _WAITING.search(line):
        key, world, arrived = found[1].rstrip(","), int(found[2]), int(found[3])
        stated = barriers[key].lines if key in barriers else 0
        if stated or len(barriers) < 64:  # a job has a barrier for each process group it makes
            barriers[key] = StoreBarrier(world, arrived, stated + 1)
    elif found := _PASSED.search(line):
        barriers.pop(found[1].rstrip(","), None)


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


@dataclass(slots=True)
class FirstFailure:
    """The entry of torchrun's list that stands under `Root Cause`: the process whose end the launcher saw first."""

    lines: int = 0
    host: str = ""
    rank: int | None = None
    exitcode: str = ""

    def take(self, line: str) -> bool:
        """Notes a line; true when the entry is complete."""
        if "Root Cause" in line and _FIRST.search(line):
            self.lines, self.host, self.rank, self.exitcode = _ENTRY, "", None, ""
        elif self.lines:
            self.lines -= 1
            if found := _FIELD.match(line):
                key, value = found.groups()
                if key == "host":
                    self.host = value
                elif key == "rank":
                    self.rank = int_of(value)
                else:
                    self.exitcode = value
                    self.lines = 0
                    return True
        return False
