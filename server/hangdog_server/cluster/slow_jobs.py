"""Which jobs are slower than they used to be, as the agents of their machines say.

`now` is in seconds on a steady clock; nothing here waits or speaks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hangdog_models.planning.slowdown import Slowdown


@dataclass(slots=True)
class SlowJobs:
    """What each machine said last."""

    _reports: dict[str, tuple[float, Mapping[str, Slowdown]]] = field(default_factory=dict)

    def note(self, machine: str, slow: Mapping[str, Slowdown], now: float) -> None:
        """A machine said which of its jobs are slower; those that it does not name are not."""
        self._reports.pop(machine, None)
        if slow:
            self._reports[machine] = now, slow

    def forget(self, machine: str) -> None:
        """A machine's agent is gone: what it said last may be true no longer."""
        self._reports.pop(machine, None)

    def slow(self, now: float) -> dict[str, Slowdown]:
        """The jobs that are slower, each as the machine says that has seen it for longest: all ranks of a job step together."""
        found: dict[str, Slowdown] = {}
        for at, slow in self._reports.values():
            for job, stated in slow.items():
                one = replace(stated, seconds=stated.seconds + now - at)
                if job not in found or one.seconds > found[job].seconds:
                    found[job] = one
        return found
