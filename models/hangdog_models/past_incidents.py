"""What is kept of an incident so that the next one like it is known again: where its culprit stood, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Outcome(StrEnum):
    """What is known of the culprit's machine, apart from what the verdict said of it."""

    OPEN = "open"
    CONVICTED = "convicted"  # tests found a fault in it, or people say that it was the machine
    CLEARED = "cleared"  # tests were run and found none, or people say that it was the code


@dataclass(frozen=True, slots=True)
class IncidentFeatures:
    """By what incidents are compared: one machine's ranks that held the job up, what they did and where.

    `place` is the stack of the first of them, outermost frame first. `waits` says what the others stood in, as parts of all.
    `evidence` names what speaks against the machine by itself, such as `Xid 79`.
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


#: Incidents of one kind, as far as their places tell.
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
