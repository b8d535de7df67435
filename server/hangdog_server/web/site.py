"""The pages and their JSON by their paths: who may see them, what is refused, and what goes wrong in words."""

import asyncio
import importlib.metadata
import json
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from hangdog_models.errors import HangdogError, NotAllowed, ServerUnreachable, WrongUse
from hangdog_server.limits import Seldom
from hangdog_server.pages.drawing import page, policy
from hangdog_server.roles import Person
from hangdog_server.settings import Settings
from hangdog_server.store import Store
from hangdog_server.web import api
from hangdog_server.web.asker import Asker, inside, require_own
from hangdog_server.web.drawn import Drawn
from hangdog_server.web.feed import Feed, Seen, mark
from hangdog_server.web.openapi import document
from hangdog_server.web.present import Observatory
from hangdog_server.web.words import ago, utc

#: A form that was begun is waited for so long; people's browsers send it at once. Seconds.
PATIENCE_S = 10.0
#: Bytes of what is posted: a token is 51 characters.
MOST = 4096
#: What every answer says to the browser: nothing of ours is framed, guessed at, kept on a disk or told to others.
HEADERS = {
    "content-security-policy": f"{policy(live=True)}; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

log = logging.getLogger(__name__)
Answer = Callable[[Request, Person], Awaitable[Response]]


class Site:
    """The site of one server; `clock` gives Unix seconds."""

    def __init__(
        self, observatory: Observatory, store: Store, settings: Settings, asker: Asker, clock: Callable[[], float]
    ) -> None:
        self._observatory = observatory
        self._store = store
        self._settings = settings
        self._asker = asker
        self._clock = clock
        self._drawn = Drawn(store)
        self._seldom = Seldom()
        self.feed = Feed(self._look)
        self._document = document(importlib.metadata.version("hangdog"))

    def app(self) -> Starlette:
        """The application that serves it."""
        return Starlette(
            routes=[
                Route("/", self._guarded(self._now)),
                Route("/incidents/{id}", self._guarded(self._incident)),
                Route("/machines", self._guarded(self._machines)),
                Route("/login", self._open(self._login_page), methods=["GET"]),
                Route("/login", self._open(self._login), methods=["POST"]),
                Route("/logout", self._open(self._logout), methods=["POST"]),
                Route("/favicon.ico", self._open(_nothing)),
                Route("/api/now", self._guarded(self._api_now)),
                Route("/api/incidents", self._guarded(self._api_incidents)),
                Route("/api/incidents/{id}", self._guarded(self._api_incident)),
                Route("/api/incidents/{id}/events", self._guarded(self._api_incident_events)),
                Route("/api/machines", self._guarded(self._api_machines)),
                Route("/api/events", self._guarded(self._api_events)),
                Route("/api/openapi.json", self._guarded(self._api_document)),
            ],
            exception_handlers={404: self._absent, 405: self._absent, 500: self._broken},
        )

    def _guarded(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Answers those who may view, and turns failures into words."""

        async def guarded(request: Request) -> Response:
            try:
                return _dressed(await answer(request, self._asker.person(request)))
            except HangdogError as error:
                return self._refused(request, error)

        return guarded

    def _open(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Answers everybody."""

        async def opened(request: Request) -> Response:
            try:
                return _dressed(await answer(request))
            except HangdogError as error:
                return self._refused(request, error)

        return opened

    # ---- pages

    async def _now(self, request: Request, person: Person) -> Response:
        clock = self._clock()
        now = await self._observatory.present(clock)
        times = {one.id: ago(clock - one.began) for one in now.incidents}
        given = {"now": now, "times": times, "events": f"/api/events?seen={now.mark}"}
        return HTMLResponse(page("now.html", _title(len(now.suspects)), live=True, here="/", **_nav(person), **given))

    async def _incident(self, request: Request, person: Person) -> Response:
        found = await self._store.find(request.path_params["id"])
        return HTMLResponse(await self._drawn.page(found, _nav(person)["person"], self._clock()))

    async def _machines(self, request: Request, person: Person) -> Response:
        machines = await self._observatory.machines(self._clock())
        last = {one.name: utc(one.last) if one.last else "" for one in machines}
        given = {"machines": machines, "last": last, "silent": {one.name: ago(one.silent_s or 0.0) for one in machines}}
        return HTMLResponse(page("machines.html", "machines", live=True, here="/machines", **_nav(person), **given))

    async def _login_page(self, request: Request) -> Response:
        return HTMLResponse(_login_form(inside(request.query_params.get("next", "/"))))

    async def _login(self, request: Request) -> Response:
        require_own(request.headers)
        posted = parse_qs((await _body(request)).decode("utf-8", "replace"), max_num_fields=10)
        token, to = posted.get("token", [""])[0].strip(), inside(posted.get("next", ["/"])[0])
        try:
            self._asker.checked(token, request)
        except NotAllowed as error:
            self._note(request, error)
            return HTMLResponse(_login_form(to, str(error)), 403)
        response = RedirectResponse(to, 303)
        self._asker.keep(response, token)
        return response

    async def _logout(self, request: Request) -> Response:
        require_own(request.headers)
        response = RedirectResponse("/login", 303)
        self._asker.drop(response)
        return response

    # ---- the same as JSON

    async def _api_now(self, request: Request, person: Person) -> Response:
        return JSONResponse(api.present(await self._observatory.present(self._clock())))

    async def _api_incidents(self, request: Request, person: Person) -> Response:
        limit = request.query_params.get("limit", str(self._settings.listed))
        if not (limit.isascii() and limit.isdecimal() and 0 < len(limit) < 7 and int(limit)):
            raise WrongUse(f"{limit[:20]!r} is no number of incidents", "give limit=50")
        most = min(int(limit), self._settings.max_listed)
        found = await self._store.latest(request.query_params.get("job", ""), most)
        return JSONResponse({"incidents": [api.incident_line(one) for one in found]})

    async def _api_incident(self, request: Request, person: Person) -> Response:
        return JSONResponse(api.incident_whole(await self._store.find(request.path_params["id"])))

    async def _api_incident_events(self, request: Request, person: Person) -> Response:
        found = await self._store.find(request.path_params["id"])
        return self._events(request, found.id)

    async def _api_machines(self, request: Request, person: Person) -> Response:
        machines = await self._observatory.machines(self._clock())
        return JSONResponse({"machines": [api.machine(one) for one in machines]})

    async def _api_events(self, request: Request, person: Person) -> Response:
        return self._events(request, "")

    async def _api_document(self, request: Request, person: Person) -> Response:
        return JSONResponse(self._document)

    # ---- changes

    def _events(self, request: Request, name: str) -> Response:
        if self.feed.full:
            raise ServerUnreachable("many pages are open already", "this one shows what is true when it is opened")

        def allowed() -> bool:
            try:
                self._asker.person(request)
            except NotAllowed:
                return False
            return True

        known = request.query_params.get("seen", "")
        stream = self.feed.events(name, known, allowed)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def _look(self) -> Seen:
        present = await self._observatory.present(self._clock())
        seen: Seen = {"": (present.mark, {"jobs": len(present.jobs), "suspects": len(present.suspects)})}
        for one in present.incidents:
            seen[one.id] = mark(one), api.incident_line(one)
        return seen

    # ---- what goes wrong

    def _refused(self, request: Request, error: HangdogError) -> Response:
        if isinstance(error, NotAllowed):
            self._note(request, error)
        status = 401 if isinstance(error, NotAllowed) else 404 if isinstance(error, WrongUse) else 503
        if request.url.path.startswith("/api/"):
            headers = {"www-authenticate": "Bearer"} if status == 401 else {}
            return _dressed(JSONResponse({"error": str(error), "hint": error.hint}, status, headers))
        if status == 401 and request.method == "GET":
            return _dressed(RedirectResponse(f"/login?next={quote(inside(request.url.path))}", 303))
        return _dressed(HTMLResponse(_problem(str(error), error.hint), 403 if status == 401 else status))

    def _note(self, request: Request, error: NotAllowed) -> None:
        host = request.client.host if request.client else "somebody"
        if self._seldom.tell(host, str(error), self._clock()):
            log.warning("%s is refused %s: %s", host, json.dumps(request.url.path[:100]), error)

    async def _absent(self, request: Request, error: Exception) -> Response:
        return self._refused(request, WrongUse("there is no such page", "the first page is /"))

    async def _broken(self, request: Request, error: Exception) -> Response:
        return self._refused(request, ServerUnreachable("this is a bug in hangdog", "the server's log tells more"))


async def _nothing(request: Request) -> Response:
    return Response(status_code=204)


async def _body(request: Request) -> bytes:
    """What was posted; raises WrongUse when it is more than any form of ours, or comes too slowly."""
    body = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for part in request.stream():
                body += part
                if len(body) > MOST:
                    raise WrongUse(f"more than {MOST} bytes were posted", "post the form")
    except TimeoutError:
        raise WrongUse(f"what was posted did not come within {PATIENCE_S:g} s", "post the form") from None
    return body


def _nav(person: Person) -> dict[str, str]:
    """Who is logged in, where there was a login."""
    return {"nav": "yes", "person": person.name if person.by == "token" else ""}


def _title(suspects: int) -> str:
    return "hangdog: now" if not suspects else f"hangdog: {suspects} suspected"


def _login_form(to: str, wrong: str = "") -> str:
    return page("login.html", "hangdog: log in", live=True, nav="", here="", person="", to=to, wrong=wrong)


def _problem(what: str, hint: str) -> str:
    return page("problem.html", "hangdog", live=True, nav="yes", here="", person="", what=what, hint=hint)


def _dressed(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
