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
@click.option("--because", default="", help="How you know; kept with the incident and in the audit log.")
@format_option
@server_option
def command(incident: str, cause: str, machines: tuple[str, ...], because: str, form: str, server: str) -> None:
    """Close INCIDENT with its CAUSE. `healthy` means that nothing was wrong, `unknown` that nobody found out.

    Name the guilty machines for `machine`, `group` and `slow`. Convictions of other machines are taken back. Nothing is
    done to a machine in use.

    Later incidents of the same kind are judged with the cause, and `hangdog report` counts with it how often verdicts were
    right.
    """
    with Client(server) as client:
        show(client.respond(incident, "resolve", because, cause, machines), form)
