"""`hangdog approve` has the machines of an incident's verdict be isolated."""

import click

from hangdog.options import format_option, server_option
from hangdog.output.action_lines import show
from hangdog_proto.client.incidents import Client


@click.command("approve")
@click.argument("incident")
@click.option("--because", default="", help="Why; kept with the act and in the audit log.")
@format_option
@server_option
def command(incident: str, because: str, form: str, server: str) -> None:
    """Isolate the machines that the verdict of INCIDENT names, within the server's bounds.

    INCIDENT is its name, or a prefix that only it has. `hangdog actions` tells what came of it.
    """
    with Client(server) as client:
        show(client.act("approve", incident=incident, reason=because), form)
