"""How long a step of each job takes, as the agents of its machines say.

`now` is in seconds on a steady clock; nothing here waits or speaks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hangdog_models.planning.slowdown import StepPace

#: The pace of a job counts no more once its last step lies so many steps back, and so many seconds at the least.
STEPS, LEAST_S = 3.0, 60.0


@dataclass(slots=True)
class StepPaces:
    """What each machine said last."""

    _reports: dict[str, tuple[float, Mapping[str, StepPace]]] = field(default_factory=dict)

    def note(self, machine: str, paces: Mapping[str, StepPace], now: float) -> None:
        """A machine said how the steps of its jobs go on."""
        self._reports[machine] = now, paces

    def forget(self, machine: str) -> None:
        """A machine's agent is gone: what it said last may be true no longer."""
        self._reports.pop(machine, None)

    def step_s(self, now: float) -> dict[str, float]:
        """The time of a step of each job that still makes some, as the middle one of its machines says."""
        found: dict[str, list[float]] = {}
        for at, paces in self._reports.values():
            for job, pace in paces.items():
                if pace.age_s + now - at <= max(LEAST_S, STEPS * pace.step_s):
                    found.setdefault(job, []).append(pace.step_s)
        return {job: sorted(times)[len(times) // 2] for job, times in found.items()}
