"""`hangdog token` makes, lists and revokes the tokens with which people log in to a server."""

import getpass
import json
import time
from pathlib import Path

import click

from hangdog.options import format_option
from hangdog.output.terminal import printable
from hangdog.output.times import ago, utc
from hangdog.server_paths import AUDIT, TOKENS, next_to_default_store, next_to_store
from hangdog_models.counts import counted

ROLES = ("view", "trigger", "act")


def default_tokens() -> Path:
    """Where `hangdog server` looks for them."""
    return next_to_default_store(TOKENS)


tokens_option = click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    default=default_tokens,
    show_default="tokens.json beside the server's store",
    metavar="FILE",
    help="The server's token file.",
)


@click.group("token")
def command() -> None:
    """Make, list and revoke the tokens of people.

    The server keeps them in a file that holds only their hashes. Run this on the server's machine, as the server's
    user. A running server notices each change.
    """


@command.command("new")
@click.option("--name", required=True, help="Who owns it; the audit log shows this name.")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="view: see incidents and machines; trigger: also take snapshots; act: also isolate machines.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=90, show_default=True, help="How long it is valid.")
@tokens_option
@format_option
def new(name: str, role: str, days: int, tokens: Path, form: str) -> None:
    """Make a token and print it once. Its owner sets it as HANGDOG_TOKEN. The server stores only its hash."""
    from hangdog_server.auth.tokens import Role
    from hangdog_server.auth.tokens import new as made

    token = made(tokens, name, Role[role.upper()], time.time(), days)  # noqa: TID251  # a command reads the clock
    record(tokens, "token new", f"{name}, {role}, {counted(days, 'day')}")
    if form == "json":
        click.echo(json.dumps({"schema": "hangdog.token/1", "name": name, "role": role, "token": token}, indent=2))
    else:
        click.echo(token)


@command.command("list")
@tokens_option
@format_option
def listed(tokens: Path, form: str) -> None:
    """List who has a token, what it allows, and when it expires."""
    from hangdog_server.auth.tokens import read

    now, found = time.time(), read(tokens)  # noqa: TID251  # a token ends by the wall clock
    if form == "json":
        rows = [
            {"name": each.name, "role": each.role, "made": utc(each.made), "expires": utc(each.expires)}
            for each in found
        ]
        click.echo(json.dumps({"schema": "hangdog.tokens/1", "tokens": rows}, indent=2))
    elif not found:
        click.echo(f"no tokens in {tokens}")
    for each in found if form == "text" else ():
        left = each.expires - now
        until = f"ended {ago(-left)} ago" if left <= 0 else f"ends in {ago(left)}"
        click.echo(printable(f"{each.name}: {each.role}, {until}"))


@command.command("revoke")
@click.argument("name")
@tokens_option
def revoke(name: str, tokens: Path) -> None:
    """Revoke the token of NAME. The server refuses it from the next request on."""
    from hangdog_server.auth.tokens import revoke as ended

    ended(tokens, name)
    record(tokens, "token revoke", name)
    click.echo(f"the token of {printable(name)} has ended")


def record(file: Path, what: str, why: str) -> None:
    """Records who changed `file`, which lies beside the audit log; that must not undo the change, so a failure is only told."""
    from hangdog_server.auth.audit_log import AuditEntry, append, line

    entry = AuditEntry(what, getpass.getuser(), "", "shell", "", "", why, outcome="done")
    try:
        append(next_to_store(str(file), AUDIT), line(entry, time.time()))  # noqa: TID251  # a record is dated by the wall clock
    except OSError as error:
        click.echo(f"hangdog: cannot be recorded in {next_to_store(str(file), AUDIT)}: {error.strerror}", err=True)
