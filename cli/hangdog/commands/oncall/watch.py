"""`hangdog watch` follows incidents as they come and change, or one until its verdict."""

import json
import sys
import time
from collections.abc import Callable, Generator, Iterable

import click

from hangdog.options import format_option, seconds, server_option
from hangdog.output.incident_lines import as_json
from hangdog.output.terminal import console_for
from hangdog.output.times import local_time
from hangdog.output.verdict_text import print_verdict
from hangdog.retry import RetryPolicy
from hangdog_models.errors import ServerUnreachable
from hangdog_models.incident import UNDER_WAY, Incident
from hangdog_models.reading.printable import printable
from hangdog_models.verdict import to_json
from hangdog_models.views.answer_text import percent
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress

#: Incidents that are looked at each time: more do not change between two looks.
LATEST = 100
#: Characters of a name, and of a foreign sentence.
NAMED, SENTENCE = 80, 240
#: What changes of an incident.
ChangeKey = tuple[str, str, float, str, float]


@click.command("watch")
@click.argument("incident", metavar="[ID]", default="")
@click.option("--job", default="", help="Only incidents of this job.")
@click.option(
    "--every", default="2s", show_default=True, metavar="DURATION", callback=seconds, help="Ask the server so often."
)
@format_option
@server_option
@click.pass_context
def command(ctx: click.Context, incident: str, job: str, every: float, form: str, server: ServerAddress) -> None:
    """Follow the incident ID (its beginning is enough) until its verdict; without ID all incidents, until Ctrl-C.

    It prints a line for each incident that begins or changes. If the server goes away it asks again, with ID for five
    minutes at most.

    Exit status with ID: 0 nothing was stuck, 1 a cause is named, 2 undetermined or failed.

    \b
    hangdog watch
    hangdog watch --job llama-70b --every 10s
    hangdog watch 3fa9 && echo 'nothing was stuck'
    """
    with Client(server) as client:
        if incident:
            ctx.exit(_until_verdict(client, incident, form, every))
        for line in changes(lambda: client.incidents(job, LATEST), every):
            _print(line, form)


def changes(
    ask: Callable[[], Iterable[Incident]],
    every: float,
    wait: Callable[[float], None] = time.sleep,
) -> Generator[Incident, None, None]:
    """The incidents that are open then each that begins or changes, oldest first; never ends by itself.

    Raises what the first request raises; later, while no server answers, it says so once on stderr and goes on.
    """
    lines = tuple(ask())
    yield from (line for line in reversed(lines) if line.state in UNDER_WAY)
    disconnected = False
    while True:
        known = {line.id: _change_key(line) for line in lines}
        wait(every)
        try:
            lines = tuple(ask())
        except ServerUnreachable as error:
            if not disconnected:
                click.echo(f"{printable(str(error), SENTENCE)}; asking again", err=True)
            disconnected = True
            continue
        if disconnected:
            click.echo("the server answers again", err=True)
            disconnected = False
        yield from (line for line in reversed(lines) if known.get(line.id) != _change_key(line))


def _until_verdict(client: Client, name: str, form: str, every: float) -> int:
    """Follows one incident to its end and prints its verdict; the exit status."""
    whole = client.incident(name)[0].id  # its beginning may come to mean several while it is followed
    retry = RetryPolicy(f"incident {whole}", f"hangdog watch {whole}", interval_s=every)
    shown: ChangeKey | None = None
    while True:
        try:
            line, verdict = client.incident(whole)
        except ServerUnreachable as error:
            retry.lost(error)
            continue
        retry.answered()
        if line.state in UNDER_WAY:
            if shown != _change_key(line):
                _print(line, form, err=form != "json")
            shown = _change_key(line)
            retry.wait(every)
            continue
        if verdict is None:
            _print(line, form)
            return 2
        if form == "json":
            click.echo(json.dumps(to_json(verdict)))
        else:
            click.echo(_line_text(line))
            click.echo()
            print_verdict(verdict, console_for(sys.stdout))
        return verdict.exit_code


def _change_key(line: Incident) -> ChangeKey:
    return line.state, line.kind, line.confidence, line.note, line.went_on_s


def _print(line: Incident, form: str, err: bool = False) -> None:
    text = json.dumps({"schema": "hangdog.incident/1", **as_json(line)}) if form == "json" else _line_text(line)
    click.echo(text, err=err)
    sys.stdout.flush()


def _line_text(line: Incident) -> str:
    """`2026-11-22 03:04:05  3fa9…  llama-70b: judged, machine 97%, evict node-64`."""
    verdict = f", {line.kind} {percent(line.confidence)}" if line.kind else ""
    evict = f", evict {printable(', '.join(line.evict), NAMED)}" if line.evict else ""
    went_on = f", {line.went_on}" if line.went_on else ""
    why = printable(line.note or ("" if line.kind else line.why), SENTENCE)
    reason = f": {why}" if why else ""
    return f"{local_time(line.began)}  {line.id}  {printable(line.job, NAMED)}: {line.state}{verdict}{evict}{went_on}{reason}"
