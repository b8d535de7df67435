"""`hangdog server` runs the server."""

import asyncio
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

import click

from hangdog_proto.client import DEFAULT_ADDRESS


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
def command(listen: str, store: str, patience: float | None) -> None:
    """Run the server: one for each cluster.

    Agents connect to it, people ask it. Once it can be reached it prints `listening on HOST:PORT`, then its log goes to
    stderr until SIGTERM or Ctrl-C ends it.
    """
    from hangdog_models.diagnosis.judge import diagnose  # here: the server's packages come with an extra
    from hangdog_server.main import serve
    from hangdog_server.settings import Settings

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    settings = Settings() if patience is None else replace(Settings(), patience_s=patience)
    asyncio.run(serve(listen, store, diagnose, lambda address: click.echo(f"listening on {address}"), settings))
