"""How the communicators of a job go on, as a page and as JSON."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hangdog_server.auth.authorizer import Person
from hangdog_server.cluster.communicators import SHOWN, communicators_mark
from hangdog_server.store.tables import storable
from hangdog_server.web import api
from hangdog_server.web.jobs.communicator_rows import communicator_row
from hangdog_server.web.lists.drawing import Drawing
from hangdog_server.web.live_feed import communicators_page, events
from hangdog_server.web.overview import Observatory
from hangdog_server.web.render import page
from hangdog_server.web.request_guard import Guard, nav

#: Communicators in one JSON answer, those first in which a rank waits.
MOST = 1000


class CommunicatorPages:
    """Their paths. Everything raises HangdogError."""

    def __init__(self, observatory: Observatory, guard: Guard, drawing: Drawing, clock: Callable[[], float]) -> None:
        self._observatory = observatory
        self._guard = guard
        self._drawing = drawing
        self._clock = clock

    def routes(self) -> list[Route]:
        """Their paths."""
        path = "/jobs/{name:path}/communicators"
        return [
            Route(path, self._guard.guarded(self._page)),
            Route(f"/api{path}", self._guard.guarded(self._document)),
        ]

    async def _page(self, request: Request, person: Person) -> Response:
        name, clock = storable(request.path_params["name"]), self._clock()
        found = await self._observatory.communicators(name)
        given = {
            "name": name,
            "found": found,
            "strip": self._observatory.activity(name),
            "events": events(communicators_page(name), communicators_mark(found)),
            **nav(person),
        }

        def draw() -> str:
            rows = [communicator_row(one, clock) for one in found.communicators[:SHOWN]]
            return page("communicators.html", f"{name}: communicators", live=True, here="/jobs", rows=rows, **given)

        return await self._drawing.page(request, draw)

    async def _document(self, request: Request, person: Person) -> Response:
        name = storable(request.path_params["name"])
        found = await self._observatory.communicators(name)
        return await self._drawing.document(request, api.communicators(name, found, MOST))
