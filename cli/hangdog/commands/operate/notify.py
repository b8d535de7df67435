"""`hangdog notify` sends a test message to the receivers of a server's notifications."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangdog_models.errors import ServerUnreachable, WrongUse
from hangdog_models.reading.printable import printable

if TYPE_CHECKING:
    from hangdog_server.notifications.message import Message
    from hangdog_server.notifications.notify_config import Receiver


@click.command("notify")
@click.option(
    "--notify",
    "file",
    envvar="HANGDOG_NOTIFY",
    show_envvar=True,
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file that `hangdog server --notify` reads; see docs/notifications.md.",
)
@click.option(
    "--to", "names", multiple=True, metavar="NAME", help="Only this receiver; may be repeated.  [default: all]"
)
@click.option(
    "--dry-run", is_flag=True, help="Read the file, check the addresses and show the message, but send nothing."
)
def command(file: Path, names: tuple[str, ...], dry_run: bool) -> None:
    """Send a test message to all receivers of notifications. Exit status: 0 all accepted it, 69 one did not.

    It asks no server. Run it on the server's machine, as the server's user, who can read the files.

    \b
    hangdog notify --notify /etc/hangdog/notify.toml --dry-run
    hangdog notify --notify /etc/hangdog/notify.toml --to on-call
    """
    from hangdog_server.notifications.message import message
    from hangdog_server.notifications.notify_config import read_config  # here: the server's packages come with an extra
    from hangdog_server.notifications.send import check

    found = read_config(file)
    if unknown := set(names) - {one.name for one in found.receivers}:
        known = ", ".join(one.name for one in found.receivers)
        raise WrongUse(
            f"{file} has no receiver {', '.join(sorted(unknown))}", f"its receivers: {known}", code="unknown-receiver"
        )
    receivers = [one for one in found.receivers if not names or one.name in names]
    lines = "This is a test.", "Nothing has happened.", "A verdict would stand here."
    test = message("hangdog can reach you", lines, f"{found.link}/" if found.link else "")
    asyncio.run(check(found))
    if dry_run:
        click.echo(f"{test.title}\n\n{test.body}\n")
        for one in receivers:
            click.echo(f"{printable(one.name)}: would be told of {', '.join(sorted(one.about))}")
        return
    failed = asyncio.run(_sent(receivers, test))
    if failed:
        raise ServerUnreachable(
            f"{', '.join(failed)} did not accept the message",
            "check the address in its url_file",
            code="notification-not-accepted",
        )


async def _sent(receivers: "Sequence[Receiver]", test: "Message") -> list[str]:
    """Sends to all of them at once and says of each what came of it; the names of those to whom it did not go."""
    from hangdog_server.notifications.send import post

    posted = await asyncio.gather(*(post(one, test) for one in receivers))
    for one, came in zip(receivers, posted, strict=True):
        click.echo(f"{printable(one.name)}: {f'not sent: {came.failed}' if came.failed else f'sent ({came.service})'}")
    return [one.name for one, came in zip(receivers, posted, strict=True) if came.failed]
