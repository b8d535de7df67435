"""One incident, from its first suspicion to its verdict, as the server remembers it and as people are told of it."""

from dataclasses import dataclass
from enum import StrEnum


class IncidentState(StrEnum):
    """How far an incident is; written before the step it names begins."""

    SUSPECTED = "suspected"
    CAPTURING = "capturing"
    RECORDED = "recorded"
    JUDGED = "judged"
    FAILED = "failed"


#: States that only a running server leads further; the next one takes them up.
UNFINISHED = (IncidentState.SUSPECTED, IncidentState.CAPTURING)
#: States without a verdict yet.
UNDER_WAY = (*UNFINISHED, IncidentState.RECORDED)
#: States that nothing leads further by itself: what retention may remove.
ENDED = (IncidentState.JUDGED, IncidentState.FAILED)


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident; times are Unix seconds, `kind` is its verdict's, `note` says why it failed.

    `verdict` is its verdict's JSON text: empty before there is one, and in lists. `pruned`: since when its captures are
    removed; 0: they are not. A server of another version may tell of a `state` that this one does not know.
    """

    id: str
    job: str
    began: float
    why: str = ""
    state: str = IncidentState.SUSPECTED
    changed: float = 0.0
    note: str = ""
    kind: str = ""
    confidence: float = 0.0
    evict: tuple[str, ...] = ()
    verdict: str = ""
    pruned: float = 0.0
