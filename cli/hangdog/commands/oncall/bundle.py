"""`hangdog bundle ID` writes an incident as an evidence bundle."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from hangdog.evidence.cases import replay_incident
from hangdog.evidence.write_bundle import File, files
from hangdog.options import server_option
from hangdog.output.terminal import printable
from hangdog.output.times import utc
from hangdog_models.counts import counted
from hangdog_models.errors import WrongUse
from hangdog_models.views.answer_text import percent
from hangdog_proto.client.incidents import Client, StoredIncident


@click.command("bundle")
@click.argument("incident", metavar="ID")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder to write; it must not be there yet.",
)
@server_option
def command(incident: str, output: Path, server: str) -> None:
    """Write all that is kept of the incident ID as an evidence bundle.

    `hangdog triage DIR` reads it back to the same verdict, anywhere and without a server. It holds stacks, process
    states, what libraries counted and what checks found, command lines with their secrets redacted; look through it
    before you give it away.
    """
    if output.exists() or output.is_symlink():
        raise WrongUse(
            f"{output} already exists", "name a new folder: hangdog overwrites nothing", code="already-exists"
        )
    with Client(server) as client:
        kept = client.stored(incident)
    count = _written(output, files(replay_incident(kept), _remarks(kept)))
    click.echo(f"{counted(count, 'file')} in {printable(str(output))}: hangdog triage {printable(str(output))}")


def _remarks(kept: StoredIncident) -> tuple[str, ...]:
    line, verdict = kept.line, kept.verdict
    verdict_text = f"{verdict.kind}, {percent(verdict.confidence)} sure" if verdict else "none"
    return (
        f"Incident {line.id} of {utc(line.began)}: {line.why or 'somebody asked'}",
        f"Verdict of the server: {verdict_text}",
    )


def _written(output: Path, content: Iterator[File]) -> int:
    """Writes the files beside their place and then moves them there: half a bundle is none."""
    output.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{output.name}-", dir=output.parent))
    count = 0
    try:
        for path, data in content:
            count += 1
            file = beside / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        beside.chmod(0o755)
        beside.rename(output)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return count
