"""What happened around an incident, a line for each event, each with its zone; first what it cost."""

from collections.abc import Iterator

from hangdog.output.lines import Line
from hangdog.output.times import local_time
from hangdog_models.reading.printable import printable
from hangdog_models.views.timeline import WORDED, IncidentTimeline, impact

#: Characters of what happened.
SENTENCE = 240


def timeline_lines(line: IncidentTimeline, now: float) -> Iterator[Line]:
    """The lines, the earliest event first; `now` is Unix time."""
    if cost := impact(line, now):
        yield Line(cost)
    for one in line.events:
        kind = "" if one.kind in WORDED else f"{one.kind}: "
        yield Line(f"{local_time(one.at)}  {kind}{printable(one.text, SENTENCE)}", "- ")
