"""What happened around one incident, in order on one clock: from the last progress of its job to the moment it moves again."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from hangdog_models.counts import counted
from hangdog_models.incident import CRASHED_WHY, RUNS_ON, SLOWED_WHY, SUSPECTED_WHY, Incident, IncidentState
from hangdog_models.verdict import Kind
from hangdog_models.views.answer_text import percent

#: Verdicts by which the job did not stand still.
_MOVED = (str(Kind.NONE), str(Kind.SLOW))


class EventKind(StrEnum):
    """What sort of thing happened."""

    PROGRESS = "last progress"
    SUSPICION = "suspicion"
    LOOK = "look"
    VERDICT = "verdict"
    APPROVAL = "approval"
    ACT = "act"
    TEST = "test"
    MOVES = "moves again"
    RESPONSE = "response"
    SETTLED = "settled"


#: Sorts that the words of an event say already.
WORDED = (EventKind.LOOK, EventKind.ACT, EventKind.TEST, EventKind.RESPONSE, EventKind.SETTLED)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a moment, in Unix seconds."""

    at: float
    kind: EventKind
    text: str


@dataclass(frozen=True, slots=True)
class IncidentTimeline:
    """The events of one incident, the earliest first, and how long its job stood.

    `since`: from when its job was not seen to move; None: nobody saw that. `until`: when it was seen to move again; None: it
    was not. `ranks`: how many waited; 0: not known. Moments are Unix seconds.
    """

    events: tuple[Event, ...]
    since: float | None = None
    until: float | None = None
    ranks: int = 0

    @property
    def stands(self) -> bool:
        """Whether the job stands still, as far as is known."""
        return self.since is not None and self.until is None

    def stood_s(self, now: float) -> float | None:
        """For how long the job stood, or has stood so far; None where nobody saw since when."""
        return None if self.since is None else max(0.0, (now if self.until is None else self.until) - self.since)

    def gpu_hours(self, now: float) -> float | None:
        """What that cost: each rank is a GPU that waited, as the decision counts it."""
        stood_s = self.stood_s(now)
        return self.ranks * stood_s / 3600 if stood_s is not None and self.ranks else None


#: Where nobody says when anything was.
NOTHING = IncidentTimeline(())


def timeline(incident: Incident, since: float | None, ranks: int, more: Iterable[Event] = ()) -> IncidentTimeline:
    """What is known of an incident, with `more` that happened: acts, tests.

    `since`: from when its job was not seen to move, where somebody saw it.
    """
    if incident.kind in _MOVED or incident.why.startswith((*RUNS_ON, SLOWED_WHY, CRASHED_WHY)):
        since = None  # it moves, or is gone: no ranks wait
    until = since + incident.went_on_s if since is not None and incident.went_on_s else None
    moments = [*_of_incident(incident, since, until), *more]
    # what began is told before what it led to in the same moment
    order = {kind: place for place, kind in enumerate(EventKind)}
    events = tuple(sorted(moments, key=lambda one: (one.at, order[one.kind])))
    return IncidentTimeline(events, since, until, ranks)


def impact(line: IncidentTimeline, now: float) -> str:
    """How long the job stood and what that cost, in a sentence; empty where nobody saw since when."""
    stood_s, hours = line.stood_s(now), line.gpu_hours(now)
    if stood_s is None:
        return ""
    so_far = " so far" if line.stands else ""
    cost = f": {counted(line.ranks, 'rank')} waited, {hours:,.1f} GPU hours lost{so_far}" if hours is not None else ""
    return f"The job {'has stood' if line.stands else 'stood'} still for {span(stood_s)}{so_far}{cost}."


def span(seconds: float) -> str:
    """A span of time in its two largest units: `45 s`, `12 min 5 s`, `3 h 10 min`, `2 d 4 h`."""
    whole = max(0, round(seconds))
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}{f' {rest} {smaller}' if rest else ''}"
    return f"{whole} s"


def utc(moment: float) -> str:
    """A Unix time for people, to the second, with its zone."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _of_incident(incident: Incident, since: float | None, until: float | None) -> Iterator[Event]:
    """What the incident itself tells."""
    if since is not None:
        yield Event(since, EventKind.PROGRESS, "nothing of the job was seen to move since then")
    if incident.why.startswith(SUSPECTED_WHY):
        yield Event(incident.began, EventKind.SUSPICION, incident.why.removeprefix(SUSPECTED_WHY).strip())
    else:
        yield Event(incident.began, EventKind.LOOK, incident.why or "somebody asked for a look")
    for one in incident.earlier:
        came_to = f"{one.kind}, {percent(one.confidence)}" if one.kind else "no verdict"
        yield Event(one.at, EventKind.VERDICT if one.kind else EventKind.LOOK, f"look {one.look}: {came_to}")
    look = f"look {incident.looks}: " if incident.earlier else ""
    if incident.kind:
        sure = f", {percent(incident.confidence)} sure" if incident.kind != Kind.UNDETERMINED else ""
        yield Event(incident.changed, EventKind.VERDICT, f"{look}{incident.kind}{sure}")
    elif incident.state == IncidentState.FAILED:
        yield Event(incident.changed, EventKind.LOOK, f"{look}no verdict: {incident.note}")
    elif incident.state == IncidentState.CAPTURING:
        yield Event(incident.changed, EventKind.LOOK, f"{look}its machines are being looked at")
    if until is not None:
        yield Event(until, EventKind.MOVES, "the job moves again")
    if incident.settled is not None:
        yield Event(incident.settled.at, EventKind.SETTLED, str(incident.settled))
