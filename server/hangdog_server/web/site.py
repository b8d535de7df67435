"""The pages and their JSON by their paths: who may see them, what is refused, and what goes wrong in words."""

import importlib.metadata
import json
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from hangdog_models.errors import NotAllowed, ServerUnreachable, WrongUse
from hangdog_models.verdict import from_json
from hangdog_models.views import postmortem
from hangdog_models.views.repeated_tests import alike, times
from hangdog_server.auth.authorizer import Person
from hangdog_server.auth.tokens import Role
from hangdog_server.grpc_api.incident_timeline import campaign_text
from hangdog_server.incidents.episode.seen_before import seen_before
from hangdog_server.store.actions import ActionState, describe
from hangdog_server.store.lists import incident_list
from hangdog_server.store.store import Store
from hangdog_server.store.tables import storable
from hangdog_server.web import api
from hangdog_server.web.action_pages import ActionPages
from hangdog_server.web.campaign_pages import CampaignPages
from hangdog_server.web.credentials import HttpCredentials, inside
from hangdog_server.web.history import TONES, History
from hangdog_server.web.jobs.communicator_pages import CommunicatorPages
from hangdog_server.web.lists.drawing import Drawing
from hangdog_server.web.lists.list_pages import ListPages
from hangdog_server.web.live_feed import MACHINE, NOW, Feed, events, named
from hangdog_server.web.marks import Marks, present_mark
from hangdog_server.web.openapi import document
from hangdog_server.web.overview import Observatory
from hangdog_server.web.remembered_pages import Drawn, done_part
from hangdog_server.web.render import page, since, utc
from hangdog_server.web.request_guard import Guard, form, nav
from hangdog_server.web.responding.response_pages import ResponsePages
from hangdog_server.web.responding.response_part import response_part

#: Bytes of what is posted to log in: a token is 51 characters.
MOST = 4096
#: Jobs on the first page, the worst ones; all are in their list.
SHOWN_JOBS = 30


class Site:
    """The site of one server; `clock` gives Unix seconds."""

    def __init__(
        self,
        observatory: Observatory,
        store: Store,
        asker: HttpCredentials,
        guard: Guard,
        history: History,
        acts: ActionPages,
        testing: CampaignPages,
        responses: ResponsePages,
        marks: Marks,
        listed: ListPages,
        communicators: CommunicatorPages,
        drawing: Drawing,
        clock: Callable[[], float],
    ) -> None:
        self._observatory = observatory
        self._store = store
        self._asker = asker
        self._guard = guard
        self._history = history
        self._acts = acts
        self._testing = testing
        self._responses = responses
        self._clock = clock
        self._drawn = Drawn(store)
        self._marks = marks
        self._listed = listed
        self._communicators = communicators
        self._drawing = drawing
        self.feed = Feed(lambda listened: self._marks.look(listened, clock()), clock)

    def app(self) -> Starlette:
        """The application that serves it."""
        guarded, opened = self._guard.guarded, self._guard.open
        return Starlette(
            routes=self._guard.enforced(
                [
                    *self._acts.routes(),
                    *self._testing.routes(),
                    *self._responses.routes(),
                    *self._listed.routes(),
                    *self._communicators.routes(),
                    Route("/", guarded(self._now)),
                    Route("/incidents/{id}", guarded(self._incident)),
                    Route("/incidents/{id}/postmortem.md", guarded(self._postmortem)),
                    Route("/machines/{name:path}", guarded(self._machine)),
                    Route("/login", opened(self._login_page), methods=["GET"]),
                    Route("/login", opened(self._login), methods=["POST"]),
                    Route("/logout", opened(self._logout), methods=["POST"]),
                    Route("/favicon.ico", opened(_nothing)),
                    Route("/api/now", guarded(self._api_now)),
                    Route("/api/incidents/{id}", guarded(self._api_incident)),
                    Route("/api/incidents/{id}/events", guarded(self._api_incident_events)),
                    Route("/api/machines/{name:path}", guarded(self._api_machine)),
                    Route("/api/events", guarded(self._api_events)),
                    Route("/api/openapi.json", guarded(self._api_document)),
                ]
            ),
            exception_handlers={404: self._guard.absent, 405: self._guard.unasked, 500: self._guard.broken},
        )

    # ---- pages

    async def _now(self, request: Request, person: Person) -> Response:
        clock = self._clock()
        now, lately = await self._observatory.present(clock), await self._history.lately()
        times = {one.id: since(one.began, clock) for one in now.incidents}
        held = {one.incident: since(one.since, clock) for one in now.suspects}
        strips = {one.name: self._observatory.activity(one.name) for one in now.jobs[:SHOWN_JOBS]}
        given = {"now": now, "times": times, "since": held, "events": events(NOW, present_mark(now, lately.mark))}
        shown = {
            "lately": lately,
            "tested": [(one, campaign_text(one)) for one in lately.campaigns],
            "describe": describe,
            "tones": TONES,
            "strips": strips,
        }
        jobs, known = now.jobs[:SHOWN_JOBS], await self._store.ask(incident_list.count)
        shown |= {"jobs": jobs, "known": max(known, len(now.incidents))}
        may = {"acts": person.role >= Role.ACT, "who": self._acts.who(person)}
        everything = {**given, **shown, **may, **nav(person)}
        title = f"hangdog: {now.headline.text}"
        return await self._drawing.page(request, lambda: page("now.html", title, live=True, here="/", **everything))

    async def _incident(self, request: Request, person: Person) -> Response:
        found = await self._store.find(request.path_params["id"])
        done = await self._history.of(found.id)
        acts, similar = person.role >= Role.ACT, await seen_before(self._store, found.id)
        part = response_part(found, done.entries, similar, acts, person.name)
        part += done_part(found, done, acts, self._acts.who(person))
        strip = self._observatory.activity(found.job)
        return HTMLResponse(await self._drawn.page(found, done, part, strip, nav(person)["person"], self._clock()))

    async def _postmortem(self, request: Request, person: Person) -> Response:
        """The incident as Markdown, with what was done until now."""
        found = await self._store.find(request.path_params["id"])
        if not found.verdict:
            raise WrongUse(
                f"incident {found.id} has no verdict yet", f"its page: /incidents/{found.id}", code="no-verdict-yet"
            )
        line = await self._drawn.timeline(found, await self._history.of(found.id))
        text = postmortem.markdown(from_json(json.loads(found.verdict)), line, self._clock())
        kept = {"content-disposition": f'attachment; filename="{found.id}.md"'}
        return Response(text, media_type="text/markdown; charset=utf-8", headers=kept)

    async def _machine(self, request: Request, person: Person) -> Response:
        name = storable(request.path_params["name"])
        feed = events(MACHINE + name, await self._marks.machine_mark(MACHINE + name, self._clock()))
        machine, life = self._observatory.machine(name), await self._history.life(name)
        if machine is None and not life:
            raise WrongUse(
                f"nothing is known of a machine {name[:100]!r}", "the machines: /machines", code="unknown-machine"
            )
        given = {
            "name": name,
            "machine": machine,
            "findings": [f"{one.code}: {one.what}" for one in machine.findings] if machine is not None else [],
            "life": life,
            "describe": describe,
            "utc": utc,
            "now": self._clock(),
            "alike": alike,
            "times": times,
            "events": feed,
        }
        held = any(row.marked and row.state is not ActionState.RELEASING for row in life.acts)
        may = {"held": held, "acts": person.role >= Role.ACT, "who": self._acts.who(person) if held else ""}
        everything = {**given, **may, **nav(person)}
        return await self._drawing.page(
            request, lambda: page("machine.html", name, live=True, here="/machines", **everything)
        )

    async def _login_page(self, request: Request) -> Response:
        return HTMLResponse(_login_form(inside(request.query_params.get("next", "/"))))

    async def _login(self, request: Request) -> Response:
        self._guard.require_own(request)
        posted = await form(request, MOST)
        token, to = posted.get("token", "").strip(), inside(posted.get("next", "/"))
        try:
            self._asker.checked(token, request)
        except NotAllowed as error:
            await self._guard.note(request, error)
            return HTMLResponse(_login_form(to, str(error)), 403)
        response = RedirectResponse(to, 303)
        self._asker.keep(response, token)
        return response

    async def _logout(self, request: Request) -> Response:
        self._guard.require_own(request)
        response = RedirectResponse("/login", 303)
        self._asker.drop(response)
        return response

    # ---- the same as JSON

    async def _api_now(self, request: Request, person: Person) -> Response:
        return api.json(api.present(await self._observatory.present(self._clock())))

    async def _api_incident(self, request: Request, person: Person) -> Response:
        found = await self._store.find(request.path_params["id"])
        done, similar = await self._history.of(found.id), await seen_before(self._store, found.id)
        return api.json(api.incident_whole(found, done.entries, similar))

    async def _api_incident_events(self, request: Request, person: Person) -> Response:
        found = await self._store.find(request.path_params["id"])
        return self._events(request, found.id)

    async def _api_machine(self, request: Request, person: Person) -> Response:
        name = storable(request.path_params["name"])
        life = await self._history.life(name)
        if self._observatory.machine(name) is None and not life:
            raise WrongUse(
                f"nothing is known of a machine {name[:100]!r}", "/api/machines lists them", code="unknown-machine"
            )
        return api.json(api.life(name, life))

    async def _api_events(self, request: Request, person: Person) -> Response:
        return self._events(request, named(storable(request.query_params.get("of", NOW))))

    async def _api_document(self, request: Request, person: Person) -> Response:
        return JSONResponse(document(importlib.metadata.version("hangdog")))

    # ---- changes

    def _events(self, request: Request, name: str) -> Response:
        if self.feed.full:
            raise ServerUnreachable(
                "too many pages are open", "this page does not update by itself; reload it", code="server-busy"
            )

        def allowed() -> bool:
            try:
                self._asker.person(request)
            except NotAllowed:
                return False
            return True

        known = request.query_params.get("seen", "")
        stream = self.feed.events(name, known, allowed)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _nothing(request: Request) -> Response:
    return Response(status_code=204)


def _login_form(to: str, wrong: str = "") -> str:
    return page("login.html", "hangdog: log in", live=True, nav="", here="", person="", to=to, wrong=wrong)
