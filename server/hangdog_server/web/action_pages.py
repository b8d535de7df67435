"""Deciding from a page or a program what is done to machines: each act is said in a sentence first, then posted, and done once."""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from hangdog_models.actions.by_hand import isolating
from hangdog_models.counts import named
from hangdog_models.errors import WrongUse
from hangdog_models.incident import UNANSWERED, IncidentResponse, ResponseState
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth.authorizer import Authorizer, Person
from hangdog_server.auth.tokens import Role
from hangdog_server.grpc_api.action_service import ActionChange, ActionService, ActionsOverview, concerned, seen
from hangdog_server.incidents import decode
from hangdog_server.store.actions import ActionRecord, ActionState
from hangdog_server.store.tables import storable
from hangdog_server.web import api
from hangdog_server.web.breaker_page import BreakerPage
from hangdog_server.web.history import History
from hangdog_server.web.render import machine_path, page
from hangdog_server.web.request_guard import Answer, Conflict, Guard, Malformed, document, form, nav, reason

#: Names of people who may act that are told to those who may not; all of them stand in `hangdog token list`.
NAMES = 5
#: What an act comes to, once it is decided: whoever asks for the same again is shown that, and nothing is done twice.
AFTER = {
    "approve": (ActionState.PENDING, ActionState.MARKED, ActionState.DONE, ActionState.FAILED),
    "dismiss": (ActionState.DISMISSED, ActionState.RELEASING, ActionState.RELEASED),
    "release": (ActionState.RELEASING, ActionState.RELEASED),
}


class ActionPages:
    """The pages and paths by which people decide."""

    def __init__(self, guard: Guard, actions: ActionService, history: History, gate: Authorizer) -> None:
        self._guard = guard
        self._actions = actions
        self._history = history
        self._gate = gate
        self._breaking = BreakerPage(guard, actions)

    def routes(self) -> list[Route]:
        """Their paths; those of machines stand before the pages of machines."""
        found = []
        for what, path in (
            ("approve", "/incidents/{id}/approve"),
            ("dismiss", "/incidents/{id}/dismiss"),
            ("release", "/machines/{name:path}/release"),
        ):
            found += [
                Route(path, self._guard.guarded(self._asks(what)), methods=["GET"]),
                Route(path, self._guard.guarded(self._does(what)), methods=["POST"]),
                Route(f"/api{path}", self._guard.guarded(self._answered(what)), methods=["POST"]),
            ]
        return [*found, *self._breaking.routes()]

    def who(self, person: Person) -> str:
        """Who may decide, told to somebody who may not; empty for those who may."""
        if person.role >= Role.ACT:
            return ""
        names = self._gate.who_may(Role.ACT)
        more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
        who = f"{', '.join(names[:NAMES])}{more} may" if names else "nobody has a token that allows it"
        return f"You may look. Deciding takes the role act: {who}."

    # ---- pages

    def _asks(self, what: str) -> Answer:
        async def asks(request: Request, person: Person) -> Response:
            """Says what will happen, before anything does."""
            name, rows, response = await self._about(request)
            return await self._confirm(what, name, rows, response, person)

        return asks

    def _does(self, what: str) -> Answer:
        async def does(request: Request, person: Person) -> Response:
            """Does it, and leads back to where it is seen."""
            name, rows, response = await self._about(request)
            posted = await form(request)
            because, shown = reason(posted), posted.get("seen", "")
            if not shown:
                raise Malformed("this is no form of ours", "open the page and post its form", code="wrong-body")
            if what == "dismiss" and not because.strip():
                wrong = "Say why: it is kept with the act."
                return await self._confirm(what, name, rows, response, person, wrong, because)
            try:
                await self._act(what, name, because, person, shown)
            except ActionChange as error:
                if not await self._mine(what, request, person):
                    raise Conflict(str(error), error.hint, code=error.code) from error
            except Conflict as error:
                if what != "approve":
                    raise
                _, rows, response = await self._about(
                    request
                )  # a bound that forbids it is said where it can be asked again
                wrong = f"Nothing was done: {error}. {error.hint}."
                return await self._confirm(what, name, rows, response, person, wrong, because, 409)
            return RedirectResponse(_back(what, name), 303)

        return does

    async def _confirm(
        self,
        what: str,
        name: str,
        rows: tuple[ActionRecord, ...],
        response: IncidentResponse,
        person: Person,
        wrong: str = "",
        because: str = "",
        status: int = 400,
    ) -> Response:
        mine, state = concerned(what, rows), await self._actions.overview()
        if what == "approve" and not state.acts:
            raise Conflict(
                f"the server does not act in mode {state.mode}",
                'set mode = "approve" in its --acting file',
                code="acting-disabled",
            )
        if not mine and (what != "dismiss" or response.closed):
            raise Conflict(
                f"nothing of {name} is to be decided",
                "somebody may have been faster: look again",
                code="nothing-to-decide",
            )
        machines = named({row.machine for row in mine}) or f"incident {name}"
        return HTMLResponse(
            page(
                "confirm.html",
                f"hangdog: {what} {name}",
                live=True,
                here="",
                **nav(person),
                what=what,
                machines=machines,
                does=consequence(what, mine, state),
                stopped=state.stopped if what == "approve" else "",
                why=sorted({row.reason for row in mine}),
                refused=sorted({row.message for row in mine if row.state is ActionState.REFUSED}),
                foreseen=sorted(
                    {row.message for row in mine if what == "approve" and row.state is not ActionState.REFUSED} - {""}
                ),
                seen=seen(what, rows, response),
                most=decode.WHY,
                wrong=wrong,
                typed=_by_hand(what, mine, state),
                because=because,
                back=_back(what, name),
            ),
            status if wrong else 200,
        )

    # ---- for programs

    def _answered(self, what: str) -> Answer:
        async def does(request: Request, person: Person) -> Response:
            name, _, _ = await self._about(request)
            because = reason(await document(request))
            if what == "dismiss" and not because.strip():
                raise Malformed(
                    "no reason is given",
                    'post {"because": "why the machines are left where they are"}',
                    code="text-missing",
                )
            try:
                done = await self._act(what, name, because, person, "")
            except ActionChange as error:
                raise Conflict(str(error), error.hint, code=error.code) from error
            return api.json(api.actions(done))

        return does

    async def _about(self, request: Request) -> tuple[str, tuple[ActionRecord, ...], IncidentResponse]:
        """The incident's or machine's name, and its acts; raises WrongUse where there is no such thing."""
        if "name" in request.path_params:
            name = storable(request.path_params["name"])
            rows = await self._history.acts_on(name)
            if not rows:
                raise WrongUse(
                    f"hangdog has never acted on a machine {name[: decode.NAME]!r}",
                    "the machines: /machines",
                    code="machine-not-isolated",
                )
            return name, rows, UNANSWERED
        incident, rows = await self._history.acts_of(storable(request.path_params["id"]))
        return incident.id, rows, incident.response

    async def _act(self, what: str, name: str, because: str, person: Person, shown: str) -> pb.ActionList:
        whose = {"machine": name} if what == "release" else {"incident": name}
        try:
            return await self._actions.act(pb.ActRequest(what=what, reason=because, **whose), person, shown)
        except ActionChange:
            raise
        except WrongUse as error:
            raise Conflict(str(error), error.hint, code=error.code) from error

    async def _mine(self, what: str, request: Request, person: Person) -> bool:
        """Whether this person has decided the very same before: a form that came twice."""
        _, rows, response = await self._about(request)
        dismissed = what == "dismiss" and (response.state, response.who) == (ResponseState.DISMISSED, person.name)
        return dismissed or any(row.who == person.name and row.state in AFTER[what] for row in rows)


def consequence(what: str, rows: tuple[ActionRecord, ...], state: ActionsOverview) -> str:
    """What will happen, in one sentence."""
    machines = named({row.machine for row in rows})
    one = len({row.machine for row in rows}) == 1
    by = named(state.actors)
    if what == "approve":
        job = rows[0].job or "its job"
        moves = (
            f", and {job} is started again elsewhere by {named(state.movers)} as the server's --acting file says"
            if state.movers
            else ""
        )
        return f"{machines} {'is' if one else 'are'} taken out of use by {by}{moves}, if the bounds still allow it."
    if what == "release":
        return f"Exactly hangdog's own marks on {machines} are taken away by {by}, so that work may be given to it again; marks of others stay."
    undone = " What is under way is undone." if any(row.state is ActionState.PENDING for row in rows) else ""
    left = f"{machines} {'is' if one else 'are'} left in use, and hangdog does not ask for it again in this incident. "
    return (
        f"{left if rows else ''}No machine is taken to be at fault: what the verdict said against any is taken back, and the "
        f"incident is closed.{undone}"
    )


def _by_hand(what: str, rows: tuple[ActionRecord, ...], state: ActionsOverview) -> tuple[str, ...]:
    """The commands that isolate what a bound forbids, for whoever may answer for it."""
    if what != "approve":
        return ()
    refused = [row for row in rows if row.state is ActionState.REFUSED]
    return tuple(line for row in refused for line in isolating(row.machine, row.incident, state.actors, row.owner))


def _back(what: str, name: str) -> str:
    return machine_path(name) if what == "release" else f"/incidents/{quote(name, safe='')}"
