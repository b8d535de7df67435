"""`hangdog certs` makes, shows and revokes the certificates of agents, servers and people."""

import json
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from hangdog.commands.operate.token import record
from hangdog.options import format_option
from hangdog.output.terminal import printable
from hangdog.output.times import ago, utc
from hangdog.server_paths import DENIED, next_to_default_store
from hangdog_models.errors import WrongUse
from hangdog_proto.x509 import ends_soon

#: Kinds of owners, as certificates name them.
KINDS = ("machine", "client", "server")
Command = TypeVar("Command", bound=Callable[..., Any])
#: Where the authority is made, and looked for, unless told otherwise.
HOME = Path("hangdog-ca")
#: What makes a certificate: the authority, whose it is, now, the folder it is put in, how many days it lasts.
Make = Callable[[Path, str, float, Path, int], Path]


@click.group("certs")
def command() -> None:
    """Make, show and revoke the certificates of agents, servers and people.

    Run `hangdog certs init` once, and `hangdog certs machine NAME...` for every machine. Give each machine its own
    folder and no other. hangdog overwrites nothing. docs/authentication.md says how to renew.
    """


def ca_option(command: Command) -> Command:
    """`--ca DIR`, the authority's folder; given as `ca`."""
    return click.option(
        "--ca", type=click.Path(path_type=Path, file_okay=False), default=HOME, show_default=True, metavar="DIR",
        help="Folder of the authority, from `hangdog certs init`.",
    )(command)  # fmt: skip


def into_option(command: Command) -> Command:
    """`--into DIR`, where the folder is made; given as `into`."""
    return click.option(
        "--into", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
        help="Make the new folder there.  [default: in the authority's folder]",
    )(command)  # fmt: skip


def days_option(command: Command) -> Command:
    """`--days N`, how long a certificate lasts; given as `days`."""
    return click.option(
        "--days", type=click.IntRange(1, 3650), default=90, show_default=True,
        help="How long it is valid. A stolen key is useless after that.",
    )(command)  # fmt: skip


def name_option(command: Command) -> Command:
    """`--name NAME`, repeated; given as `names`."""
    return click.option(
        "--name", "names", multiple=True, metavar="NAME|ADDRESS",
        help="Name or address at which clients reach the server; may be repeated.  [default: this host's names]",
    )(command)  # fmt: skip


@command.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=HOME)
@name_option
@days_option
@format_option
def init(folder: Path, names: tuple[str, ...], days: int, form: str) -> None:
    """Make an authority in FOLDER (hangdog-ca), and the server's certificate in FOLDER/server.

    FOLDER/ca.key signs all certificates. Keep it off the server and the machines.
    """
    from hangdog_server.auth import certificates

    _tell(certificates.init(folder, names or _own_names(), _now(), days), form)


@command.command("server")
@name_option
@ca_option
@into_option
@days_option
@format_option
def server(names: tuple[str, ...], ca: Path, into: Path | None, days: int, form: str) -> None:
    """Make another certificate for a server. Use it to renew the first one, or for a second server."""
    from hangdog_server.auth import certificates

    _tell([certificates.server(ca, names or _own_names(), _now(), into or ca, days)], form)


@command.command("machine")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@ca_option
@into_option
@days_option
@format_option
def machine(names: tuple[str, ...], ca: Path, into: Path | None, days: int, form: str) -> None:
    """Make a certificate for each machine. With it the agent can report for that machine only.

    NAME is the agent's `--machine`, by default the host's name. Each one goes to a folder machines/NAME.
    """
    from hangdog_server.auth import certificates

    _several(certificates.machine, names, ca, into or ca / "machines", days, form)


@command.command("client")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@ca_option
@into_option
@days_option
@format_option
def client(names: tuple[str, ...], ca: Path, into: Path | None, days: int, form: str) -> None:
    """Make a certificate for a person or a proxy. It opens a connection to the server, but not as an agent.

    A token (`hangdog token`) says what its owner may do. Each one goes to a folder clients/NAME.
    """
    from hangdog_server.auth import certificates

    _several(certificates.client, names, ca, into or ca / "clients", days, form)


@command.command("issuer")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=HOME / "issuer")
@click.option("--days", type=click.IntRange(1, 3650), default=5 * 365, show_default=True, help="How long it is valid.")
@format_option
def issuer(folder: Path, days: int, form: str) -> None:
    """Make an authority that renews machines' certificates. It goes to FOLDER (hangdog-ca/issuer).

    Pass it to `hangdog server --issuer`; all servers need the same one. It can sign certificates of machines only. A
    thief can pose as a machine, but not as a server, person or proxy. Only servers accept it.
    """
    from hangdog_server.auth import issuer as issuing

    _tell([issuing.make(folder, _now(), days)], form)


denied_option = click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=lambda: next_to_default_store(DENIED),
    show_default="denied.json beside the server's store",
    metavar="FILE",
    help="The deny list: the server's, or denied.json in a certificate folder. There it lists the peers that the "
    "folder's owner refuses.",
)


@command.command("deny")
@click.argument("which", metavar="SERIAL|PATH|OWNER")
@click.option(
    "--reason", default="", help="Why. hangdog stores the reason, and tells it to a client that uses the certificate."
)
@click.option("--undo", is_flag=True, help="Remove the entry from the list.")
@denied_option
def deny(which: str, reason: str, undo: bool, file: Path) -> None:
    """Revoke a certificate. The server refuses it and closes its open connections within seconds.

    Name it by its serial number, or by a file or folder that holds it. `hangdog certs show` and `hangdog machines
    --format json` print serial numbers. An OWNER such as 'machine gpu-a17' or 'client alice' revokes every certificate
    that this owner has now. Use that for a stolen key, since the thief may have renewed the certificate. Certificates
    made later stay valid.

    \b
    hangdog certs deny 'machine gpu-a17' --reason 'stolen from the rack'
    hangdog certs deny 3f:a9:00:17 --reason 'lost laptop'
    hangdog certs deny hangdog-ca/clients/alice
    """
    from hangdog_proto import deny_list

    serial, owner = _serial_or_owner(which)
    if undo:
        deny_list.remove(file, serial, owner)
        record(file, "certificate allowed", serial or owner)
        click.echo(f"{printable(serial or owner)} is denied no longer")
        return
    if not deny_list.add(file, deny_list.DeniedCertificate(serial, owner, _now(), reason)):
        click.echo(f"{printable(serial or owner)} was denied already")
        return
    record(file, "certificate denied", f"{serial or owner}{': ' * bool(reason)}{reason}")
    click.echo(f"{printable(serial or owner)} is denied from now on")
    if serial:
        click.echo("  one renewed from it is not; 'machine NAME' denies all that the machine has")


@command.command("denied")
@denied_option
@format_option
def denied(file: Path, form: str) -> None:
    """List the revoked certificates."""
    from hangdog_proto import deny_list

    now, found = _now(), deny_list.read(file)
    if form == "json":
        rows = [
            {"serial": one.serial or None, "owner": one.owner or None, "at": utc(one.at), "reason": one.reason}
            for one in found
        ]
        click.echo(json.dumps({"schema": "hangdog.denied-list/1", "denied": rows}, indent=2))
    elif not found:
        click.echo(f"nothing is denied in {file}")
    for one in found if form == "text" else ():
        what = one.serial or f"all that {one.owner} had"
        click.echo(printable(f"{what}, {ago(max(now - one.at, 0.0))} ago{': ' * bool(one.reason)}{one.reason}"))


@command.command("show")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="PATH...")
@format_option
def show(paths: tuple[Path, ...], form: str) -> None:
    """Show who owns the certificates in these files or folders, and when they expire."""
    _tell(paths, form)


def _several(make: Make, names: Sequence[str], ca: Path, into: Path, days: int, form: str) -> None:
    _tell([make(ca, name, _now(), into, days) for name in dict.fromkeys(names)], form)


def _tell(paths: Sequence[Path], form: str) -> None:
    from hangdog_server.auth import certificates

    now, found = _now(), [certificates.show(path) for path in paths]
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
                "serial": each.serial,
            }
            for each in found
        ]
        click.echo(json.dumps({"schema": "hangdog.certs/1", "certificates": rows}, indent=2))
        return
    for each in found:
        left = each.ends - now
        until = (
            f"ended {ago(-left)} ago"
            if left <= 0
            else f"ends in {ago(left)}{' (renew it)' * ends_soon(each.begins, each.ends, now)}"
        )
        names = f" ({', '.join(each.names)})" if each.names else ""
        click.echo(printable(f"{each.owner}{names}: {until}, serial {each.serial}, {each.path}"))


def _serial_or_owner(given: str) -> tuple[str, str]:
    """A serial number or an owner, one of them empty; raises WrongUse."""
    from hangdog_proto.x509 import serial_digits
    from hangdog_server.auth import certificates

    kind, _, name = given.partition(" ")
    if kind in KINDS and name.strip():
        return "", f"{kind} {name.strip()}"
    if given and Path(given).exists():
        return certificates.show(Path(given)).serial, ""
    try:
        return serial_digits(given), ""
    except ValueError as error:
        raise WrongUse(
            f"{error}, and not a file either",
            "give SERIAL, a folder, or an owner as in 'machine gpu-a17'",
            code="bad-serial-number",
        ) from error


def _own_names() -> list[str]:
    """What this host is called: its name, and the one with its domain where it has one."""
    return list(dict.fromkeys((socket.gethostname(), socket.getfqdn())))


def _now() -> float:
    return time.time()  # noqa: TID251  # a command is where the clock is read
