"""`hangdog server` runs the server."""

import asyncio
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import click

from hangdog_proto.client import DEFAULT_ADDRESS

#: Seconds of a day.
DAY_S = 86400.0


def default_store() -> str:
    """Where the XDG specification wants what a program remembers."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return str(Path(state) / "hangdog" / "incidents.db")


@click.command("server")
@click.option(
    "--listen",
    default=DEFAULT_ADDRESS,
    show_default=True,
    metavar="HOST:PORT",
    help="Address for agents and people; port 0 takes a free one. Nobody is asked who they are: keep it off open networks.",
)
@click.option(
    "--store",
    envvar="HANGDOG_STORE",
    default=default_store,
    show_default="~/.local/state/hangdog/incidents.db",
    show_envvar=True,
    metavar="FILE|URL",
    help="SQLite file that holds the incidents, made when it does not exist; or postgresql://USER@HOST/DATABASE.",
)
@click.option(
    "--patience",
    type=click.FloatRange(0, 3600, min_open=True),
    metavar="SECONDS",
    help="How long a machine's answer is waited for after its last look.  [default: 20]",
)
@click.option(
    "--keep",
    type=click.FloatRange(0),
    metavar="DAYS",
    help="How long incidents and verdicts are kept; 0: for ever.  [default: 365]",
)
@click.option(
    "--keep-captures",
    type=click.FloatRange(0),
    metavar="DAYS",
    help="How long their raw captures are kept; 0: for ever.  [default: 30]",
)
@click.option(
    "--keep-size",
    type=click.FloatRange(0),
    metavar="GIB",
    help="How much all that may take; 0: no bound.  [default: 10]",
)
def command(
    listen: str,
    store: str,
    patience: float | None,
    keep: float | None,
    keep_captures: float | None,
    keep_size: float | None,
) -> None:
    """Run the server: one for each cluster.

    Agents connect to it, people ask it. Once it can be reached it prints `listening on HOST:PORT`, then its log goes to
    stderr until SIGTERM or Ctrl-C ends it.
    """
    from hangdog_models.diagnosis.judge import diagnose  # here: the server's packages come with an extra
    from hangdog_server.main import serve
    from hangdog_server.settings import Settings

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    settings = Settings()
    settings = settings if patience is None else replace(settings, patience_s=patience)
    settings = settings if keep is None else replace(settings, keep_s=keep * DAY_S)
    settings = settings if keep_captures is None else replace(settings, keep_captures_s=keep_captures * DAY_S)
    settings = settings if keep_size is None else replace(settings, keep_bytes=int(keep_size * (1 << 30)))
    asyncio.run(serve(listen, store, diagnose, lambda address: click.echo(f"listening on {address}"), settings))
