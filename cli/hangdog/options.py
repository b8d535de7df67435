"""Options that several sub-commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hangdog_proto.client import DEFAULT_ADDRESS

Command = TypeVar("Command", bound=Callable[..., Any])


def server_option(command: Command) -> Command:
    """`--server HOST:PORT`, else HANGDOG_SERVER, else this machine; given as `server`."""
    return click.option(
        "--server",
        envvar="HANGDOG_SERVER",
        default=DEFAULT_ADDRESS,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Where the server listens.",
    )(command)


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
