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
@click.option("--because", default="", help="Why; kept in the audit log.")
@format_option
@server_option
def command(incident: str, query: ListQuery, close_breaker: bool, because: str, form: str, server: str) -> None:
    """List actions on machines, the newest first: done, under way, waiting and refused. INCIDENT: only its actions.

    Below the list you see the server's mode, what carries actions out, and whether the breaker is open. The breaker opens if
    verdicts ask for too many machines at once, or if actions keep failing. Then hangdog acts on nothing until you close it.
    """
    if close_breaker and incident:
        raise WrongUse(
            "the breaker does not belong to an incident", "hangdog actions --close-breaker", code="conflicting-options"
        )
    if incident and (query.narrowed or query.page > 1):
        raise WrongUse(
            "the actions of one incident cannot be searched or paged",
            f"hangdog actions {incident}",
            code="conflicting-options",
        )
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
