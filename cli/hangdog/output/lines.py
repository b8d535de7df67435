"""Lines as a person's terminal is given them: what wraps stays under its own text, and only a frame is cut."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hangdog.output.raw_stacks import fitted
from hangdog_models.counts import counted
from hangdog_models.reading.printable import printable

#: Characters of a foreign name or note in a table: an honest one is shorter, and JSON has all of it.
CELL = 240
#: Columns of names that hangdog made, to be copied into the next command.
UNWRAPPED = ("incident", "campaign")


class Line(NamedTuple):
    """One line of a section: `mark` stands before it, and what wraps is indented under `text`, and by `hang` more columns.

    A frame is cut instead.
    """

    text: str
    mark: str = ""
    frame: bool = False
    hang: int = 0


def print_line(line: Line, console: Console, style: str = "") -> None:
    """Prints a line that is never wider than the console."""
    width = max(console.width - cell_len(line.mark), 1)
    text = Text(fitted(line.text, width) if line.frame else line.text, style or ("dim" if line.frame else ""))
    room = width if text.cell_len <= width else max(width - line.hang, 1)
    for number, part in enumerate([text] if line.frame else text.wrap(console, room, overflow="fold")):
        whole = Text(line.mark if number == 0 else " " * (len(line.mark) + line.hang)).append_text(part)
        whole.rstrip()
        console.print(whole, soft_wrap=True)


def print_sections(sections: Iterable[tuple[str, Iterable[Line]]], console: Console) -> None:
    """Prints each section under its title; one without lines is left out."""
    for title, lines in sections:
        for number, line in enumerate(lines):
            if number == 0:
                console.print()
                console.print(Text(title, "bold"))
            print_line(line._replace(mark=f"  {line.mark}"), console)


def more(rest: int, what: str, where: str = "--format json") -> Iterator[Line]:
    """How many are not shown, where that is any, and what shows them."""
    if rest > 0:
        yield Line(f"... and {counted(rest, f'more {what}')}: {where} has all")


def table(*titles: str) -> Table:
    """A table without lines, whose cells wrap where the console ends; a name to be typed stays in one piece where it can."""
    rows = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        rows.add_column(title, overflow="fold", no_wrap=title in UNWRAPPED)
    return rows


def add_row(rows: Table, *cells: str) -> None:
    """Adds a row of foreign text: printable, bounded, and never read as markup."""
    rows.add_row(*(Text(printable(cell, CELL)) for cell in cells))
