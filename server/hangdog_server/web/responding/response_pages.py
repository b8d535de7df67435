"""Doing something about an incident from a page or a program: posted, done once, and never over somebody else's head."""

from collections.abc import Mapping
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from hangdog_models.actions.respond import OF_MACHINES, DecidedSince
from hangdog_models.errors import WrongUse
from hangdog_models.incident import Incident
from hangdog_models.verdict import StallCause
from hangdog_server.auth.authorizer import Person
from hangdog_server.grpc_api.response_service import Asked, ResponseService
from hangdog_server.incidents import decode
from hangdog_server.store.store import Store
from hangdog_server.store.tables import storable
from hangdog_server.web import api
from hangdog_server.web.render import page
from hangdog_server.web.request_guard import Answer, Conflict, Guard, Malformed, document, form, nav, reason

#: What is done by a button on the incident's page, and what has a page of its own, where it is said first.
BUTTONS, PAGES = ("ack", "take-over", "give-back", "note"), ("resolve", "reopen")
#: Characters of a list of machines: as many names as one incident may be laid to.
MACHINES = 64 * (decode.NAME + 1)


class ResponsePages:
    """The pages and paths."""

    def __init__(self, guard: Guard, responding: ResponseService, store: Store) -> None:
        self._guard = guard
        self._responding = responding
        self._store = store

    def routes(self) -> list[Route]:
        """Their paths."""
        found = []
        for what in (*BUTTONS, *PAGES):
            path = f"/incidents/{{id}}/{what}"
            if what in PAGES:
                found.append(Route(path, self._guard.guarded(self._asks(what)), methods=["GET"]))
            found += [
                Route(path, self._guard.guarded(self._does(what)), methods=["POST"]),
                Route(f"/api{path}", self._guard.guarded(self._answered(what)), methods=["POST"]),
            ]
        return found

    def _asks(self, what: str) -> Answer:
        async def asks(request: Request, person: Person) -> Response:
            """Says what will be kept, before it is."""
            return _confirm(what, await self._store.find(_name(request)), person)

        return asks

    def _does(self, what: str) -> Answer:
        async def does(request: Request, person: Person) -> Response:
            """Does it, and leads back; what was typed is not lost where it cannot be done."""
            incident, posted = await self._store.find(_name(request)), await form(request)
            asked = _asked(what, posted, posted.get("machines", "").split())
            if asked.shown is None:
                raise Malformed("this is no form of ours", "open the page and post its form", code="wrong-body")
            try:
                await self._responding.respond(incident.id, asked, person)
            except WrongUse as error:
                if what in PAGES:
                    incident = await self._store.find(incident.id)
                    status = 409 if isinstance(error, DecidedSince) else 400
                    return _confirm(what, incident, person, posted, f"{error}; {error.hint}", status)
                raise _refused(error) from error
            return RedirectResponse(_back(incident.id), 303)

        return does

    def _answered(self, what: str) -> Answer:
        async def does(request: Request, person: Person) -> Response:
            """Does it, for a program; answers with the incident's line."""
            incident = await self._store.find(_name(request))
            posted = await document(request, ("because", "cause", "machines", "key"))
            try:
                asked = _asked(what, posted, posted.get("machines", "").split())
                done = await self._responding.respond(incident.id, asked, person)
            except WrongUse as error:
                raise _refused(error) from error
            return api.json(api.incident_line(done))

        return does


def _asked(what: str, posted: Mapping[str, str], machines: list[str]) -> Asked:
    seen = posted.get("seen", "")
    if len(posted.get("machines", "")) > MACHINES:
        raise Malformed("too many machines are named", "name those that were at fault", code="too-many")
    return Asked(
        what,
        reason(posted),
        storable(posted.get("cause", "")),
        tuple(map(storable, machines)),
        int(seen) if seen.isascii() and seen.isdecimal() and len(seen) < 10 else None,
        posted.get("key", "")[: decode.NAME],
    )


def _refused(error: WrongUse) -> WrongUse:
    """As it is answered: what was decided since is a conflict, what is wrong by itself is malformed."""
    kind = Conflict if isinstance(error, DecidedSince) else Malformed
    return kind(str(error), error.hint, code=error.code)


def _confirm(
    what: str,
    incident: Incident,
    person: Person,
    typed: Mapping[str, str] | None = None,
    wrong: str = "",
    status: int = 200,
) -> Response:
    typed = typed or {}
    return HTMLResponse(
        page(
            "respond.html",
            f"hangdog: {what} {incident.id}",
            live=True,
            here="",
            **nav(person),
            what=what,
            incident=incident,
            causes=[str(cause) for cause in StallCause],
            cause=typed.get("cause", ""),
            blamed=", ".join(OF_MACHINES),
            machines=typed.get("machines", " ".join(incident.evict)),
            because=typed.get("because", ""),
            seen=incident.response.decisions,
            wrong=wrong,
            most=decode.WHY,
            back=_back(incident.id),
        ),
        status,
    )


def _name(request: Request) -> str:
    return storable(request.path_params["id"])


def _back(name: str) -> str:
    return f"/incidents/{quote(name, safe='')}"
