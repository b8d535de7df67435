"""What one demo does, drawn from its seed, and what came of it."""

import os
import random
from dataclasses import dataclass

from hangdog.demo.faults import FAULTS, Fault
from hangdog.demo.shape import WORLD_SIZE, machine
from hangdog_models.verdict import Kind, Verdict

#: The fault strikes after one of these steps: the loss has fallen visibly, and nobody waits for long.
FIRST_STRIKE, LAST_STRIKE = 4, 8


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """Which fault strikes which rank after which step; the same seed makes the same plan."""

    seed: int
    fault: Fault
    rank: int
    after_step: int

    @property
    def machine(self) -> str:
        return machine(self.rank)

    @property
    def job(self) -> str:
        """The job's id: demos that run at the same time must not see each other's ranks."""
        return f"demo-{self.seed}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """What came of it. `onset_s` is how long the job went on after the fault, `verdict_s` what the answer took, in seconds."""

    plan: DemoPlan
    verdict: Verdict
    onset_s: float
    verdict_s: float

    @property
    def expected(self) -> tuple[str, ...]:
        """The machine a right verdict finds: none where another rank than the one that was struck may show it."""
        return (self.plan.machine,) if self.plan.fault.found_there else ()

    @property
    def named(self) -> tuple[str, ...]:
        """The machines the verdict names: those to evict, else those that hold the job up."""
        if self.verdict.evict.machines or not self.plan.fault.found_there or self.verdict.kind is Kind.UNDETERMINED:
            return self.verdict.evict.machines
        return self.verdict.culprit.machines if self.verdict.culprit else ()

    @property
    def right(self) -> bool:
        """Whether cause and machine are those of the fault, and nobody else would be evicted."""
        fault = self.plan.fault
        return self.verdict.kind in (fault.right, *fault.also) and self.named == self.expected


def draw_plan(seed: int, fault: str | None) -> DemoPlan:
    """The plan of a seed; a fault that is asked for by name changes nothing else in it."""
    chance = random.Random(seed)
    drawn = chance.choice(list(FAULTS))
    rank, after = chance.randrange(WORLD_SIZE), chance.randint(FIRST_STRIKE, LAST_STRIKE)
    return DemoPlan(seed, FAULTS[fault or drawn], rank, after)
