"""`hangdog actions` lists what was, is and would be done to machines."""

import click

from hangdog.options import format_option, server_option
from hangdog.output.action_lines import show
from hangdog_models.errors import WrongUse
from hangdog_proto.client.incidents import Client


@click.command("actions")
@click.argument("incident", default="")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many lines.")
@click.option("--close-breaker", is_flag=True, help="Have machines be taken again after the breaker has opened.")
@click.option("--because", default="", help="Why; kept in the record.")
@format_option
@server_option
def command(incident: str, limit: int, close_breaker: bool, because: str, form: str, server: str) -> None:
    """List what was, is and would be done to machines; of one INCIDENT, or of all, the newest first.

    Below the list stand the server's mode, who carries acts out, and why the breaker is open where it is. It opens when
    verdicts ask for too much at once, or acts keep failing; then nothing is done until somebody closes it.
    """
    if close_breaker and incident:
        raise WrongUse("the breaker is no incident's", "hangdog actions --close-breaker")
    with Client(server) as client:
        if close_breaker:
            client.act("close-breaker", reason=because)
        show(client.actions(incident, limit), form)
