"""`hangdog audit` shows the server's audit log: who did what, and when."""

import json
from collections import deque
from dataclasses import asdict
from pathlib import Path

import click

from hangdog.options import format_option
from hangdog.output.terminal import printable
from hangdog.server_paths import AUDIT, next_to_default_store
from hangdog_models.counts import counted
from hangdog_models.errors import WrongUse


@click.command("audit")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=lambda: next_to_default_store(AUDIT),
    show_default="audit.jsonl beside the server's store",
    metavar="FILE",
    help="The server's audit log.",
)
@click.option("--job", default="", help="Only entries about this job.")
@click.option("--who", default="", help="Only entries of this person.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="Show this many of the latest entries.",
)
@click.option(
    "--verify", is_flag=True, help="Check whether lines were changed, removed or cut off, instead of showing them."
)
@click.option(
    "--expect",
    multiple=True,
    metavar="HASH",
    help="With --verify: a hash that you kept elsewhere. A line must still have it. May be repeated.",
)
@format_option
@click.pass_context
def command(
    ctx: click.Context, file: Path, job: str, who: str, limit: int, verify: bool, expect: tuple[str, ...], form: str
) -> None:
    """Show the audit log: who did what, the oldest entry first.

    Every snapshot has two entries: the request, and its result. That includes snapshots that hangdog took by itself.
    The log is a file beside the server's store. Run this on the server's machine, as the server's user.

    Each line holds the hash of the line before it. `--verify` checks these hashes, and ends with status 1 if one does
    not match. It prints the hash of the last line. Keep that on another machine and give it later as --expect. This
    shows that nobody cut off or rewrote the log since.
    """
    from hangdog_server.auth.audit_log import read

    if expect and not verify:
        raise WrongUse("--expect is for --verify", "hangdog audit --verify --expect HASH", code="missing-option")
    if verify:
        ctx.exit(_verified(file, expect, form))
    last: deque[dict[str, object]] = deque(maxlen=limit)
    try:
        for entry in read(file):
            if (not job or entry.get("job") == job) and (not who or entry.get("who") == who):
                last.append(entry)
    except OSError as error:
        raise WrongUse(
            f"cannot read {file}: {error.strerror}", "run this as the user of the server", code="unreadable-file"
        ) from error
    if form == "json":
        click.echo(json.dumps({"schema": "hangdog.audit/1", "entries": list(last)}, indent=2))
    elif not last:
        click.echo(f"nothing is recorded in {file}")
    for entry in last if form == "text" else ():
        click.echo(printable(_line(entry)))


def _verified(file: Path, expect: tuple[str, ...], form: str) -> int:
    """Checks the chain and says what it found; the exit status."""
    from hangdog_server.auth.audit_log import before
    from hangdog_server.auth.hash_chain import check

    try:
        found = check((before(file), file), expect)
    except OSError as error:
        raise WrongUse(
            f"cannot read {file}: {error.strerror}", "run this as the user of the server", code="unreadable-file"
        ) from error
    if form == "json":
        document = {"schema": "hangdog.audit-check/1", "whole": not found.broken, **asdict(found)}
        click.echo(json.dumps(document, indent=2))
        return 1 if found.broken else 0
    for one in found.torn:
        click.echo(printable(f"{one.file} line {one.line}: {one.what}"))
    for one in found.broken:
        click.echo(
            printable(f"{' line '.join(filter(None, (one.file, str(one.line or ''))))}: {one.what}".lstrip(": "))
        )
    older = f", after {counted(found.older, 'line')} of an older version without a chain" if found.older else ""
    verdict = "was tampered with" if found.broken else "is whole"
    click.echo(
        f"the audit log {verdict}: {counted(found.lines, 'line')} in the chain{older}; the last hash is {found.head}"
    )
    return 1 if found.broken else 0


def _line(entry: dict[str, object]) -> str:
    row = {key: str(value) for key, value in entry.items()}
    who = f"{row.get('who', '?')} ({', '.join(filter(None, (row.get('role'), row.get('by'), row.get('peer'))))})"
    what = " ".join(filter(None, (row.get("what"), row.get("job"))))
    incident = f" incident {row['incident']}" if row.get("incident") else ""
    why = f": {row['why']}" if row.get("why") else ""
    return f"{row.get('at', '?')} {who} {what}{incident}{why} -> {row.get('outcome', '?')}"
