"""A page of a list by one search: how many lines there are by their states, and which lines are on it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from hangdog_models.lists.list_page import ListPage
from hangdog_models.lists.list_query import ListQuery
from hangdog_server.store.tables import storable

Query = TypeVar("Query", bound=sa.Select[*tuple[Any, ...]])


def contains(text: sa.ColumnElement[Any], term: str) -> sa.ColumnElement[bool]:
    """Whether a text holds a term, whatever its capitals."""
    return text.icontains(storable(term), autoescape=True)


def joined(*columns: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
    """Columns as one text to search in, so that a term is looked for once a line."""
    text: sa.ColumnElement[str] = sa.cast(columns[0], sa.Text)
    for column in columns[1:]:
        text = text + sa.literal("\n") + sa.cast(column, sa.Text)
    return text


def hinted(query: Query, lines: sa.Table, index: str) -> Query:
    """The query, which SQLite answers from the index of this name; empty: as it likes."""
    return query.with_hint(lines, f"INDEXED BY {index}", "sqlite") if index else query


def paged(
    connection: sa.Connection,
    lines: sa.Table,
    key: Sequence[sa.ColumnElement[Any]],
    state: sa.ColumnElement[str],
    matching: Sequence[sa.ColumnElement[bool]],
    sorts: Mapping[str, sa.ColumnElement[Any]],
    query: ListQuery,
    index: str = "",
) -> ListPage[tuple[Any, ...]]:
    """The page of these lines, each by its `key`, in which order ties are, too; SQLite reads them in the `index` that is named."""

    def of_lines(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
        return hinted(sa.select(*columns).select_from(lines), lines, index)

    sort, backwards = query.order
    order = sorts[sort].desc() if backwards else sorts[sort].asc()
    # a search is what costs: it is made once for the page and for the counts
    matched = connection.execute(of_lines(*key, state).where(*matching).order_by(order, *key)).all()
    counted = Counter(row[-1] for row in matched)
    wanted = [tuple(row[:-1]) for row in matched if not query.states or row[-1] in query.states]
    searched = bool(query.search or query.job)
    known = connection.execute(of_lines(sa.func.count())).scalar_one() if searched else len(matched)
    rows = tuple(wanted[query.offset : query.offset + query.limit])
    return ListPage(rows, len(wanted), known, {name: counted[name] for name in query.kind.states}, query)
