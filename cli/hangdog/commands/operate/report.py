"""`hangdog report` tells what operation was like: how soon hangs were found, of what kind they were, whom they point to."""

import json
import time
from pathlib import Path

import click

from hangdog.options import format_option, seconds, server_option
from hangdog.output.report_text import print_report
from hangdog.supervising.run_histories import read_histories
from hangdog_models.operations import run_histories
from hangdog_models.operations.report import OperationsReport
from hangdog_models.operations.report_json import to_json
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress


@click.command("report")
@click.option("--since", "within_s", callback=seconds, default="30d", show_default=True, help="How far back: 12h, 30d.")
@click.option(
    "--history",
    "histories",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Report on what `hangdog run --state` wrote instead, without a server; may be given several times.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write it as a page with plots.",
)
@format_option
@server_option
def command(within_s: float, histories: tuple[Path, ...], html: Path | None, form: str, server: ServerAddress) -> None:
    """Report on operation: times to detect, to judge and to mend, incidents by kind, machines, and whether evictions were right.

    Each figure comes with its definition and with how many cases it rests on. What nothing tells is unknown, and the
    report says why: a server sees through its agents that a job was restarted, the history of `hangdog run` also by whom.
    """
    report = _from_histories(histories, within_s) if histories else _from_server(server, within_s)
    if html is not None:
        from hangdog.output.html_file import write_text
        from hangdog_server.web.operations_page import operations_page

        write_text(html, operations_page(report))
    if form == "json":
        click.echo(json.dumps(to_json(report), indent=2))
    else:
        print_report(report)


def _from_server(server: ServerAddress, within_s: float) -> OperationsReport:
    with Client(server) as client:
        return client.report(within_s)


def _from_histories(files: tuple[Path, ...], within_s: float) -> OperationsReport:
    now = time.time()  # noqa: TID251  # a command is where the clock is read
    return run_histories.report(read_histories(files), max(0.0, now - within_s), now)
