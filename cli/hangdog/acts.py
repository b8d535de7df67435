"""What is done to machines, as people and scripts are shown it."""

import json
import sys

import click
from rich.table import Table

from hangdog.lines import add_row, table
from hangdog.moments import here, utc
from hangdog.terminal import console_for, printable
from hangdog_proto.past import ActionLine, Actions


def show(actions: Actions, form: str) -> None:
    """Prints acts, and how far the server goes by itself."""
    if form == "json":
        known = {"mode": actions.mode, "actors": list(actions.actors), "breaker": actions.breaker}
        click.echo(
            json.dumps(
                {"schema": "hangdog.actions/1", **known, "actions": [_told(one) for one in actions.lines]}, indent=2
            )
        )
        return
    if actions.lines:
        console_for(sys.stdout).print(_table(actions.lines))
    opened = f", the breaker is open: {printable(actions.breaker)}" if actions.breaker else ""
    click.echo(f"mode {printable(actions.mode)}, by {printable(', '.join(actions.actors))}{opened}")


def _told(line: ActionLine) -> dict[str, object]:
    return {
        "incident": line.incident,
        "machine": line.machine,
        "job": line.job,
        "state": line.state,
        "marked": line.marked,
        "at": utc(line.at),
        "changed": utc(line.changed),
        "who": line.who,
        "because": line.because,
        "words": line.words,
    }


def _table(lines: tuple[ActionLine, ...]) -> Table:
    rows = table("when", "incident", "machine", "job", "state", "who", "news")
    for line in lines:
        undecided = line.state in ("waiting", "dry-run")  # what is said of it then comes beside why it is listed
        news = "; ".join(filter(None, (line.because, line.words))) if undecided else line.words or line.because
        cells = (here(line.at), line.incident, line.machine, line.job, line.state, line.who, news)
        add_row(rows, *cells)
    return rows
