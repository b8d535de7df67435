"""`hangdog diff` shows the stacks of two ranks side by side."""

import json
import sys

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from hangdog.evidence.cases import Evidence, evidence
from hangdog.options import RANK, evidence_argument, format_option, server_option
from hangdog.output.raw_stacks import frame_fitted, frame_json
from hangdog.output.terminal import console_for
from hangdog_models.diagnosis.observe.activity import main_thread
from hangdog_models.ranks import Rank
from hangdog_models.reading.printable import printable
from hangdog_models.stack import Frame
from hangdog_models.views.one_rank import RankView
from hangdog_models.views.stack_diff import Alike, DiffRow, side_by_side
from hangdog_proto.client.server_address import ServerAddress

#: What stands between two frames, as `diff --side-by-side` has it; the sign tells it without colour, too.
SIGNS = {Alike.SAME: " ", Alike.LINE: "|", Alike.LEFT: "<", Alike.RIGHT: ">"}
STYLES = {Alike.SAME: "dim", Alike.LINE: "yellow", Alike.LEFT: "red", Alike.RIGHT: "green"}


@click.command("diff")
@evidence_argument
@click.argument("left", type=RANK)
@click.argument("right", type=RANK)
@format_option
@server_option
def command(where: str, left: int, right: int, form: str, server: ServerAddress) -> None:
    """Show where the stacks of two ranks differ: the threads that train, side by side, outermost call first.

    Between them, | means that only the line differs, < and > that only one of them has the call.

    ID is an incident of the server (its beginning is enough). BUNDLE is a folder or archive, and needs no server.

    \b
    hangdog diff 3fa9 517 0
    hangdog diff ./hang-of-noon 517 0
    """
    found = evidence(where, server)
    rows = side_by_side(_frames(found.stack(left)), _frames(found.stack(right)))
    if form == "json":
        click.echo(json.dumps(_as_json(found, (left, right), rows), indent=2))
    else:
        show(found, (left, right), rows, console_for(sys.stdout))


def show(found: Evidence, ranks: tuple[int, int], rows: tuple[DiffRow, ...], console: Console) -> None:
    """Prints the two stacks in as many columns as the console has; a frame that is wider is cut."""
    width = max((console.width - 3) // 2, 1)
    titles = [_titled(found, rank) for rank in ranks]
    console.print(Text(" | ".join(_cell(title, width) for title in titles).rstrip(), "bold"), soft_wrap=True)
    for row in rows:
        left, right = (_cell(frame_fitted(frame, width) if frame else "", width) for frame in (row.left, row.right))
        line = f"{left} {SIGNS[row.alike]} {right}".rstrip()
        console.print(Text(line, STYLES[row.alike]), soft_wrap=True)
    if all(row.alike is Alike.SAME for row in rows):
        console.print(Text("both stand at the same lines"))


def _titled(found: Evidence, rank: int) -> str:
    machine = found.topology.machine(Rank(rank))
    return f"rank {rank}{f' on {printable(machine)}' if machine else ''}"


def _cell(text: str, width: int) -> str:
    if cell_len(text) > width:
        text = f"{set_cell_size(text, width - 1).rstrip()}…"
    return set_cell_size(text, width)


def _frames(seen: RankView) -> tuple[Frame, ...]:
    """The stack of the thread that trains; of a process in which none is told to, its first."""
    thread = main_thread(seen.trace) or seen.trace.threads[0]
    return thread.frames


def _as_json(found: Evidence, ranks: tuple[int, int], rows: tuple[DiffRow, ...]) -> dict[str, object]:
    return {
        "schema": "hangdog.diff/1",
        **found.as_json(),
        "ranks": list(ranks),
        "machines": [found.topology.machine(Rank(rank)) for rank in ranks],
        "rows": [
            {
                "alike": str(row.alike),
                "left": frame_json(row.left) if row.left else None,
                "right": frame_json(row.right) if row.right else None,
            }
            for row in rows
        ],
    }
