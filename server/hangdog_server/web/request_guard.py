"""Stands before every path: who asks, whether they may, what they posted, and what goes wrong in words."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import parse_qs, quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from hangdog_models.errors import HangdogError, NotAllowed, ServerUnreachable, WrongUse
from hangdog_server.auth.authorizer import Person
from hangdog_server.auth.permissions import ANYBODY, HTTP
from hangdog_server.auth.tokens import Role
from hangdog_server.incidents import decode
from hangdog_server.protocol.rejections import Unauthorised
from hangdog_server.store.tables import storable
from hangdog_server.web import api
from hangdog_server.web.credentials import HttpCredentials, inside, require_own
from hangdog_server.web.render import page, policy

#: A form that was begun is waited for so long; people's browsers send it at once. Seconds.
PATIENCE_S = 10.0
#: Bytes of what is posted: a reason of 1,000 characters, each of four bytes and every byte written as `%xx`.
MOST = 16 << 10
#: Fields of a form: none of ours has more.
FIELDS = 10
#: What every answer says to the browser: nothing of ours is framed, guessed at, kept on a disk or told to others.
HEADERS = {
    "content-security-policy": f"{policy(live=True)}; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none at all, browsers post our own forms as if nobody's page had asked
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

Answer = Callable[[Request, Person], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


class ForbiddenRequest(NotAllowed):
    """Who asks is known, or need not be, and still may not: their role allows less, or a page of somebody else's asked."""


class Malformed(WrongUse):
    """What was posted is no answer to what was asked."""


class Conflict(WrongUse):
    """What is asked for cannot be done as things stand: nothing is left to decide, or a bound forbids it."""


class Guard:
    """Wraps what answers."""

    def __init__(self, asker: HttpCredentials) -> None:
        self._asker = asker
        self._wrapped: set[object] = set()
        self._needed: dict[tuple[object, str], Role | str] = {}

    def enforced(self, routes: Sequence[Route]) -> list[Route]:
        """The routes, each held to what `permissions.HTTP` says of its operations; one that says nothing is refused.

        Raises AssertionError for a route that nothing of ours stands before.
        """
        for route in routes:
            assert route.endpoint in self._wrapped, f"nothing stands before {route.path}"
            for method in (route.methods or set()) - {"HEAD"}:
                if (needed := HTTP.get((method, route.path))) is not None:
                    self._needed[(route.endpoint, method)] = needed
        return list(routes)

    def guarded(self, answer: Answer) -> Endpoint:
        """Answers those who may, and turns failures into words; what is posted must come from a page of ours, or no page."""

        async def guarded(request: Request) -> Response:
            try:
                needed = self._rule(request)
                if request.method == "POST":
                    self.require_own(request)
                person = self._asker.person(request)
                if not isinstance(needed, Role):
                    raise _unruled(request)
                try:
                    person.require(needed)
                except NotAllowed as error:
                    raise ForbiddenRequest(str(error), error.hint, code=error.code) from error
                return dressed(await answer(request, person))
            except HangdogError as error:
                return await self.refused(request, error)

        self._wrapped.add(guarded)
        return guarded

    def open(self, answer: Endpoint) -> Endpoint:
        """Answers everybody."""

        async def opened(request: Request) -> Response:
            try:
                if self._rule(request) != ANYBODY:
                    raise _unruled(request)
                return dressed(await answer(request))
            except HangdogError as error:
                return await self.refused(request, error)

        self._wrapped.add(opened)
        return opened

    def _rule(self, request: Request) -> Role | str | None:
        """What an operation takes; None where nobody has said."""
        method = "GET" if request.method == "HEAD" else request.method
        return self._needed.get((request.scope["endpoint"], method))

    def require_own(self, request: Request) -> None:
        """Raises Forbidden where a browser was made to ask by a page that is not ours."""
        try:
            require_own(request.headers)
        except NotAllowed as error:
            raise ForbiddenRequest(str(error), error.hint, code=error.code) from error

    async def refused(self, request: Request, error: HangdogError) -> Response:
        """A failure in words: for programs as JSON, for people as a page, or as the one where they log in."""
        if isinstance(error, NotAllowed):
            await self.note(request, error)
        status = _status(error)
        if request.url.path.startswith("/api/"):
            headers = {"www-authenticate": "Bearer"} if status == 401 else {}
            return dressed(api.json(api.ErrorAnswer(str(error), error.hint, error.code), status, headers))
        if status == 401 and request.method == "GET":
            return dressed(RedirectResponse(f"/login?next={quote(inside(request.url.path))}", 303))
        return dressed(HTMLResponse(_problem(error), 403 if status == 401 else status))

    async def note(self, request: Request, error: NotAllowed) -> None:
        """Counts that somebody is refused, and logs it, the same of one peer once in a while."""
        cause = error.__cause__ if isinstance(error.__cause__, Unauthorised) else error
        await self._asker.refused(json.dumps(request.url.path[:100]), request, cause)

    async def absent(self, request: Request, error: Exception) -> Response:
        """There is no such path."""
        return await self.refused(
            request, WrongUse("there is no such page", "the first page is /", code="no-such-page")
        )

    async def unasked(self, request: Request, error: Exception) -> Response:
        """There is such a path, and it is not asked by this method."""
        allowed = (error.headers or {}).get("Allow", "") if isinstance(error, HTTPException) else ""
        response = await self.refused(
            request,
            WrongUse(f"this page does not accept {request.method[:20]}", f"use {allowed}", code="wrong-http-method"),
        )
        response.status_code = 405
        response.headers["allow"] = allowed
        return response

    async def broken(self, request: Request, error: Exception) -> Response:
        """A bug of ours."""
        return await self.refused(
            request, ServerUnreachable("this is a bug in hangdog", "the server's log tells more", code="bug")
        )


async def body(request: Request, most: int = MOST) -> bytes:
    """What was posted; raises WrongUse when it is more than any form of ours, or comes too slowly."""
    found = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for part in request.stream():
                found += part
                if len(found) > most:
                    raise WrongUse(f"more than {most} bytes were posted", "post the form", code="message-too-large")
    except TimeoutError:
        raise WrongUse(
            f"the posted form did not arrive within {PATIENCE_S:g} s", "post the form", code="request-too-slow"
        ) from None
    return found


async def form(request: Request, most: int = MOST) -> dict[str, str]:
    """The fields of a form, of each the first; raises WrongUse.

    Starlette's own takes python-multipart, a package more for eight lines, and sets no time by which a form must have come.
    """
    text = (await body(request, most)).decode("utf-8", "replace")
    try:
        return {name: values[0] for name, values in parse_qs(text, max_num_fields=FIELDS).items()}
    except ValueError:
        raise Malformed("this is no form of ours", "open the page and post its form", code="wrong-body") from None


async def document(request: Request, names: Sequence[str] = ("because",)) -> dict[str, str]:
    """The words of a posted JSON object, under these names alone; raises WrongUse. Nothing posted is one without any."""
    text = await body(request)
    if text and request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Malformed(
            "what was posted does not say that it is JSON", "send content-type: application/json", code="wrong-body"
        )
    try:
        found = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        raise Malformed("what was posted is not JSON", 'post {"because": "..."}', code="wrong-body") from None
    if (
        not isinstance(found, dict)
        or found.keys() - set(names)
        or not all(isinstance(one, str) for one in found.values())
    ):
        what = "a reason" if len(names) == 1 else ", ".join(names)
        raise Malformed(
            f"the posted object must hold {what} as text, and nothing else",
            'post {"because": "..."}, or nothing',
            code="wrong-body",
        )
    return found


def reason(posted: Mapping[str, str]) -> str:
    """Why, where that is said, as the store takes it; raises Malformed when it is too long."""
    because = posted.get("because", "")
    if len(because) > decode.WHY:
        raise Malformed(
            f"a reason of {len(because)} characters is too long", f"give {decode.WHY} at most", code="too-long"
        )
    return storable(because)


def dressed(response: Response) -> Response:
    """The answer with what every answer says to the browser."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def nav(person: Person) -> dict[str, str]:
    """Who is logged in, where there was a login."""
    return {"nav": "yes", "person": person.name if person.by == "token" else ""}


def _unruled(request: Request) -> ForbiddenRequest:
    return ForbiddenRequest(
        f"nobody may ask {request.method[:20]} {request.url.path[:100]!r}", "this is a bug in hangdog", code="bug"
    )


#: Statuses of RFC 9110 that say more than the error's class.
_STATUSES = {"request-too-slow": 408, "message-too-large": 413}


def _status(error: HangdogError) -> int:
    if error.code in _STATUSES:
        return _STATUSES[error.code]
    for kind, status in (
        (ForbiddenRequest, 403),
        (NotAllowed, 401),
        (Malformed, 400),
        (Conflict, 409),
        (WrongUse, 404),
    ):
        if isinstance(error, kind):
            return status
    return 503


def _problem(error: HangdogError) -> str:
    about = {"what": str(error), "hint": error.hint, "code": error.code}
    return page("problem.html", "hangdog", live=True, nav="yes", here="", person="", **about)
