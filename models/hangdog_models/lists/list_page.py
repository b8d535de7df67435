"""One page of a list, how many lines there are by their states, and words for what is not on it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hangdog_models.lists.list_query import ListQuery

Row = TypeVar("Row")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True)
class ListEntry(Generic[Row]):
    """A line that is searched in memory: `text` in small letters, its states and its jobs."""

    row: Row
    text: str
    states: tuple[str, ...]
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListPage(Generic[Row]):
    """The lines of a page. `found` lines are asked for, of `known` ones.

    `counts` are those that match search and job by their states, whatever states are asked for: what another filter would find.
    """

    rows: tuple[Row, ...]
    found: int
    known: int
    counts: Mapping[str, int]
    query: ListQuery

    @property
    def pages(self) -> int:
        """How many pages there are, an empty list has one."""
        return max(1, -(-self.found // self.query.limit))

    @property
    def summary(self) -> str:
        """Which lines these are of how many: nothing is cut without it."""
        name = self.query.kind.single if self.found == 1 else self.query.kind.name
        of_all = f" of {self.known:,} known" if self.query.narrowed else ""
        if not self.rows:
            if self.found:
                return f"page {self.query.page:,} is empty: {self.found:,} {name} are on {self.pages:,} pages"
            return (
                f"none of {self.known:,} {self.query.kind.name}"
                if self.query.narrowed
                else f"no {self.query.kind.name}"
            )
        if len(self.rows) == self.found:
            return f"{self.found:,} {name}{of_all}"
        first = self.query.offset + 1
        return f"{first:,} to {first + len(self.rows) - 1:,} of {self.found:,} {name}{of_all}"

    def with_rows(self, rows: Sequence[Other]) -> "ListPage[Other]":
        """The same page with its lines as something else."""
        return ListPage(tuple(rows), self.found, self.known, self.counts, self.query)


def page_of(entries: Sequence[ListEntry[Row]], query: ListQuery) -> ListPage[Row]:
    """The page of lines that are in memory, which come in the order that is asked for, not turned around."""
    matching: Sequence[ListEntry[Row]] = entries
    for term in query.terms:
        matching = [one for one in matching if term in one.text]
    if query.job:
        matching = [one for one in matching if query.job in one.jobs]
    counts = Counter(state for one in matching for state in one.states)
    if query.states:
        wanted = frozenset(query.states)
        matching = [one for one in matching if not wanted.isdisjoint(one.states)]
    found = len(matching)
    first = query.offset
    if query.order[1]:
        matching = matching[::-1]
    rows = tuple(one.row for one in matching[first : first + query.limit])
    return ListPage(rows, found, len(entries), {state: counts[state] for state in query.kind.states}, query)
