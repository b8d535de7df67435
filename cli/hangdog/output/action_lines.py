"""What is done to machines, as people and scripts are shown it."""

import json
import sys
from collections.abc import Mapping

import click
from rich.table import Table

from hangdog.list_options import list_document, say_extent
from hangdog.output.lines import add_row, table
from hangdog.output.terminal import console_for, printable
from hangdog.output.times import local_time, utc
from hangdog_models.actions.by_hand import isolating
from hangdog_models.lists.list_page import ListPage
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_proto.client.incidents import ActionLine, Actions

#: The state of an act that a person has to approve or to dismiss.
WAITING = "waiting"
#: States in which nothing was done yet.
UNDECIDED = WAITING, "dry-run"
#: States in which hangdog leaves it to people, and acts of which the command is shown.
BY_HAND, COMMANDS = ("dry-run", "refused", "failed"), 8


def show(
    actions: Actions, form: str, page: ListPage[None] | None = None, owners: Mapping[str, Owner] | None = None
) -> None:
    """Prints acts, and how far the server goes by itself.

    `page` says how many of how many, where they are a page of all. `owners`: whose each job is, for commands of its scheduler.
    """
    if form == "json":
        known = {"mode": actions.mode, "actors": list(actions.actors), "breaker": actions.breaker}
        extent = {"list": list_document(page)} if page is not None else {}
        lines = [_as_json(one) for one in actions.lines]
        click.echo(json.dumps({"schema": "hangdog.actions/1", **known, "actions": lines, **extent}, indent=2))
        if page is not None:
            say_extent(page, form)
        return
    if actions.lines:
        console_for(sys.stdout).print(_table(actions.lines))
    if page is not None and page.known:
        say_extent(page)
    opened = f", the breaker is open: {printable(actions.breaker)}" if actions.breaker else ""
    for incident in dict.fromkeys(one.incident for one in actions.lines if one.state == WAITING):
        name = printable(incident)
        click.echo(f"hangdog approve {name}    # take it out of use")
        click.echo(f"hangdog dismiss {name} --because '...'    # or leave it where it is")
    by_hand = [one for one in actions.lines if one.state in BY_HAND]
    for line in by_hand[:COMMANDS]:
        owner = (owners or {}).get(line.job, UNKNOWN)
        for typed in isolating(line.machine, line.incident, actions.actors, owner):
            click.echo(f"{typed}{'    # by hand' if '#' not in typed else ', by hand'}")
    click.echo(f"mode {printable(actions.mode)}, by {printable(', '.join(actions.actors))}{opened}")


def change_text(line: ActionLine) -> str:
    """What is new of an act, for those who see beside it of which incident it is."""
    why = line.reason.removesuffix(f", hangdog show {line.incident}")
    if line.state in UNDECIDED:  # what is said of it then comes beside why it is listed
        return "; ".join(filter(None, (why, line.message)))
    return line.message or why


def _as_json(line: ActionLine) -> dict[str, object]:
    return {
        "incident": line.incident,
        "machine": line.machine,
        "job": line.job,
        "state": line.state,
        "marked": line.marked,
        "at": utc(line.at),
        "changed": utc(line.changed),
        "who": line.who,
        "reason": line.reason,
        "message": line.message,
    }


def _table(lines: tuple[ActionLine, ...]) -> Table:
    rows = table("when", "incident", "machine", "job", "state", "who", "news")
    for line in lines:
        cells = (local_time(line.at), line.incident, line.machine, line.job, line.state, line.who, change_text(line))
        add_row(rows, *cells)
    return rows
