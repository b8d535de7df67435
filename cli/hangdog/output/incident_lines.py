"""An incident as people and scripts are shown it: its line, what was done about it, and what it is like."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from hangdog.output.lines import Line, more, print_line
from hangdog.output.terminal import console_for
from hangdog.output.times import local_time, utc
from hangdog_models.incident import Incident, ResponseEntry
from hangdog_models.past_incidents import SimilarIncidents
from hangdog_models.reading.printable import printable

#: Characters of a foreign sentence.
SENTENCE = 240


def as_json(incident: Incident) -> dict[str, object]:
    """An incident as the JSON object of the list; `verdict` is the kind of its verdict, null before there is one.

    `looks`: how often the job was looked at within this one stall; `went_on_s` is null where it was not seen to go on.
    `settled` is what people said that it turned out to be, null where nobody did; `response` what they do about it.
    """
    settled, response = incident.settled, incident.response
    return {
        "id": incident.id,
        "job": incident.job,
        "began": utc(incident.began),
        "state": incident.state,
        "verdict": incident.kind or None,
        "confidence": round(incident.confidence, 3) if incident.kind else None,
        "evict": list(incident.evict),
        "why": incident.why,
        "note": incident.note,
        "looks": incident.looks,
        "went_on_s": round(incident.went_on_s, 1) or None,
        "settled": {**asdict(settled), "at": utc(settled.at)} if settled else None,
        "response": {
            "state": response.state,
            "who": response.who or None,
            "at": utc(response.at) if response.who else None,
            "reason": response.reason,
            "acknowledged_by": response.acknowledged_by or None,
            "acknowledged_at": utc(response.acknowledged_at) if response.acknowledged_by else None,
            "entries": response.entries,
        },
    }


def show(incident: Incident, form: str) -> None:
    """Prints the incident's line as JSON, or how people stand to it in a sentence."""
    if form == "json":
        click.echo(json.dumps({"schema": "hangdog.incident/1", **as_json(incident)}, indent=2))
        return
    words = str(incident.settled or incident.response) or "open, and nobody has it"
    print_line(Line(f"incident {incident.id}: {printable(words, SENTENCE)}"), console_for(sys.stdout))


def entries(done: Sequence[ResponseEntry]) -> Iterator[Line]:
    """What each did, the oldest first."""
    for one in done:
        yield Line(f"{local_time(one.at)}  {printable(str(one), SENTENCE)}", "- ")


def similar(found: SimilarIncidents) -> Iterator[Line]:
    """The earlier incidents of the kind, each with what it turned out to be."""
    for one in found.shown:
        of = f" of {printable(one.job, SENTENCE)}" if one.job else ""
        on = f" on {printable(one.machine, SENTENCE)}"
        yield Line(f"{local_time(one.began)}  {one.id}{of}{on}: {printable(one.came_to, SENTENCE)}", "- ")
    yield from more(found.count - len(found.shown), "incident")


def similar_json(found: SimilarIncidents) -> list[dict[str, object]]:
    """The same for programs."""
    return [
        {"incident": one.id, "job": one.job, "began": utc(one.began), "machine": one.machine, "came_to": one.came_to}
        for one in found.shown
    ]
