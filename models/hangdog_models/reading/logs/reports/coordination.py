"""Reads what JAX's coordination service says of its tasks: who did not come to a barrier, and whose heartbeat it lost.

A task is a process of the job, and its number the rank. The service lists at most some tens of those that are missing.
"""

import re
from dataclasses import dataclass, field

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import MAX_RANK, Rank, format_ranks

CODE = "JAX coordination"
_OPENS = ("imed out task names:", "stopped sending heartbeats")
_TASK = re.compile(r"\s{0,8}/job:\w{1,64}/replica:\d{1,7}/task:(\d{1,7})\s{0,8}$")
_LISTED = re.compile(r"\\n ?/job:\w{1,64}/replica:\d{1,7}/task:(\d{1,7})(?!\d)")
_REACHED = re.compile(r"tasks that reached the barrier: (\d{1,7})/(\d{1,7})")
_LOST = re.compile(r"/task:(\d{1,7}) heartbeat timeout")
#: Lines without a task after which a list is over.
_PATIENCE = 2


@dataclass(slots=True)
class MissingTasks:
    """Tasks of the first list that a log holds: `late` at a barrier or `lost`. `lines` are still looked at for tasks."""

    late: set[Rank] = field(default_factory=set)
    lost: set[Rank] = field(default_factory=set)
    reached: tuple[int, int] | None = None
    lines: int = 0
    listing: set[Rank] | None = None

    def take(self, line: str) -> bool:
        """Notes a line; true if nothing else is to be read in it."""
        if "reached the barrier" in line and self.reached is None and (found := _REACHED.search(line)):
            self.reached = int(found[1]), int(found[2])
        if "heartbeat timeout" in line and (found := _LOST.search(line)) and int(found[1]) <= MAX_RANK:
            self.lost.add(Rank(int(found[1])))
            return True
        if any(words in line for words in _OPENS):
            known = self.lost if _OPENS[1] in line else self.late
            self.listing, self.lines = (None, 0) if known else (known, _PATIENCE)
            if self.listing is not None:  # the list may follow in the same line
                tasks = (int(task[1]) for task in _LISTED.finditer(line))
                self.listing.update(Rank(task) for task in tasks if task <= MAX_RANK)
            return False
        if not self.lines or self.listing is None:
            return False
        self.lines -= 1
        if (task := _TASK.match(line)) and int(task[1]) <= MAX_RANK:
            self.listing.add(Rank(int(task[1])))
            self.lines = _PATIENCE
            return True
        return False

    def findings(self, source: str) -> list[Finding]:
        """The tasks that are missing by name, those that the service lost first. A cut list names nobody as the odd ones."""
        found = []
        if self.lost:
            what = f"the coordination service lost task{_many(self.lost)}: no heartbeat came"
            found.append(Finding(source, CODE, Impact.VICTIM, what, ranks=tuple(sorted(self.lost))))
        if self.late:
            whole = self.reached is None or len(self.late) == self.reached[1] - self.reached[0]
            what = f"task{_many(self.late)} did not come to a barrier in time"
            found.append(Finding(source, CODE, Impact.VICTIM, what, ranks=tuple(sorted(self.late)) if whole else ()))
        return found


def _many(tasks: set[Rank]) -> str:
    return f"{'' if len(tasks) == 1 else 's'} {format_ranks(tasks)}"
