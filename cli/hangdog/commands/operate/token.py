"""`hangdog token` makes, lists and ends the tokens by which a server knows people."""

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
    help="The server's file of tokens.",
)


@click.group("token")
def command() -> None:
    """Make, list and revoke the tokens of people.

    They lie in a file of the server, which holds no token itself, only its hash. Run this on the server's machine, as
    the user it runs as. A server that runs notices each change.
    """


@command.command("new")
@click.option("--name", required=True, help="Whose it is: this name stands in the record of what they had done.")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="view: see incidents and machines; trigger: also ask for snapshots; act: also have machines isolated.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=90, show_default=True, help="How long it lasts.")
@tokens_option
@format_option
def new(name: str, role: str, days: int, tokens: Path, form: str) -> None:
    """Make a token and print it, once: it is kept nowhere. Give it to its owner as HANGDOG_TOKEN."""
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
    """List whose tokens there are, what they may do, and when they end."""
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
    """End the token of NAME; from its next request on a server refuses it."""
    from hangdog_server.auth.tokens import revoke as ended

    ended(tokens, name)
    record(tokens, "token revoke", name)
    click.echo(f"the token of {printable(name)} has ended")


def record(file: Path, what: str, why: str) -> None:
    """Records who changed `file`, which lies beside the record; that must not undo the change, so a failure is only told."""
    from hangdog_server.auth.audit_log import AuditEntry, append, line

    entry = AuditEntry(what, getpass.getuser(), "", "shell", "", "", why, outcome="done")
    try:
        append(next_to_store(str(file), AUDIT), line(entry, time.time()))  # noqa: TID251  # a record is dated by the wall clock
    except OSError as error:
        click.echo(f"hangdog: cannot be recorded in {next_to_store(str(file), AUDIT)}: {error.strerror}", err=True)
