"""What a server remembers of machines, as the command line is told it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """What one verdict said of a machine at `at` (Unix seconds): its `standing`, by a hypothesis `among` so many machines."""

    machine: str
    incident: str
    job: str
    at: float
    standing: str
    probability: float
    among: int
    verdict: str


@dataclass(frozen=True, slots=True)
class RecordLine:
    """What all verdicts said of a machine: incidents by its standing in them, `last` in Unix seconds.

    `weight` is the sum of its shares of probability.
    """

    machine: str
    convicted: int
    suspected: int
    cleared: int
    weight: float
    last: float
