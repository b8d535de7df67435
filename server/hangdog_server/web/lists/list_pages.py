"""The four lists as pages and as JSON; what is asked stands in the address, and what is cut is said."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hangdog_models.lists.list_kinds import ACTIONS, INCIDENTS, JOBS, MACHINES, ListKind
from hangdog_models.lists.list_page import ListPage
from hangdog_models.lists.list_query import ListQuery, parameters, query_of
from hangdog_server.auth.authorizer import Person
from hangdog_server.cluster.job_states import KnownJob, jobs_mark
from hangdog_server.grpc_api.action_service import ActionService
from hangdog_server.grpc_api.lists.list_service import Lists
from hangdog_server.settings import ServerSettings
from hangdog_server.store import actions
from hangdog_server.store.store import Store
from hangdog_server.web import api
from hangdog_server.web.history import History
from hangdog_server.web.lists import list_rows
from hangdog_server.web.lists.drawing import Drawing
from hangdog_server.web.lists.list_rows import Column, TableRow
from hangdog_server.web.live_feed import events
from hangdog_server.web.marks import Marks
from hangdog_server.web.render import page
from hangdog_server.web.request_guard import Answer, Guard, nav

#: Lines of one page for people: a phone stacks them, and nobody scrolls through more. Programs get as many as settings allow.
LINES = (20, 50, 100, 200)
#: How long a page shows how long ago something was, to whom no script keeps it true. Seconds.
AGED_S = 30.0


@dataclass(frozen=True, slots=True)
class ListLook:
    """How a list looks: its title, its columns, what a search may be, and what is said where it is empty."""

    kind: ListKind
    heading: str
    columns: tuple[Column, ...]
    example: str
    nothing: str


LOOKS = (
    ListLook(INCIDENTS, "Incidents", list_rows.INCIDENT_COLUMNS, "job, machine, id, verdict", "No incident is known."),
    ListLook(JOBS, "Jobs", list_rows.JOB_COLUMNS, "job or its state", "No connected machine runs a job."),
    ListLook(MACHINES, "Machines", list_rows.MACHINE_COLUMNS, "machine, job, finding", "No agent has connected yet."),
    ListLook(ACTIONS, "Actions", list_rows.ACTION_COLUMNS, "machine, job, person", "Nothing was asked for yet."),
)


class ListPages:
    """Their paths. Everything raises HangdogError."""

    def __init__(
        self,
        lists: Lists,
        marks: Marks,
        guard: Guard,
        history: History,
        acting: ActionService,
        store: Store,
        settings: ServerSettings,
        drawing: Drawing,
        clock: Callable[[], float],
    ) -> None:
        self._lists = lists
        self._marks = marks
        self._guard = guard
        self._history = history
        self._acting = acting
        self._store = store
        self._settings = settings
        self._drawing = drawing
        self._clock = clock

    def routes(self) -> list[Route]:
        """Their paths, before those of what they list."""
        answers: dict[str, Callable[[Request], Awaitable[Struct]]] = {
            "incidents": self._incidents, "jobs": self._jobs, "machines": self._machines, "actions": self._actions,
        }  # fmt: skip
        found = []
        for look in LOOKS:
            path, answer = f"/{look.kind.name}", answers[look.kind.name]
            found.append(Route(path, self._guard.guarded(self._page(look))))
            found.append(Route(f"/api{path}", self._guard.guarded(self._document(answer))))
        return found

    # ---- pages

    def _page(self, look: ListLook) -> Answer:
        async def drawn(request: Request, person: Person) -> Response:
            clock, here = self._clock(), f"/{look.kind.name}"
            query = self._asked(look.kind, request, LINES[-1])
            jobs = await self._lists.known_jobs() if look.kind is JOBS else ()
            # first: what changes meanwhile is told
            mark = jobs_mark(jobs) if look.kind is JOBS else await self._marks.list_mark(here)
            shown = here, query, person.name, person.by, mark, clock // AGED_S
            if self._drawing.kept(shown):
                return await self._drawing.page(request, str, shown)
            listed, rows, note = await self._rows(query, clock, jobs)
            given = self._given(look, listed, rows) | {"events": events(here, mark), "note": note, **nav(person)}
            return await self._drawing.page(request, lambda: page("list.html", look.heading.lower(), **given), shown)

        return drawn

    async def _rows(
        self, query: ListQuery, now: float, jobs: tuple[KnownJob, ...]
    ) -> tuple[ListPage[Any], Sequence[TableRow], str]:
        """The page of a list, its lines, and what stands beside how many there are."""
        listed: ListPage[Any]
        if query.kind is INCIDENTS:
            listed = await self._lists.incidents(query)
            return listed, [list_rows.incident_row(one, now) for one in listed.rows], ""
        if query.kind is JOBS:
            listed = await self._lists.jobs(query, jobs)
            return listed, [list_rows.job_row(one, now) for one in listed.rows], ""
        if query.kind is ACTIONS:
            listed, state = await self._lists.actions(query), await self._acting.overview()
            stopped = f", stopped by {state.stopped}" if state.stopped else ""
            note = f"The server is in mode {state.mode}{stopped}{f'; the breaker is open: {state.breaker}' if state.breaker else ''}"
            return listed, [list_rows.action_row(one, now) for one in listed.rows], note
        listed = await self._lists.machines(query)
        probation = await self._history.probation([one.name for one in listed.rows])
        note = "Weight is the sum of their shares of probability over all incidents"
        return listed, [list_rows.machine_row(one, now, probation) for one in listed.rows], note

    def _given(self, look: ListLook, listed: ListPage[Any], rows: Sequence[TableRow]) -> dict[str, Any]:
        query, here = listed.query, f"/{look.kind.name}"
        first = replace(query, page=1)

        def link(other: ListQuery) -> str:
            return here + parameters(other, self._settings.listed)

        facets = []
        for state in look.kind.states:
            chosen = state in query.states
            left = tuple(one for one in query.states if one != state)
            states = left if chosen else (*query.states, state)
            if chosen or listed.counts[state]:
                name, count = state.replace("-", " "), listed.counts[state]
                facets.append(
                    {"name": name, "count": count, "chosen": chosen, "link": link(replace(first, states=states))}
                )
        sort, backwards = query.order
        usual = {one.removeprefix("-"): one for one in look.kind.sorts}
        columns = []
        for column in look.columns:
            mine = bool(column.sort) and column.sort == sort
            turned = (
                (f"{'' if backwards else '-'}{sort}" if mine else usual.get(column.sort, "")) if column.sort else ""
            )
            columns.append({
                "label": column.label, "number": column.number, "named": column.named,
                "link": link(replace(first, sort=turned)) if turned else "",
                "sorted": ("descending" if backwards else "ascending") if mine else "",
            })  # fmt: skip
        order = query.sort or look.kind.sorts[0]
        orders = [
            (one, one.removeprefix("-") + (", newest first" if one in ("-began", "-at") else ""))
            for one in look.kind.sorts
        ]
        if order not in look.kind.sorts:
            orders.append((order, f"{sort}, turned around"))
        turns = []
        if query.page > 1:
            turns += [
                ("First", link(first)),
                ("Previous", link(replace(query, page=min(query.page - 1, listed.pages)))),
            ]
        if query.page < listed.pages:
            turns += [
                ("Next", link(replace(query, page=query.page + 1))),
                ("Last", link(replace(query, page=listed.pages))),
            ]
        return {
            "live": True, "here": here, "heading": look.heading, "query": query, "example": look.example, "nothing": look.nothing,
            "orders": orders, "order": order, "limits": sorted({*LINES, query.limit}), "facets": facets, "columns": columns,
            "rows": rows, "summary": listed.summary.capitalize(), "pages": listed.pages, "turns": turns,
        }  # fmt: skip

    # ---- the same as JSON

    def _document(self, answer: Callable[[Request], Awaitable[Struct]]) -> Answer:
        async def document(request: Request, person: Person) -> Response:
            return await self._drawing.document(request, await answer(request))

        return document

    async def _incidents(self, request: Request) -> Struct:
        listed = await self._lists.incidents(self._asked(INCIDENTS, request))
        return api.IncidentsAnswer(tuple(map(api.incident_line, listed.rows)), api.extent(listed))

    async def _jobs(self, request: Request) -> Struct:
        listed = await self._lists.jobs(self._asked(JOBS, request))
        return api.JobsAnswer(tuple(map(api.job, listed.rows)), api.extent(listed))

    async def _machines(self, request: Request) -> Struct:
        listed = await self._lists.machines(self._asked(MACHINES, request))
        return api.MachinesAnswer(listed.rows, api.extent(listed))

    async def _actions(self, request: Request) -> Struct:
        query, whose = self._asked(ACTIONS, request), request.query_params.get("incident", "")
        if whose:
            incident = await self._store.find(whose)
            rows = await self._store.ask(actions.of, incident.id)
            counts = {state: sum(row.state == state for row in rows) for state in ACTIONS.states}
            listed = ListPage(rows[: query.limit], len(rows), len(rows), counts, replace(query, page=1))
        else:
            listed = await self._lists.actions(query)
        return api.action_page(await self._acting.answer(listed.rows), listed)

    def _asked(self, kind: ListKind, request: Request, most: int = 0) -> ListQuery:
        asked: Mapping[str, Sequence[str]] = {name: request.query_params.getlist(name) for name in request.query_params}
        return query_of(kind, asked, self._settings.listed, most or self._settings.max_listed)
