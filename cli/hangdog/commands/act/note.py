"""`hangdog note` writes a note on an incident."""

import uuid

import click

from hangdog.options import format_option, server_option
from hangdog.output.incident_lines import show
from hangdog_proto.client.incidents import Client


@click.command("note")
@click.argument("incident")
@click.argument("text")
@format_option
@server_option
def command(incident: str, text: str, form: str, server: str) -> None:
    """Write the note TEXT on INCIDENT, with your name and the time. `hangdog show` and its page show it."""
    with Client(server) as client:
        show(client.respond(incident, "note", text, key=uuid.uuid4().hex), form)
