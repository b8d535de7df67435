"""`hangdog settle` keeps what an incident turned out to be."""

import json

import click

from hangdog.commands.oncall.incidents import as_json
from hangdog.options import format_option, server_option
from hangdog.output.terminal import printable
from hangdog_models.verdict import StallCause
from hangdog_proto.client.incidents import Client


@click.command("settle")
@click.argument("incident")
@click.argument("cause", type=click.Choice([str(cause) for cause in StallCause]))
@click.option("--machine", "machines", multiple=True, metavar="M", help="A guilty machine; may be given several times.")
@click.option("--because", default="", help="How you know; kept with the incident and in the record.")
@format_option
@server_option
def command(incident: str, cause: str, machines: tuple[str, ...], because: str, form: str, server: str) -> None:
    """Say that INCIDENT turned out to be CAUSE. The latest word counts; `unknown` takes it back.

    Later incidents of the same kind are judged with it, and `hangdog report` counts by it how often verdicts were right.
    Nothing is done to a machine. Machines are named for `machine`, `group` and `slow`; `healthy` means nothing was wrong.
    """
    with Client(server) as client:
        line = client.settle(incident, cause, machines, because)
    if form == "json":
        click.echo(json.dumps({"schema": "hangdog.incident/1", **as_json(line)}, indent=2))
    else:
        click.echo(printable(f"incident {line.id} is {line.settled or 'not settled'}"))
