"""`hangdog triage PATH...`: reads evidence bundles of one job and prints the verdict."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from hangdog.decision_options import decision_options
from hangdog.evidence.open_bundle import Progress as Update
from hangdog.offline import open_case
from hangdog.options import optional_seconds
from hangdog.output.explanation import print_explanation
from hangdog.output.lines import Line, print_sections
from hangdog.output.terminal import console_for
from hangdog.output.verdict_text import print_verdict
from hangdog_models.actions.by_hand import collects, command_to_capture
from hangdog_models.diagnosis.clustering.catalogue import MODELS
from hangdog_models.diagnosis.findings import logged_ends
from hangdog_models.diagnosis.options import DEFAULTS, Options
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.conclude import conclude
from hangdog_models.errors import HangdogError
from hangdog_models.verdict import Verdict, to_json

#: Fewer files than this are read before anybody could look at a bar.
_MANY = 500


@click.command("triage")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="For people, or the JSON object."
)
@decision_options
@click.option(
    "--spares", type=click.IntRange(0), metavar="N", help="Machines that stand by for the job.  [default: not known]"
)
@click.option(
    "--stalled",
    metavar="TIME",
    callback=optional_seconds,
    help="For how long nothing has moved, as 90s, 30m or 2h; counts before stalled_s in job.toml.",
)
@click.option(
    "--clustering",
    type=click.Choice(list(MODELS)),
    default=DEFAULTS.clustering,
    show_default=True,
    help="How stacks are joined to places in the listing of clusters.",
)
@click.option(
    "--explain", is_flag=True, help="Also show the odds, who waits for whom, and which rule dropped each frame."
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    metavar="FILE",
    help="Also write the verdict and all it rests on as one page for a browser, which needs nothing else.",
)
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    form: str,
    options: Options,
    spares: int | None,
    stalled: float | None,
    clustering: str,
    explain: bool,
    html: Path | None,
) -> None:
    """Read the evidence bundle at PATH and say who hangs the job, and why.

    PATH is a directory, or a .zip, .tar.gz or .tar.zst of one, with a py-spy dump for each rank, and whatever else is
    known: rank0.json, rank1.json, job.toml. `hangdog capture` writes one; those of several machines are judged together.

    Exit status: 0 nothing is stuck, 1 a cause is named, 2 undetermined.
    """
    if explain and form == "json":
        raise click.UsageError("--explain is for people: leave --format json away")
    with _progress() as progress:
        case = open_case(
            paths, replace(options, clustering=clustering, spares=spares), progress=progress, stalled_s=stalled
        )
        verdict = conclude(case)
        unwritten = _unwritten(html, case, verdict) if html is not None else None
    if form == "json":
        click.echo(json.dumps(to_json(verdict), indent=2))
    else:
        console = console_for(sys.stdout)
        print_verdict(verdict, console)
        if collects(verdict) and not logged_ends.ended(case.snapshot):
            command = command_to_capture(case.topology.machines)
            print_sections((("to collect that, while the job still stands", (Line(command),)),), console)
        if explain:
            print_explanation(case, verdict, console)
    if unwritten is not None:
        raise unwritten
    ctx.exit(verdict.exit_code)


def _unwritten(html: Path, case: Case, verdict: Verdict) -> HangdogError | None:
    """Writes the page; what a disk refuses is given back, for it must cost nobody the verdict."""
    from hangdog.output.html_file import write_page  # here: who wants no page does not wait for the templates

    try:
        write_page(html, case, verdict)
    except HangdogError as error:
        return error
    return None


@contextmanager
def _progress() -> Iterator[Update]:
    """Shows the files read on stderr while it lasts: only to a person, and only when there are many."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import (  # here: who sees no bar waits for none
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
    )

    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console_for(sys.stderr), transient=True) as bar:
        task = bar.add_task("files", visible=False)
        yield lambda done, total: bar.update(
            task, completed=done, total=total or None, visible=max(done, total) >= _MANY
        )
