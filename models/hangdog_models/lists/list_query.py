"""What is asked of a list, as it stands in an address and in an option: search, filters, order and page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from hangdog_models.errors import WrongUse
from hangdog_models.lists.list_kinds import ListKind

#: Characters of a search: more is no name of anything.
LONGEST = 200
#: Terms of a search; each has to be found.
TERMS = 8
#: The highest number of a page.
LAST_PAGE = 1_000_000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A page of a list: the lines that hold every term of `search`, are in one of `states`, and are of `job`.

    Empty: all of them. Capitals make no difference. Of `limit` lines a page, the `page`th, 1 the first.
    """

    kind: ListKind
    search: str = ""
    states: tuple[str, ...] = ()
    job: str = ""
    sort: str = ""
    limit: int = 50
    page: int = 1

    @property
    def terms(self) -> tuple[str, ...]:
        """What a line has to hold, in small letters."""
        return tuple(self.search.lower().split())

    @property
    def order(self) -> tuple[str, bool]:
        """The order and whether it is turned around."""
        chosen = self.sort or self.kind.sorts[0]
        return chosen.removeprefix("-"), chosen.startswith("-")

    @property
    def offset(self) -> int:
        """How many lines come before the page."""
        return (self.page - 1) * self.limit

    @property
    def narrowed(self) -> bool:
        """Whether it asks for some of the lines only."""
        return bool(self.search or self.states or self.job)


def query_of(kind: ListKind, asked: Mapping[str, Sequence[str]], limit: int, most: int) -> ListQuery:
    """The query of these parameters, of an address; raises WrongUse. `limit` lines where none is said, `most` at most.

    A name is given once, but `state`, which may come several times, or with commas between.
    """

    def one(name: str, otherwise: str = "") -> str:
        return asked[name][0] if asked.get(name) else otherwise

    states = tuple(state for text in asked.get("state", ()) for state in text.split(",") if state)
    lines = whole("limit", one("limit") or str(limit), most)
    page = whole("page", one("page") or "1", LAST_PAGE)
    return checked(ListQuery(kind, one("search").strip(), states, one("job"), one("sort"), lines, page))


def whole(name: str, stated: str, most: int) -> int:
    """A whole number from 1 on, and `most` where it is higher; raises WrongUse."""
    if not (stated.isascii() and stated.isdecimal() and len(stated) < 8 and int(stated)):
        raise WrongUse(
            f"{stated[:20]!r} is no {name}",
            f"give {name}=50" if name == "limit" else f"give {name}=1",
            code="not-a-number",
        )
    return min(int(stated), most)


def checked(query: ListQuery) -> ListQuery:
    """The query, each state once; raises WrongUse where its list knows no such state or order."""
    kind = query.kind
    for state in query.states:
        if state not in kind.states:
            raise WrongUse(
                f"{state[:40]!r} is no state of the {kind.name}",
                f"one of {', '.join(kind.states)}",
                code="unknown-choice",
            )
    if query.sort and query.order[0] not in {sort.removeprefix("-") for sort in kind.sorts}:
        raise WrongUse(
            f"the {kind.name} have no order {query.sort[:40]!r}",
            f"one of {', '.join(kind.sorts)}",
            code="unknown-choice",
        )
    if len(query.search) > LONGEST:
        raise WrongUse(f"a search has {LONGEST} characters at most", "give a part of a name", code="too-long")
    if len(query.terms) > TERMS:
        raise WrongUse(f"a search has {TERMS} terms at most", "give fewer", code="too-many")
    return replace(query, states=tuple(dict.fromkeys(query.states)))


def parameters(query: ListQuery, limit: int) -> str:
    """The query as the end of an address, with its `?`; empty for the first page of all lines. `limit` need not be said."""
    stated = [("search", query.search), *(("state", state) for state in query.states), ("job", query.job)]
    stated += [("sort", query.sort), ("limit", str(query.limit) if query.limit != limit else "")]
    stated.append(("page", str(query.page) if query.page > 1 else ""))
    text = urlencode([(name, value) for name, value in stated if value])
    return f"?{text}" if text else ""
