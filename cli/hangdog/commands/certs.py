"""`hangdog certs` makes and shows the certificates that agents, server and people know each other by."""

import json
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from hangdog.moments import ago, utc
from hangdog.options import format_option
from hangdog.terminal import printable

Command = TypeVar("Command", bound=Callable[..., Any])
#: Where the authority is made, and looked for, unless told otherwise.
HOME = Path("hangdog-ca")
#: A certificate that ends within so many seconds is marked: a third of what it lasts by default.
SOON_S = 30 * 86400.0
#: What makes a certificate: the authority, whose it is, now, the folder it is put in, how many days it lasts.
Make = Callable[[Path, str, float, Path, int], Path]


@click.group("certs")
def command() -> None:
    """Make and show the certificates that agents, server and people know each other by.

    `hangdog certs init` once, `hangdog certs machine NAME...` for every machine; give each machine its own folder and
    no other. Nothing is ever overwritten. docs/security.md tells how to renew.
    """


def ca_option(command: Command) -> Command:
    """`--ca DIR`, the authority's folder; given as `ca`."""
    return click.option(
        "--ca", type=click.Path(path_type=Path, file_okay=False), default=HOME, show_default=True, metavar="DIR",
        help="The authority, as `hangdog certs init` made it.",
    )(command)  # fmt: skip


def into_option(command: Command) -> Command:
    """`--into DIR`, where the folder is made; given as `into`."""
    return click.option(
        "--into", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
        help="Make the new folder there.  [default: in the authority's]",
    )(command)  # fmt: skip


def days_option(command: Command) -> Command:
    """`--days N`, how long a certificate lasts; given as `days`."""
    return click.option(
        "--days", type=click.IntRange(1, 3650), default=90, show_default=True,
        help="How long it lasts. Nothing is ever revoked: this bounds what a stolen key is worth.",
    )(command)  # fmt: skip


def name_option(command: Command) -> Command:
    """`--name NAME`, repeated; given as `names`."""
    return click.option(
        "--name", "names", multiple=True, metavar="NAME|ADDRESS",
        help="What agents and people call the server; may be repeated.  [default: this host's names]",
    )(command)  # fmt: skip


@command.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=HOME)
@name_option
@days_option
@format_option
def init(folder: Path, names: tuple[str, ...], days: int, form: str) -> None:
    """Make an authority in FOLDER (hangdog-ca), and the server's certificate in FOLDER/server.

    FOLDER/ca.key signs all others: keep it off the server and the machines.
    """
    from hangdog_server import certs

    _tell(certs.init(folder, names or _own_names(), _now(), days), form)


@command.command("server")
@name_option
@ca_option
@into_option
@days_option
@format_option
def server(names: tuple[str, ...], ca: Path, into: Path | None, days: int, form: str) -> None:
    """Make another certificate for a server: a second one, or a renewed one."""
    from hangdog_server import certs

    _tell([certs.server(ca, names or _own_names(), _now(), into or ca, days)], form)


@command.command("machine")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@ca_option
@into_option
@days_option
@format_option
def machine(names: tuple[str, ...], ca: Path, into: Path | None, days: int, form: str) -> None:
    """Make a certificate for each machine, with which its agent may speak for it and for no other.

    NAME is what the agent calls it: `--machine`, by default the host's name. Folders: machines/NAME.
    """
    from hangdog_server import certs

    _several(certs.machine, names, ca, into or ca / "machines", days, form)


@command.command("client")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@ca_option
@into_option
@days_option
@format_option
def client(names: tuple[str, ...], ca: Path, into: Path | None, days: int, form: str) -> None:
    """Make a certificate for the commands of a person, or for a proxy: it reaches the server, and is no agent's.

    What its owner may do is said by a token (`hangdog token`). Folders: clients/NAME.
    """
    from hangdog_server import certs

    _several(certs.client, names, ca, into or ca / "clients", days, form)


@command.command("show")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="PATH...")
@format_option
def show(paths: tuple[Path, ...], form: str) -> None:
    """Show whose the certificates are, in these files or folders, and when they end."""
    _tell(paths, form)


def _several(make: Make, names: Sequence[str], ca: Path, into: Path, days: int, form: str) -> None:
    _tell([make(ca, name, _now(), into, days) for name in dict.fromkeys(names)], form)


def _tell(paths: Sequence[Path], form: str) -> None:
    from hangdog_server import certs

    now, found = _now(), [certs.show(path) for path in paths]
    if form == "json":
        rows = [
            {
                "path": str(each.path),
                "owner": each.owner,
                "names": list(each.names),
                "issuer": each.issuer,
                "begins": utc(each.begins),
                "ends": utc(each.ends),
                "sha256": each.fingerprint,
            }
            for each in found
        ]
        click.echo(json.dumps({"schema": "hangdog.certs/1", "certificates": rows}, indent=2))
        return
    for each in found:
        left = each.ends - now
        until = f"ended {ago(-left)} ago" if left <= 0 else f"ends in {ago(left)}{' (renew it)' * (left < SOON_S)}"
        names = f" ({', '.join(each.names)})" if each.names else ""
        click.echo(printable(f"{each.owner}{names}: {until}, {each.path}"))


def _own_names() -> list[str]:
    """What this host is called: its name, and the one with its domain where it has one."""
    return list(dict.fromkeys((socket.gethostname(), socket.getfqdn())))


def _now() -> float:
    return time.time()  # noqa: TID251  # a command is where the clock is read
