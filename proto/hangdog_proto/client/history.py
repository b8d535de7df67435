"""What a server remembers of machines, as the command line is told it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """What one verdict said of a machine at `at` (Unix seconds): its `standing`, by a hypothesis `among` so many machines."""

    machine: str
    incident: str
    job: str
    at: float
    mention: str
    probability: float
    among: int
    verdict: str


@dataclass(frozen=True, slots=True)
class ActionLine:
    """A machine that a verdict would isolate, and how far that is; times in Unix seconds, `marked` while our mark stands."""

    incident: str
    machine: str
    job: str
    state: str
    at: float
    changed: float
    reason: str
    message: str
    who: str
    marked: bool


@dataclass(frozen=True, slots=True)
class Actions:
    """What is done to machines: how far the server goes by itself, by whom, and why its breaker is open (empty: closed)."""

    lines: tuple[ActionLine, ...]
    mode: str
    actors: tuple[str, ...]
    breaker: str


@dataclass(frozen=True, slots=True)
class MachineRecordLine:
    """What all verdicts said of a machine: incidents by its standing in them, `last` in Unix seconds.

    `weight` is the sum of its shares of probability.
    """

    machine: str
    convicted: int
    suspected: int
    cleared: int
    weight: float
    last: float
