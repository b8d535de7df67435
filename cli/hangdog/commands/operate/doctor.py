"""`hangdog doctor` says in one screen whether processes can be captured here, and what to change if not."""

import json
import sys
from dataclasses import asdict

import click
from rich.table import Table
from rich.text import Text

from hangdog.output.terminal import console_for, printable
from hangdog_agent.doctor.doctor import DoctorFinding, Health, examine, works

#: The word stands beside the colour, so nothing is lost without it.
STYLES = {Health.OK: "green", Health.WARN: "yellow", Health.FAIL: "bold red"}


@click.command("doctor")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def command(ctx: click.Context, form: str) -> None:
    """Say whether processes can be captured here, and what to change if not.

    Captures two small processes of its own and every training process it finds, as the user who runs it. Ends with 0
    when capture works, with 1 when it does not.
    """
    findings = examine()
    if form == "json":
        document = {"works": works(findings), "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(document, indent=2))
    else:
        _print(findings)
    ctx.exit(0 if works(findings) else 1)


def _print(findings: tuple[DoctorFinding, ...]) -> None:
    console = console_for(sys.stdout)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(Text(finding.health, STYLES[finding.health]), printable(finding.name), printable(finding.what))
        if finding.fix:
            table.add_row("", "", Text(f"-> {printable(finding.fix)}", "bold"))
    console.print(table)
    verdict = "capture works here" if works(findings) else "capture does not work here: change what -> says"
    console.print(Text(verdict, "bold green" if works(findings) else "bold red"))
