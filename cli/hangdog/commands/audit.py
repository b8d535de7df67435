"""`hangdog audit` shows who had the server do what."""

import json
from collections import deque
from pathlib import Path

import click

from hangdog.commands.server import AUDIT, beside_usual
from hangdog.options import format_option
from hangdog.terminal import printable
from hangdog_models.errors import WrongUse


@click.command("audit")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=lambda: beside_usual(AUDIT),
    show_default="audit.jsonl beside the server's store",
    metavar="FILE",
    help="The server's record.",
)
@click.option("--job", default="", help="Only what was done to this job.")
@click.option("--who", default="", help="Only what this person had done.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="The last so many.")
@format_option
def command(file: Path, job: str, who: str, limit: int, form: str) -> None:
    """Show who had the server do what, the oldest first.

    Every snapshot that somebody, or hangdog itself, asked for stands in it twice: when it was asked, and what came of
    it. The record lies beside the server's store: run this on its machine, as its user.
    """
    from hangdog_server.audit import read

    last: deque[dict[str, object]] = deque(maxlen=limit)
    try:
        for entry in read(file):
            if (not job or entry.get("job") == job) and (not who or entry.get("who") == who):
                last.append(entry)
    except OSError as error:
        raise WrongUse(f"cannot read {file}: {error.strerror}", "run this as the user of the server") from error
    if form == "json":
        click.echo(json.dumps({"schema": "hangdog.audit/1", "entries": list(last)}, indent=2))
    elif not last:
        click.echo(f"nothing is recorded in {file}")
    for entry in last if form == "text" else ():
        click.echo(printable(_line(entry)))


def _line(entry: dict[str, object]) -> str:
    said = {key: str(value) for key, value in entry.items()}
    who = f"{said.get('who', '?')} ({', '.join(filter(None, (said.get('role'), said.get('by'), said.get('peer'))))})"
    what = " ".join(filter(None, (said.get("what"), said.get("job"))))
    incident = f" incident {said['incident']}" if said.get("incident") else ""
    why = f": {said['why']}" if said.get("why") else ""
    return f"{said.get('at', '?')} {who} {what}{incident}{why} -> {said.get('outcome', '?')}"
