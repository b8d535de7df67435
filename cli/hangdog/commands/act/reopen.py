"""`hangdog reopen` opens an incident again that people were done with."""

import click

from hangdog.options import format_option, server_option
from hangdog.output.incident_lines import show
from hangdog_proto.client.incidents import Client


@click.command("reopen")
@click.argument("incident")
@click.option("--because", required=True, help="Why it is not over; kept with the incident and in the audit log.")
@format_option
@server_option
def command(incident: str, because: str, form: str, server: str) -> None:
    """Open INCIDENT again, which was resolved or dismissed. What was taken back for that counts again.

    It reopens by itself if its job is still stalled ten minutes later, or a later capture evicts other machines.
    """
    with Client(server) as client:
        show(client.respond(incident, "reopen", because), form)
