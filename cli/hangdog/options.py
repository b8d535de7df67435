"""Options that several sub-commands share."""

import functools
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from hangdog.output.times import ago
from hangdog.server_paths import server_here
from hangdog_models.errors import NotAllowed, ServerUnreachable, WrongUse
from hangdog_models.ranks import MAX_RANK
from hangdog_proto.client.server_address import ServerAddress

Command = TypeVar("Command", bound=Callable[..., Any])
#: Characters of a file that a token is looked for in.
_TOKEN = 1000


def server_option(command: Command) -> Command:
    """The way to the server, of several options; given as `server`, which a Client is made of."""

    @functools.wraps(command)
    def reaching(
        *args: Any, server: str, tls: Path | None, token_file: Path | None, insecure: bool, **others: Any
    ) -> Any:
        own = insecure or server.startswith("unix:")
        way = ServerAddress(server, None if own else tls, _token(token_file), insecure)
        try:
            return command(*args, server=way, **others)
        except ServerUnreachable as error:
            raise _ended(way.tls) or error from error

    for option in (
        click.option(
            "--insecure", is_flag=True, help="Use plain text with any server. Only for a network that you trust."
        ),
        click.option(
            "--token-file",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="File with your token.  [default: HANGDOG_TOKEN, else HANGDOG_TOKEN_FILE]",
        ),
        click.option(
            "--tls",
            envvar="HANGDOG_TLS",
            show_envvar=True,
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Folder with your certificate for the server, from `hangdog certs client`.",
        ),
        click.option(
            "--server",
            envvar="HANGDOG_SERVER",
            default=server_here,
            show_default="this machine's: its socket, else 127.0.0.1:7411",
            show_envvar=True,
            metavar="HOST:PORT",
            help="Address of the server, or unix:PATH.",
        ),
    ):
        reaching = option(reaching)
    return cast(Command, reaching)


def _ended(tls: Path | None) -> NotAllowed | None:
    """That our own certificate has ended, which a server answers by hanging up; None where it has not, or cannot be read."""
    if tls is None:
        return None
    try:
        from hangdog_server.auth.certificates import (
            show,  # not at the top: the package that reads it is of the extra `server`
        )

        left = show(tls).ends - time.time()  # noqa: TID251  # TLS itself goes by the true clock
    except (ImportError, WrongUse):
        return None
    if left > 0:
        return None
    hint = "ask the operator of the server for a new one: hangdog certs client"
    return NotAllowed(
        f"the certificate in {tls} expired {ago(-left)} ago, and no server accepts it", hint, code="expired-certificate"
    )


def _token(file: Path | None) -> str:
    """The token of whoever asks, empty when they have none; raises WrongUse."""
    if file is None:
        if token := os.environ.get("HANGDOG_TOKEN", "").strip():
            return _plausible(token, "HANGDOG_TOKEN")
        named = os.environ.get("HANGDOG_TOKEN_FILE", "")
        if not named:
            return ""
        file = Path(named)
    try:
        with file.open(encoding="ascii") as opened:
            return _plausible(opened.read(_TOKEN).strip(), str(file))
    except (OSError, UnicodeDecodeError) as error:
        hint = "it must hold what `hangdog token new` printed"
        if isinstance(error, OSError):
            raise WrongUse(
                f"cannot read the token in {file}: {error.strerror}", hint, code="unreadable-file"
            ) from error
        raise WrongUse(f"cannot read the token in {file}: it does not hold a token", hint, code="bad-token") from error


def _plausible(token: str, where: str) -> str:
    """The token, unless a request could not even carry it; raises WrongUse, which does not show it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise WrongUse(
            f"{where} does not hold a token", "give exactly what `hangdog token new` printed", code="bad-token"
        )
    return token


def format_option(command: Command) -> Command:
    """`--format text|json`; given as `form`."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="For people, or one JSON object.",
    )(command)


def evidence_argument(command: Command) -> Command:
    """Whose evidence is looked at, an incident's or a bundle's; given as `where`."""
    return click.argument("where", metavar="ID|BUNDLE")(command)


class Number(click.FloatRange):
    """A number within bounds: Python also reads `nan`, which no bound holds back, and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number


#: A rank, as a command takes it.
RANK = click.IntRange(0, MAX_RANK)


UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Seconds from `90`, `90s`, `10m`, `1.5h` or `2d`; a callback of an option."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smhd]?)", value)
    if not found or not float(found[1]):
        raise click.BadParameter(f"{value!r} is no duration: write 90s, 10m, 1h or 2d", ctx, param)
    return float(found[1]) * UNITS[found[2]]


def optional_seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The same of an option that may be left away."""
    return None if value is None else seconds(ctx, param, value)
