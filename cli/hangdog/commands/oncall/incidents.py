"""`hangdog incidents` lists what the server remembers."""

import json
import sys

import click
from rich.table import Table

from hangdog.options import format_option, server_option
from hangdog.output.incident_lines import as_json
from hangdog.output.lines import add_row, table
from hangdog.output.terminal import console_for, printable
from hangdog.output.times import local_time
from hangdog_models.incident import Incident
from hangdog_models.views.answer_text import percent
from hangdog_proto.client.channel_options import ServerAddress
from hangdog_proto.client.incidents import Client


@click.command("incidents")
@click.option("--job", default="", help="Only those of this job.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@format_option
@server_option
def command(job: str, limit: int, form: str, server: ServerAddress) -> None:
    """List the incidents the server remembers, the newest first."""
    with Client(server) as client:
        incidents = client.incidents(job, limit)
    if form == "json":
        document = {"schema": "hangdog.incidents/1", "incidents": [as_json(incident) for incident in incidents]}
        click.echo(json.dumps(document, indent=2))
    elif incidents:
        console_for(sys.stdout).print(_table(incidents))
    else:
        click.echo(f"no incidents{f' of job {printable(job)}' if job else ''}")


def _responded(incident: Incident) -> str:
    """Who has it, or dismissed it; what it was resolved as stands in the note."""
    return "" if incident.settled is not None else str(incident.response)


def _table(incidents: tuple[Incident, ...]) -> Table:
    rows = table("incident", "began", "job", "state", "verdict", "evict", "note")
    for incident in incidents:
        verdict = f"{incident.kind} {percent(incident.confidence)}" if incident.kind else ""
        cells = (
            incident.id,
            local_time(incident.began),
            incident.job,
            "; ".join(filter(None, (incident.went_on or incident.state, _responded(incident)))),
            verdict,
            ", ".join(incident.evict),
            str(incident.settled or "") or incident.note or incident.why,
        )
        add_row(rows, *cells)
    return rows
