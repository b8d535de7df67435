"""`hangdog server` runs the server."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import click

from hangdog_proto.client import DEFAULT_ADDRESS
from hangdog_proto.logs import FORMS, configure


def default_store() -> Path:
    """Where the XDG specification wants what a program remembers."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "hangdog" / "incidents.db"


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
    type=click.Path(dir_okay=False, path_type=Path),
    default=default_store,
    show_default="~/.local/state/hangdog/incidents.db",
    help="SQLite file that holds the incidents; made when it does not exist.",
)
@click.option(
    "--patience",
    type=click.FloatRange(0, 3600, min_open=True),
    metavar="SECONDS",
    help="How long a machine's answer is waited for after its last look.  [default: 20]",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve Prometheus metrics at http://HOST:PORT/metrics, to whoever reaches it; port 0 takes a free one.  [default: nowhere]",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMS),
    default=FORMS[0],
    show_default=True,
    help="How the log is written: lines for people, or one JSON object a line.",
)
def command(listen: str, store: Path, patience: float | None, metrics: str | None, log_format: str) -> None:
    """Run the server: one for each cluster.

    Agents connect to it, people ask it. Once it can be reached it prints `listening on HOST:PORT`, then its log goes to
    stderr until SIGTERM or Ctrl-C ends it.
    """
    from hangdog_models.diagnosis.judge import diagnose  # here: the server's packages come with an extra
    from hangdog_server.main import serve
    from hangdog_server.settings import Settings

    configure(log_format, "%(asctime)s %(levelname)s %(message)s")
    settings = Settings() if patience is None else replace(Settings(), patience_s=patience)
    asyncio.run(
        serve(listen, store, diagnose, lambda address: click.echo(f"listening on {address}"), settings, metrics or "")
    )
