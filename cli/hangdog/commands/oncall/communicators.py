"""`hangdog communicators` lists how the communicators of a running job go on, and who is behind in each."""

import json
import sys

import click
from rich.table import Table

from hangdog.options import format_option, server_option
from hangdog.output.lines import add_row, table
from hangdog.output.terminal import console_for
from hangdog.output.times import ago
from hangdog_models.counts import counted
from hangdog_models.progress.communicator_window import CommunicatorState, JobCommunicator
from hangdog_models.ranks import format_ranks
from hangdog_models.views import communicator_text
from hangdog_proto.client.communicator_client import CommunicatorClient
from hangdog_proto.client.server_address import ServerAddress


@click.command("communicators")
@click.argument("job")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
@format_option
@server_option
def command(job: str, limit: int, form: str, server: ServerAddress) -> None:
    """List the communicators of a running job, those first in which a rank waits: how each goes on, and who is behind in it.

    Only trainers that keep a ring are seen: NCCL's profiler plug-in or `hangdog.trace()` keeps one.

    In JSON `state` is one of waits, rests, moves. `lowest` and `highest` say how many collectives the ranks have entered.

    \b
    hangdog communicators llama
    hangdog communicators llama --format json | jq '.communicators[] | select(.behind != []) | .behind'
    """
    with CommunicatorClient(server) as client:
        found = client.communicators(job, limit)
    if form == "json":
        listed = [_as_json(one) for one in found.communicators]
        document = {"schema": "hangdog.communicators/1", "job": job, "communicators": listed}
        click.echo(json.dumps({**document, "found": found.found, "left_out": found.left_out}, indent=2))
    elif found.communicators:
        console_for(sys.stdout).print(_table(found.communicators))
    else:
        click.echo("no trainer of it keeps a ring that an agent has read; see docs/profiler.md")
    if found.found > len(found.communicators):
        click.echo(f"{len(found.communicators)} of {found.found:,} communicators; --limit shows more", err=True)
    if found.left_out:
        click.echo(f"{counted(found.left_out, 'communicator')} of single machines found no room", err=True)


def _as_json(one: JobCommunicator) -> dict[str, object]:
    return {
        "communicator": communicator_text.number(one.communicator),
        "name": one.name,
        "size": one.size,
        "seen": one.seen,
        "machines": one.machines,
        "state": str(one.state),
        "rate": round(one.rate, 2),
        "lowest": one.lowest,
        "highest": one.highest,
        "behind": [{"machine": each.machine, "ranks": format_ranks(each.ranks)} for each in one.behind],
        "behind_ranks": one.behind_ranks,
        "idle_s": round(one.idle_s, 1),
        "age_s": round(one.age_s, 1) if one.age_s is not None else None,
        "operation": one.operation,
        "oldest": one.oldest,
        "completed_only": one.completed_only,
    }


def _table(communicators: tuple[JobCommunicator, ...]) -> Table:
    rows = table("communicator", "state", "behind", "entered", "ranks seen")
    for one in communicators:
        lasts = "" if one.state is CommunicatorState.MOVES else f" for {ago(communicator_text.lasts_s(one))}"
        add_row(
            rows,
            communicator_text.title(one),
            communicator_text.state_text(one) + lasts,
            communicator_text.behind_text(one) or "-",
            communicator_text.orders_text(one) or "-",
            communicator_text.seen_text(one),
        )
    return rows
