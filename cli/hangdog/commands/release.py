"""`hangdog release` brings a machine back."""

import click

from hangdog.acts import show
from hangdog.options import format_option, server_option
from hangdog_proto.client import Client


@click.command("release")
@click.argument("machine")
@click.option("--because", default="", help="Why; kept with the act and in the record.")
@format_option
@server_option
def command(machine: str, because: str, form: str, server: str) -> None:
    """Bring MACHINE back: take away exactly the marks that hangdog made on it.

    What somebody else has marked meanwhile is left alone.
    """
    with Client(server) as client:
        show(client.act("release", machine=machine, because=because), form)
