"""`hangdog ack` takes an incident, so that others see who has it."""

import click

from hangdog.options import format_option, server_option
from hangdog.output.incident_lines import show
from hangdog_models.errors import WrongUse
from hangdog_proto.client.incidents import Client


@click.command("ack")
@click.argument("incident")
@click.option("--take-over", is_flag=True, help="Even if another person has it.")
@click.option("--give-back", is_flag=True, help="You no longer have it.")
@format_option
@server_option
def command(incident: str, take_over: bool, give_back: bool, form: str, server: str) -> None:
    """Take INCIDENT: "I have it". Others see who has it and since when, and are not notified again.

    If its verdict changes, they are.
    """
    if take_over and give_back:
        raise WrongUse(
            "--take-over and --give-back exclude each other", "give one of the two", code="conflicting-options"
        )
    with Client(server) as client:
        show(client.respond(incident, "take-over" if take_over else "give-back" if give_back else "ack"), form)
