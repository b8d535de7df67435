"""What lists are asked by on the command line: the same words as in the addresses of their pages."""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from hangdog_models.lists.list_kinds import ListKind
from hangdog_models.lists.list_page import ListPage
from hangdog_models.lists.list_query import LAST_PAGE, ListQuery, checked

Command = TypeVar("Command", bound=Callable[..., Any])
#: Lines that a server sends at once, and those of a page where nobody says how many.
MOST, LINES = 1000, 50


def list_options(kind: ListKind) -> Callable[[Command], Command]:
    """The options of a list; given as `query`."""

    def wrapped(command: Command) -> Command:
        @functools.wraps(command)
        def asking(
            *args: Any,
            search: str,
            states: tuple[str, ...],
            sort: str,
            limit: int,
            page: int,
            job: str = "",
            **others: Any,
        ) -> Any:
            query = checked(ListQuery(kind, search.strip(), states, job, sort, limit, page))
            return command(*args, query=query, **others)

        both = [turned for one in kind.sorts for turned in (one, one[1:] if one.startswith("-") else f"-{one}")]
        options = [
            click.option("--page", type=click.IntRange(1, LAST_PAGE), default=1, show_default=True, help="Which page."),
            click.option(
                "--limit", type=click.IntRange(1, MOST), default=LINES, show_default=True, help="Lines of a page."
            ),
            click.option(
                "--sort", type=click.Choice(both), default=kind.sorts[0], show_default=True, metavar="ORDER",
                help=f"One of {', '.join(kind.sorts)}; with - before it turned around.",
            ),
            click.option(
                "--state", "states", type=click.Choice(kind.states), multiple=True, metavar="STATE",
                help=f"Only those in it; several: in one of them. One of {', '.join(kind.states)}.",
            ),
            click.option("--search", default="", metavar="TERMS", help="Only lines that hold each of these terms."),
        ]  # fmt: skip
        if kind.by_job:
            options.append(click.option("--job", default="", help="Only those of this job."))
        for option in options:
            asking = option(asking)
        return cast(Command, asking)

    return wrapped


def list_document(page: ListPage[Any]) -> dict[str, object]:
    """How much of a list a JSON document holds."""
    return {
        "found": page.found, "known": page.known, "page": page.query.page, "pages": page.pages, "limit": page.query.limit,
        "counts": dict(page.counts),
    }  # fmt: skip


def say_extent(page: ListPage[Any], form: str = "text") -> None:
    """Says which lines these are where they are not all; beside a JSON document, for people, on stderr."""
    if page.rows and len(page.rows) == page.found and not page.query.narrowed:
        return
    more = f"; --page {page.query.page + 1} shows more" if page.query.page < page.pages else ""
    if form != "json" or more:
        print(f"{page.summary}{more}", file=sys.stderr if form == "json" else sys.stdout)
