"""The part of an incident's page that says what happened when: a picture on one clock, and the same as a list."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from markupsafe import Markup

from hangdog_models.views.timeline import WORDED, Event, EventKind, IncidentTimeline, impact
from hangdog_server.web.render import part, since, utc

#: Marks closer to each other are one, in percent of the picture: a phone shows it 300 px wide, and a mark has 20.
APART = 7.0
#: What is left free at both ends of the picture, in percent: half a mark.
EDGE = 4.0
#: Seconds between two moments of the clock below the picture, of which the least is taken that gives no more than `TICKS`.
STEPS = (5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000)
TICKS = 4
#: Behind this place, in percent, the text of a moment would not fit on a phone.
LAST_TICK = 94.0
#: A picture of less than so many seconds would be of nothing.
LEAST_S = 10.0
#: Events of the list: the first ones and the latest.
EVENTS = 100
#: How a mark looks; its number and the list say the same.
TONES = {EventKind.PROGRESS: "good", EventKind.MOVES: "good", EventKind.VERDICT: "bad", EventKind.APPROVAL: "warn", EventKind.ACT: "warn"}  # fmt: skip


class TimelineMark(NamedTuple):
    """Events that lie at the same place, by their numbers in the list."""

    x: float
    label: str
    tone: str
    title: str


class Tick(NamedTuple):
    """A moment of the clock, as text."""

    x: float
    text: str


class Scale:
    """Where a moment lies in the picture, in percent of its width."""

    def __init__(self, first: float, last: float) -> None:
        self.first, self.last = first, max(last, first + LEAST_S)

    def at(self, moment: float) -> float:
        """Its place."""
        share = (moment - self.first) / (self.last - self.first)
        return round(EDGE + min(1.0, max(0.0, share)) * (100 - 2 * EDGE), 2)


def timeline_part(line: IncidentTimeline, now: float) -> Markup:
    """The part of the page at that moment, Unix seconds."""
    events = line.events if len(line.events) <= EVENTS else (*line.events[:10], *line.events[10 - EVENTS :])
    if not events:
        return Markup("")
    end = now if line.stands else events[-1].at
    scale = Scale(events[0].at, max(end, events[-1].at))
    stood = None
    if line.since is not None:
        left, right = scale.at(line.since), scale.at(now if line.until is None else line.until)
        stood = left, round(max(0.5, right - left), 2)
    return part(
        "timeline.html",
        line=line,
        events=events,
        left_out=len(line.events) - len(events),
        marks=list(_marks(events, scale)),
        ticks=list(_ticks(scale)),
        stood=stood,
        edge=EDGE,
        grows=f"{scale.first:.0f} {scale.last:.0f}" if line.stands else "",
        worded=WORDED,
        impact=impact(line, now),
        stands=since(line.since, now) if line.since is not None else "",
        hours=line.gpu_hours(now),
        day=utc(events[0].at)[:10],
        clock=_clock,
        utc=utc,
        iso=lambda moment: datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds"),
    )


def _marks(events: Sequence[Event], scale: Scale) -> Iterator[TimelineMark]:
    """Each event, or several that lie too close to each other; the gravest sort among them gives the tone."""
    start = 0
    for end in range(1, len(events) + 1):
        if end < len(events) and scale.at(events[end].at) - scale.at(events[start].at) < APART:
            continue
        here = events[start:end]
        tones = {TONES.get(one.kind, "") for one in here}
        tone = next((each for each in ("bad", "warn", "good") if each in tones), "")
        label = str(start + 1) if len(here) == 1 else f"{start + 1}-{end}"
        kinds = ", ".join(dict.fromkeys(str(one.kind) for one in here))
        yield TimelineMark(scale.at(here[0].at), label, tone, f"{_clock(here[0].at)} UTC: {kinds}")
        start = end


def _ticks(scale: Scale) -> Iterator[Tick]:
    """Round moments; with the day where they are days apart, with seconds where less than minutes."""
    span = scale.last - scale.first
    step = next((each for each in STEPS if span / each <= TICKS), STEPS[-1])
    form = "%m-%d %H:%M" if span > 86400 else "%H:%M" if step >= 60 else "%H:%M:%S"
    moment = (scale.first // step + 1) * step
    while moment <= scale.last and scale.at(moment) < LAST_TICK:
        yield Tick(scale.at(moment), datetime.fromtimestamp(moment, UTC).strftime(form))
        moment += step


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S")
