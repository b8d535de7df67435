"""`hangdog release` brings a machine back."""

import click

from hangdog.options import format_option, server_option
from hangdog.output.action_lines import show
from hangdog_proto.client.incidents import Client


@click.command("release")
@click.argument("machine")
@click.option("--because", default="", help="Why; kept with the act and in the audit log.")
@format_option
@server_option
def command(machine: str, because: str, form: str, server: str) -> None:
    """Bring MACHINE back: remove hangdog's own marks from it.

    Marks that anybody else made stay.
    """
    with Client(server) as client:
        show(client.act("release", machine=machine, reason=because), form)
