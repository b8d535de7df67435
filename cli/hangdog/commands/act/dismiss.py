"""`hangdog dismiss` has the machines of an incident's verdict be left where they are."""

import click

from hangdog.options import format_option, server_option
from hangdog.output.action_lines import show
from hangdog_proto.client.incidents import Client


@click.command("dismiss")
@click.argument("incident")
@click.option("--because", required=True, help="Why; kept with the act and in the audit log.")
@format_option
@server_option
def command(incident: str, because: str, form: str, server: str) -> None:
    """Leave the machines of INCIDENT where they are: none is at fault. The incident is closed.

    Actions under way are undone, and convictions by its verdicts are taken back. Actions that are done stay: `hangdog
    release` brings a machine back. `hangdog reopen` opens the incident again.
    """
    with Client(server) as client:
        show(client.act("dismiss", incident=incident, reason=because), form)
