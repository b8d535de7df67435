"""`hangdog actions` lists what was, is and would be done to machines."""

import click

from hangdog.list_options import list_options
from hangdog.options import format_option, server_option
from hangdog.output.action_lines import BY_HAND, show
from hangdog_models.errors import WrongUse
from hangdog_models.lists.list_kinds import ACTIONS
from hangdog_models.lists.list_query import ListQuery
from hangdog_proto.client.list_client import ListClient


@click.command("actions")
@click.argument("incident", default="")
@list_options(ACTIONS)
@click.option("--close-breaker", is_flag=True, help="Have machines be taken again after the breaker has opened.")
@click.option("--because", default="", help="Why; kept in the record.")
@format_option
@server_option
def command(incident: str, query: ListQuery, close_breaker: bool, because: str, form: str, server: str) -> None:
    """List what was, is and would be done to machines; of one INCIDENT, or of all, the newest first.

    Below the list stand the server's mode, who carries acts out, and why the breaker is open where it is. It opens when
    verdicts ask for too much at once, or acts keep failing; then nothing is done until somebody closes it.
    """
    if close_breaker and incident:
        raise WrongUse("the breaker does not belong to an incident", "hangdog actions --close-breaker")
    if incident and (query.narrowed or query.page > 1):
        raise WrongUse("the actions of one incident cannot be searched or paged", f"hangdog actions {incident}")
    with ListClient(server) as client:
        if close_breaker:
            client.act("close-breaker", reason=because)
        page = None
        if incident:
            actions = client.actions(incident, query.limit)
        else:
            actions, page = client.actions_page(query)
        left = form != "json" and any(one.state in BY_HAND for one in actions.lines)
        owners = {job.job: job.owner for machine in client.machines() for job in machine.jobs} if left else {}
        show(actions, form, page, owners)
