"""A job's throughput as it logs it: what it counts, and how much of it is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class WorkUnit(StrEnum):
    """What a log counts a job's throughput in. The first ones say most: a token is as much work however long its sample is."""

    TOKENS = "tokens/s"
    FLOPS = "TFLOP/s"
    MFU = "MFU"
    SAMPLES = "samples/s"


#: The rates that one line of a log tells, by their unit.
WorkRates = Mapping[WorkUnit, float]


@dataclass(slots=True)
class WorkDone:
    """How much work a job has done by the rates it logs, in `unit`: the integral of the rate, since it was first told.

    Its moments are of a monotonic clock. Where a better unit is told it begins again at 0.
    """

    unit: WorkUnit | None = None
    done: float = 0.0
    at: float = 0.0

    def take(self, rates: Sequence[WorkRates], at: float) -> bool:
        """Takes the rates of the lines that came since the last moment; whether any of them counts."""
        units = [unit for unit in WorkUnit if any(unit in line for line in rates)]
        if not units:
            return False
        if self.unit is None or _better(units[0], self.unit):
            self.unit, self.done, self.at = units[0], 0.0, at
            return True
        values = [line[self.unit] for line in rates if self.unit in line]
        if not values or at <= self.at:
            return False
        self.done += sum(values) / len(values) * (at - self.at)
        self.at = at
        return True


def _better(one: WorkUnit, other: WorkUnit) -> bool:
    units = list(WorkUnit)
    return units.index(one) < units.index(other)
