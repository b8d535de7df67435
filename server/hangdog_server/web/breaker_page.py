"""Closing the breaker from a page or a program: it is said first why it opened, and closed once, and only that one."""

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from hangdog_models.errors import WrongUse
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth.authorizer import Person
from hangdog_server.grpc_api.action_service import ActionChange, ActionService
from hangdog_server.incidents import decode
from hangdog_server.web import api
from hangdog_server.web.render import page
from hangdog_server.web.request_guard import Conflict, Guard, Malformed, document, form, nav, reason

PATH = "/breaker/close"


class BreakerPage:
    """The page and paths by which people close the breaker."""

    def __init__(self, guard: Guard, actions: ActionService) -> None:
        self._guard = guard
        self._actions = actions

    def routes(self) -> list[Route]:
        """Their paths."""
        return [
            Route(PATH, self._guard.guarded(self._asks), methods=["GET"]),
            Route(PATH, self._guard.guarded(self._does), methods=["POST"]),
            Route(f"/api{PATH}", self._guard.guarded(self._confirm), methods=["POST"]),
        ]

    async def _asks(self, request: Request, person: Person) -> Response:
        """Says what will happen, and why it is open."""
        state = await self._actions.overview()
        if not state.breaker:
            raise Conflict(
                "the breaker is closed", "somebody may have been faster: look again", code="nothing-to-decide"
            )
        does = (
            "From now on hangdog does to machines again what verdicts ask for, within its bounds. It opened because of "
            "what is said below: see to that first, or it opens again."
        )
        given = {"what": "close-breaker", "machines": "the breaker", "does": does, "seen": state.opened}
        empty = {"stopped": state.stopped, "refused": (), "foreseen": (), "wrong": "", "because": "", "typed": ()}
        words = {"why": (state.breaker,), "most": decode.WHY, "back": "/", "here": "", **nav(person)}
        return HTMLResponse(page("confirm.html", "hangdog: close the breaker", live=True, **words, **given, **empty))

    async def _does(self, request: Request, person: Person) -> Response:
        """Closes it, and leads back to where it is seen; one that is closed by now is what was wanted."""
        posted = await form(request)
        if not posted.get("seen"):
            raise Malformed("this is no form of ours", "open the page and post its form", code="wrong-body")
        try:
            await self._close(reason(posted), person, posted["seen"])
        except ActionChange as error:
            if (await self._actions.overview()).breaker:
                raise Conflict(str(error), error.hint, code=error.code) from error
        return RedirectResponse("/", 303)

    async def _confirm(self, request: Request, person: Person) -> Response:
        because = reason(await document(request))
        return api.json(api.actions(await self._close(because, person, "")))

    async def _close(self, because: str, person: Person, shown: str) -> pb.ActionList:
        asked = pb.ActRequest(what="close-breaker", reason=because)
        try:
            return await self._actions.act(asked, person, shown)
        except ActionChange:
            raise
        except WrongUse as error:
            raise Conflict(str(error), error.hint, code=error.code) from error
