"""`hangdog snapshot` captures a running job on all its machines, and judges it."""

import json
import sys
from pathlib import Path

import click

from hangdog.options import Number, format_option, server_option
from hangdog.output.terminal import console_for, printable
from hangdog.output.verdict_text import print_verdict
from hangdog.retry import RetryPolicy
from hangdog_models.errors import OurFault, ServerUnreachable, UnreadableEvidence, WrongUse
from hangdog_models.incident import UNDER_WAY
from hangdog_models.reading.job import read_job
from hangdog_models.verdict import Verdict, to_json
from hangdog_proto.client.incidents import Client
from hangdog_proto.client.server_address import ServerAddress

#: Bytes of a job.toml: what the reader takes, and one more, so that it sees when there is more.
_MOST = (8 << 20) + 1


@click.command("snapshot")
@click.option("--job", default="", help="The job to capture; needed if the server knows several.")
@click.option(
    "--topology",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="job.toml",
    help="The job's parallel sizes, if its environment (HANGDOG_TOPOLOGY) does not give them.",
)
@click.option(
    "--light",
    is_flag=True,
    help="For a job that is slow, not stuck: take looks until it is clear which machine it waits for.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help="How many looks to take; with --light the maximum.  [default: the server's, 3; with --light 5]",
)
@click.option(
    "--interval",
    type=Number(0, min_open=True),
    metavar="SECONDS",
    help="Pause between two looks.  [default: the server's, 2; with --light 10]",
)
@click.option("--why", default="", help="A reason, kept with the incident.")
@format_option
@server_option
@click.pass_context
def command(
    ctx: click.Context,
    job: str,
    topology: Path | None,
    light: bool,
    rounds: int | None,
    interval: float | None,
    why: str,
    form: str,
    server: ServerAddress,
) -> None:
    """Capture a running job now, and judge it.

    Progress goes to stderr, the verdict to stdout. If the server goes away, the command waits for it for up to five
    minutes; the incident continues. Exit status: 0 nothing is stuck, 1 a cause is named, 2 undetermined.

    With --light hangdog stops no trainer. It takes no more looks once two verdicts in a row are sure and agree.
    """
    job_toml = _job_toml(topology) if topology else ""
    verdict = _follow(server, job, rounds or 0, interval or 0.0, job_toml, why, light)
    if form == "json":
        click.echo(json.dumps(to_json(verdict), indent=2))
    else:
        print_verdict(verdict, console_for(sys.stdout))
    ctx.exit(verdict.exit_code)


def _follow(
    server: ServerAddress, job: str, rounds: int, interval_s: float, job_toml: str, why: str, light: bool
) -> Verdict:
    """The verdict, once it is there; what happens meanwhile goes to stderr."""
    incident = ""
    try:
        with Client(server) as client:
            for step in client.snapshot(job, rounds, interval_s, job_toml, why, light):
                incident = step.incident
                click.echo(printable(step.text), err=True)
                if step.verdict is not None:
                    return step.verdict
    except ServerUnreachable as error:
        if not incident:
            raise
        return _wait_for_verdict(server, incident, error)
    except KeyboardInterrupt:
        if incident:
            click.echo(f"the incident goes on: hangdog show {incident}", err=True)
        raise
    raise OurFault(f"the server ended incident {incident} without a verdict", "its log says more", code="no-verdict")


def _wait_for_verdict(server: ServerAddress, incident: str, error: ServerUnreachable) -> Verdict:
    """The verdict of an incident whose server went away; the one that is started next goes on with it.

    Raises ServerUnreachable when none answers in time, or the incident fails.
    """
    retry, last_state = RetryPolicy(f"incident {incident}", f"hangdog watch {incident}"), ""
    retry.lost(error)
    try:
        with Client(server) as client:
            while True:
                try:
                    line, verdict = client.incident(incident)
                except ServerUnreachable as still:
                    retry.lost(still)
                    continue
                retry.answered()
                if verdict is not None:
                    return verdict
                if line.state not in UNDER_WAY:
                    raise ServerUnreachable(
                        f"incident {incident} failed: {line.note or error}", error.hint, code="incident-failed"
                    )
                if line.state != last_state:
                    click.echo(f"incident {incident} goes on: {printable(line.state)}", err=True)
                    last_state = line.state
                retry.wait(retry.interval_s)
    except KeyboardInterrupt:
        click.echo(f"the incident goes on: hangdog show {incident}", err=True)
        raise


def _job_toml(path: Path) -> str:
    """The text of a job.toml that can be read; raises our error with the file's name when it cannot."""
    with path.open("rb") as file:
        document = file.read(_MOST)
    try:
        text = document.decode()
        read_job(text)
    except UnicodeDecodeError as error:
        raise UnreadableEvidence(f"{path}: not UTF-8: {error}", code="not-text") from error
    except (UnreadableEvidence, WrongUse) as error:
        raise type(error)(f"{path}: {error}", error.hint, code=error.code) from error
    return text
