"""What is kept of an incident to recognise the next one like it: where its culprit was, and the outcome."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Outcome(StrEnum):
    """What is known about the culprit's machine, apart from the verdict."""

    OPEN = "open"
    CONVICTED = "convicted"  # tests found a fault in it, or people say that it was the machine
    CLEARED = "cleared"  # tests ran and found none, or people say that it was the code


@dataclass(frozen=True, slots=True)
class IncidentFeatures:
    """What incidents are compared by: one machine's ranks that held the job up, their activity and their call site.

    - `place`: the stack of the first of them, outermost frame first.
    - `waits`: where the other ranks were, as shares of all.
    - `evidence`: codes against the machine itself, such as `Xid 79`.
    """

    machine: str
    ranks: tuple[int, ...]
    activity: str
    place: tuple[str, ...]
    waits: tuple[tuple[str, float], ...]
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EarlierIncident:
    """An earlier incident, which began `ago_s` seconds before the one that is judged."""

    id: str
    ago_s: float
    features: IncidentFeatures
    outcome: Outcome = Outcome.OPEN


#: Incidents of one kind, by their call sites.
Family: TypeAlias = Sequence[EarlierIncident]


@dataclass(frozen=True, slots=True)
class SimilarIncident:
    """An earlier incident of one kind with another, as people are told of it: its machine, and what it turned out to be."""

    id: str
    job: str
    began: float
    machine: str
    came_to: str


@dataclass(frozen=True, slots=True)
class SimilarIncidents:
    """The earlier incidents of one kind with another, the newest first: how many, and those that are shown."""

    count: int = 0
    shown: tuple[SimilarIncident, ...] = ()


#: Of an incident of which none of its kind was seen before.
NOT_SEEN = SimilarIncidents()
