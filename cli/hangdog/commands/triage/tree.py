"""`hangdog tree` shows the stacks of all ranks, merged."""

import json
import sys
from collections.abc import Iterator, Sequence

import click
from rich.console import Console

from hangdog.evidence.cases import Evidence, evidence
from hangdog.options import evidence_argument, format_option, server_option
from hangdog.output.lines import Line, print_line
from hangdog.output.raw_stacks import NAME
from hangdog.output.terminal import console_for
from hangdog_models.counts import counted
from hangdog_models.ranks import Runs, format_runs, meet, runs_of, size
from hangdog_models.reading.printable import printable
from hangdog_models.views import stack_tree, unique_stacks
from hangdog_models.views.collapsed_tree import Branch, folded
from hangdog_models.views.stack_tree import Call, Node
from hangdog_proto.client.server_address import ServerAddress

#: Limbs for people, unless they ask for all: a few screens.
BRANCHES = 60
#: Calls of one limb at its beginning and at its end that are shown; what lies between has no fork.
FIRST, LAST = 1, 3
#: Forks that are indented further: deeper ones stand below each other, and their depth is told.
INDENTED = 12
#: Characters of a rank set.
SET = 48


@click.command("tree")
@evidence_argument
@click.option("--all", "whole", is_flag=True, help="Every call and every part, however many there are.")
@format_option
@server_option
def command(where: str, whole: bool, form: str, server: ServerAddress) -> None:
    """Show the stacks of all ranks as one tree, with the ranks inside of each part.

    Calls without a fork between them are one part. ! marks a part with a suspected rank.

    ID is an incident of the server (its beginning is enough). BUNDLE is a folder or archive, and needs no server.

    \b
    hangdog tree 3fa9
    hangdog tree ./hang-of-noon --all
    """
    found = evidence(where, server)
    nodes = stack_tree.merged(unique_stacks.of(found.snapshot.rounds).trainers())
    if form == "json":
        document = {"schema": "hangdog.tree/1", **found.as_json(), "calls": [_as_json(node) for node in nodes]}
        click.echo(json.dumps(document, indent=2))
    else:
        show(found, nodes, whole, console_for(sys.stdout))


def show(found: Evidence, nodes: Sequence[Node], whole: bool, console: Console) -> None:
    """Prints the tree, the parts with suspects and those with most ranks first where not all are shown."""
    if not nodes:
        print_line(Line(f"no stack was captured in {found.named}"), console)
        return
    suspected = runs_of(rank for suspect in found.verdict().suspects for rank in suspect.ranks)
    for limb in folded(nodes, suspected, len(nodes) if whole else BRANCHES):
        for line in _branch(limb, suspected, whole):
            print_line(line, console, "bold" if limb.suspect and not line.frame else "")


def _branch(branch: Branch, suspected: Runs, whole: bool) -> Iterator[Line]:
    indent = "  " * min(branch.depth, INDENTED)
    deeper = f", {branch.depth} forks deep" if branch.depth > INDENTED else ""
    mark = "!" if branch.suspect else "-"
    yield Line(f"{counted(size(branch.ranks), 'rank')}: {_set(branch.ranks)}{deeper}", f"{indent}{mark} ")
    hidden = 0 if whole else len(branch.calls) - FIRST - LAST
    shown = branch.calls if hidden <= 1 else (*branch.calls[:FIRST], None, *branch.calls[-LAST:])
    for call in shown:
        yield Line(_call(call) if call else f"... {counted(hidden, 'call')}", f"{indent}  ", frame=True)
    if branch.ends and branch.ends != branch.ranks:
        mark = "!" if meet(suspected, branch.ends) else "-"
        end = "ends" if size(branch.ends) == 1 else "end"
        yield Line(f"{counted(size(branch.ends), 'rank')} {end} here: {_set(branch.ends)}", f"{indent}  {mark} ")
    if branch.hidden:
        yield Line(f"... and {counted(branch.hidden, 'more part')}: --all has them", f"{indent}  ")


def _call(call: Call) -> str:
    return f"{printable(call.function, NAME)} ({printable(call.file, NAME)})"


def _set(ranks: Runs) -> str:
    text = format_runs(ranks)
    return text if len(text) <= SET else f"{text[:SET].rpartition(',')[0]},..."


def _as_json(node: Node) -> dict[str, object]:
    """A call; `caller` is the place of its caller in the list, null of an outermost one."""
    return {
        "function": node.call.function,
        "file": node.call.file,
        "native": node.call.native,
        "caller": None if node.parent < 0 else node.parent,
        "depth": node.depth,
        "ranks": format_runs(node.ranks),
        "ends": format_runs(node.ends),
    }
