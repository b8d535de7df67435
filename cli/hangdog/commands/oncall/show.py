"""`hangdog show ID` shows one incident."""

import json
import sys
import time

import click

from hangdog.options import format_option, server_option
from hangdog.output.incident_lines import as_json, entries, similar
from hangdog.output.lines import Line, print_line, print_sections
from hangdog.output.terminal import console_for, printable
from hangdog.output.timeline_lines import timeline_lines
from hangdog.output.times import local_time
from hangdog.output.verdict_text import print_verdict
from hangdog_models.actions.by_hand import collects, command_to_collect, stands
from hangdog_models.incident import Incident, ResponseKind
from hangdog_models.verdict import to_json
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress

#: Exit status for an incident without a verdict: as little is decided as by `undetermined`.
UNDECIDED = 2


@click.command("show")
@click.argument("incident", metavar="ID")
@format_option
@server_option
@click.pass_context
def command(ctx: click.Context, incident: str, form: str, server: ServerAddress) -> None:
    """Show the incident ID (its beginning is enough) and its verdict.

    As JSON it is the verdict itself, or the incident's line of the list while there is none. Exit status: 0 nothing was
    stuck, 1 a cause is named, 2 undetermined or without a verdict.
    """
    with Client(server) as client:
        record = client.record(incident)
    line, verdict = record.line, record.verdict
    if form == "json":
        document = to_json(verdict) if verdict else {"schema": "hangdog.incident/1", **as_json(line)}
        click.echo(json.dumps(document, indent=2))
    else:
        console = console_for(sys.stdout)
        print_line(Line(printable(_heading(line))), console)
        now = time.time()  # noqa: TID251  # a command is where the clock is read
        if words := str(line.settled or line.response):
            print_line(Line(printable(words)), console)
        sections = (
            ("what happened when", timeline_lines(record.timeline, now)),
            ("notes", entries([one for one in record.entries if one.what == ResponseKind.NOTED])),
            ("seen before", similar(record.similar)),
        )
        print_sections(sections, console)
        if verdict is not None:
            click.echo()
            print_verdict(verdict, console)
            if collects(verdict) and stands(line):
                print_sections((("to collect that", (Line(command_to_collect(line.job)),)),), console)
    ctx.exit(verdict.exit_code if verdict else UNDECIDED)


def _heading(line: Incident) -> str:
    reason = "; ".join(text for text in (line.why, line.note) if text)
    state = ", ".join(text for text in (line.state, line.went_on) if text)
    whose = f"of job {line.job}" if line.job else "of no job"
    return f"incident {line.id} {whose}, {local_time(line.began)}: {state}{f' ({reason})' if reason else ''}"
