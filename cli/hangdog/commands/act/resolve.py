"""`hangdog resolve` keeps what an incident turned out to be."""

import click

from hangdog.options import format_option, server_option
from hangdog.output.incident_lines import show
from hangdog_models.verdict import StallCause
from hangdog_proto.client.incidents import Client


@click.command("resolve")
@click.argument("incident")
@click.argument("cause", type=click.Choice([str(cause) for cause in StallCause]))
@click.option("--machine", "machines", multiple=True, metavar="M", help="A guilty machine; may be given several times.")
@click.option("--because", default="", help="How you know; kept with the incident and in the record.")
@format_option
@server_option
def command(incident: str, cause: str, machines: tuple[str, ...], because: str, form: str, server: str) -> None:
    """Close INCIDENT: say that it turned out to be CAUSE. `unknown` closes it where nobody found out.

    Later incidents of the same kind are judged with it, and `hangdog report` counts by it how often verdicts were right.
    What verdicts said against machines that were not at fault is taken back; nothing is done to a machine in use.
    Machines are named for `machine`, `group` and `slow`; `healthy` means nothing was wrong.
    """
    with Client(server) as client:
        show(client.respond(incident, "resolve", because, cause, machines), form)
