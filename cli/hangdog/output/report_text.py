"""An operations report as a person reads it in a terminal of 80 columns."""

import sys
from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hangdog.output.terminal import console_for, printable
from hangdog.output.times import local_time
from hangdog_models.operations.figure_text import UNKNOWN, cases, duration, rests, value
from hangdog_models.operations.report import Figure, Machines, OperationsReport, ReportTable, Training

#: Columns of a report: what fits into a mail and a terminal as it opens.
WIDTH = 80
#: Characters of the longest bar.
BAR = 24


def print_report(report: OperationsReport) -> None:
    """Prints a report to standard output."""
    console = console_for(sys.stdout)
    for part in _parts(report):
        console.print(part, width=min(WIDTH, console.width))


def _parts(report: OperationsReport) -> Iterator[RenderableType]:
    yield _line(f"from {local_time(report.since)} to {local_time(report.until)}, by {report.basis}", "bold")
    for note in report.notes:
        yield _line(note, "yellow")
    yield ""
    yield _figures(report.figures)
    for breakdown in report.tallies:
        yield ""
        yield _line(f"{breakdown.title}: {cases(breakdown.total, breakdown.of)}", "bold")
        if breakdown.total:
            yield _bars(breakdown)
    yield ""
    yield from _jobs(report.training)
    yield ""
    yield from _machines(report.machines)
    yield ""
    yield _line("what these figures are", "bold")
    meanings: list[Figure | ReportTable] = [*report.figures, *report.tallies]
    for one in meanings:
        yield Padding(_line(_meaning(one)), (0, 0, 0, 2))
    if report.training.definition:
        yield Padding(_line(f"jobs: {report.training.definition}"), (0, 0, 0, 2))
    yield Padding(_line(f"machines: {report.machines.definition}"), (0, 0, 0, 2))


def _figures(figures: tuple[Figure, ...]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("figure")
    for name in ("value", "median", "longest"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("rests on")
    for one in figures:
        times = ("" if number is None else value(one, number) for number in (one.median, one.longest))
        _row(table, one.title, value(one, one.value), *times, rests(one))
    return table


def _bars(breakdown: ReportTable) -> Table:
    most = max(count for _, count in breakdown.counts)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for label, count in breakdown.counts:
        _row(table, label, str(count), "#" * -(-BAR * count // most))
    return table


def _jobs(training: Training) -> Iterator[RenderableType]:
    if not training.listed:
        yield _line("of no job is it known when it trained", "bold")
        return
    of = f", the first {len(training.listed)} of {training.known}" if training.known > len(training.listed) else ""
    yield _line(f"jobs, {training.seen}{of}", "bold")
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("job", overflow="fold")
    for name in ("ETTR", "known", "lost", "failures", "restarts"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in training.listed:
        ettr = UNKNOWN if one.share is None else f"{100 * one.share:.1f}%"
        _row(table, one.job, ettr, duration(one.watched), duration(one.lost), str(one.failures), str(one.restarts))
    yield table


def _machines(machines: Machines) -> Iterator[RenderableType]:
    if not machines.listed:
        yield _line("no machine was named", "bold")
        return
    of = f", the first {len(machines.listed)} of {machines.named}" if machines.named > len(machines.listed) else ""
    yield _line(f"machines that were named{of}", "bold")
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("machine", overflow="fold")
    for name in ("convicted", "suspected", "cleared", "weight"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in machines.listed:
        counts = (str(one.convicted), str(one.suspected), str(one.cleared), f"{one.weight:.2f}")
        _row(table, one.machine, *counts, "lemon" if one.lemon else "")
    yield table


def _meaning(one: Figure | ReportTable) -> str:
    missing = isinstance(one, Figure) and one.value is None
    unknown = f" {'Unknown: ' if missing else 'Note: '}{one.unknown}." if one.unknown else ""
    return f"{one.title}: {one.definition}{unknown}"


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style)


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(printable(cell)) for cell in cells))
