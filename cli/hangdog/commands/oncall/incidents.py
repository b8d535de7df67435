"""`hangdog incidents` lists what the server remembers."""

import json
import sys

import click
from rich.table import Table

from hangdog.list_options import list_document, list_options, say_extent
from hangdog.options import format_option, server_option
from hangdog.output.incident_lines import as_json
from hangdog.output.lines import add_row, table
from hangdog.output.terminal import console_for, printable
from hangdog.output.times import local_time
from hangdog_models.incident import Incident
from hangdog_models.lists.list_kinds import INCIDENTS
from hangdog_models.lists.list_query import ListQuery
from hangdog_models.views.answer_text import percent
from hangdog_proto.client.list_client import ListClient
from hangdog_proto.client.server_address import ServerAddress


@click.command("incidents")
@list_options(INCIDENTS)
@format_option
@server_option
def command(query: ListQuery, form: str, server: ServerAddress) -> None:
    """List the incidents the server remembers, the newest first.

    A search also finds the machines that an incident names. `open`: nobody has taken or closed it, and its job was not seen
    to go on.

    \b
    hangdog incidents --state open --state acknowledged
    hangdog incidents --search gpu-a17 --job llama --page 2
    """
    with ListClient(server) as client:
        page = client.incidents_page(query)
    if form == "json":
        incidents = [as_json(incident) for incident in page.rows]
        document = {"schema": "hangdog.incidents/1", "incidents": incidents, "list": list_document(page)}
        click.echo(json.dumps(document, indent=2))
    elif page.rows:
        console_for(sys.stdout).print(_table(page.rows))
    elif not page.known or (query.job and not query.search and not query.states and not page.found):
        click.echo(f"no incidents{f' of job {printable(query.job)}' if query.job else ''}")
        return
    say_extent(page, form)


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
