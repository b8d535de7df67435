"""`hangdog stacks` shows the raw stacks of one rank."""

import json
import sys
from collections import Counter
from collections.abc import Iterator

import click
from rich.console import Console

from hangdog.evidence.cases import Evidence, evidence
from hangdog.options import RANK, evidence_argument, format_option, server_option
from hangdog.output.lines import Line, print_line, print_sections
from hangdog.output.raw_stacks import frame_text, state_text, thread_json, thread_text
from hangdog.output.terminal import console_for
from hangdog_models.diagnosis.observe.activity import main_thread
from hangdog_models.ranks import Rank
from hangdog_models.reading.printable import printable
from hangdog_models.views.one_rank import RankView, alike
from hangdog_proto.client.server_address import ServerAddress

#: Different names of threads that stand alike, and threads of one process in all; JSON has the others.
NAMES, THREADS = 6, 200
#: Columns by which the rest of a wrapped frame is indented: it must not read as a frame of its own.
HANG = 4


@click.command("stacks")
@evidence_argument
@click.argument("rank", type=RANK)
@click.option("--look", type=click.IntRange(0), help="Of this look.  [default: the last one that saw stacks]")
@format_option
@server_option
def command(where: str, rank: int, look: int | None, form: str, server: ServerAddress) -> None:
    """Show the raw stacks of RANK: every process, every thread, outermost call first.

    ID is an incident of the server (its beginning is enough). BUNDLE is a folder or archive, and needs no server.

    \b
    hangdog stacks 3fa9 517
    hangdog stacks ./hang-of-noon 517 --look 0
    hangdog stacks 3fa9 517 --format json | jq '.processes[0].threads[0].frames'
    """
    found = evidence(where, server)
    seen = found.processes_of(rank, look)
    if form == "json":
        click.echo(json.dumps(_as_json(found, rank, seen), indent=2))
    else:
        show(found, rank, seen, console_for(sys.stdout))


def show(found: Evidence, rank: int, seen: tuple[RankView, ...], console: Console) -> None:
    """Prints every process of the rank."""
    machine = found.topology.machine(Rank(rank))
    on = f" on {printable(machine)}" if machine else ""
    print_line(Line(f"rank {rank}{on}, job {printable(found.snapshot.job.id) or '(unnamed)'}"), console, "bold")
    print_sections(((_title(one), _process(one)) for one in seen), console)


def _title(seen: RankView) -> str:
    trace = seen.trace
    pid = f", pid {trace.pid}" if trace.pid else ""
    state = state_text(trace.state)
    return f"{printable(trace.role)}{pid}, look {seen.look}{f': {state}' if state else ''}"


def _process(seen: RankView) -> Iterator[Line]:
    trace = seen.trace
    if trace.missing:
        yield Line(printable(str(trace.missing)), "! ")
    elif not trace.threads:
        yield Line("no threads were seen")
    main = main_thread(trace)
    for together in alike(trace.threads[:THREADS], main):
        names = Counter(thread_text(thread, thread is main) for thread in together)
        shown = [f"{name} ({times} alike)" if times > 1 else name for name, times in names.items()]
        others = f" and {len(shown) - NAMES} more names" if len(shown) > NAMES else ""
        yield Line("; ".join(shown[:NAMES]) + others)
        yield from (Line(frame_text(frame), "  ", hang=HANG) for frame in together[0].frames)
    if len(trace.threads) > THREADS:
        yield Line(f"... and {len(trace.threads) - THREADS} more threads: --format json has all")


def _as_json(found: Evidence, rank: int, seen: tuple[RankView, ...]) -> dict[str, object]:
    return {
        "schema": "hangdog.stacks/1",
        **found.as_json(),
        "rank": rank,
        "machine": found.topology.machine(Rank(rank)),
        "processes": [_process_json(one) for one in seen],
    }


def _process_json(seen: RankView) -> dict[str, object]:
    trace, main = seen.trace, main_thread(seen.trace)
    return {
        "role": trace.role,
        "pid": trace.pid,
        "look": seen.look,
        "state": trace.state.state if trace.state else None,
        "wchan": trace.state.wchan if trace.state else None,
        "missing": str(trace.missing) if trace.missing else None,
        "threads": [thread_json(thread, thread is main) for thread in trace.threads],
    }
