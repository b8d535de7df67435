"""Starting a campaign of tests from a page or a program, and ending it: it is said first what that does, and happens once."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from hangdog_models.actions.by_hand import running_on
from hangdog_models.counts import counted, named
from hangdog_models.errors import HangdogError, OurFault, WrongUse
from hangdog_models.planning.campaign.launch import CampaignRound
from hangdog_server.auth.audit_log import AuditEntry, AuditLog, followed
from hangdog_server.auth.authorizer import Person
from hangdog_server.campaigns import campaign_request
from hangdog_server.campaigns.campaign_registry import CampaignRegistry, ended
from hangdog_server.etag import digest
from hangdog_server.incidents import decode
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.rate_limits import RateLimits
from hangdog_server.store.campaigns import Campaign, CampaignState
from hangdog_server.store.tables import storable
from hangdog_server.web import api
from hangdog_server.web.history import History
from hangdog_server.web.render import page
from hangdog_server.web.request_guard import Conflict, Guard, Malformed, document, form, nav, reason


class CampaignPages:
    """The pages and paths by which people have the machines of an incident tested, and have that ended."""

    def __init__(
        self, guard: Guard, registry: CampaignRegistry, history: History, limits: RateLimits, audit: AuditLog
    ) -> None:
        self._guard = guard
        self._registry = registry
        self._history = history
        self._limits = limits
        self._audit = audit
        self._turn = asyncio.Lock()
        self._followed: set[asyncio.Task[None]] = set()

    def routes(self) -> list[Route]:
        """Their paths."""
        path, end = "/incidents/{id}/diagnose", "/campaigns/{id}/abort"
        return [
            Route(end, self._guard.guarded(self._asks_end), methods=["GET"]),
            Route(end, self._guard.guarded(self._ends), methods=["POST"]),
            Route(f"/api{end}", self._guard.guarded(self._confirm_end), methods=["POST"]),
            Route(path, self._guard.guarded(self._asks), methods=["GET"]),
            Route(path, self._guard.guarded(self._does), methods=["POST"]),
            Route(f"/api{path}", self._guard.guarded(self._confirm), methods=["POST"]),
        ]

    async def close(self) -> None:
        """Follows no campaign any more; whoever leads them goes on, or the next server does."""
        for task in self._followed:
            task.cancel()
        await asyncio.gather(*self._followed, return_exceptions=True)

    async def _asks(self, request: Request, person: Person) -> Response:
        """Says whom it would test, and how it would begin."""
        incident, before = await self._about(request)
        try:
            machines, step = await self._registry.plan(_request(incident, "", person))
        except WrongUse as error:
            raise Conflict(str(error), error.hint, code=error.code) from error
        if not isinstance(step, CampaignRound):
            raise Conflict(f"nothing would be tested: {step.reason}", "hangdog test run --help", code="nothing-to-test")
        does = (
            f"{named(machines)} {'is' if len(machines) == 1 else 'are'} loaded with tests until one is convicted or "
            f"nothing more can be learnt, beginning with {step.reason}; a machine on which a job runs refuses."
        )
        given = {"what": "diagnose", "machines": counted(len(machines), "machine"), "does": does, "seen": _seen(before)}
        running = [f"{running_on(job, on)}" for job, on in self._registry.busy(machines).items()]
        return _confirm(f"hangdog: diagnose {incident}", f"/incidents/{incident}", person, given, running)

    async def _does(self, request: Request, person: Person) -> Response:
        """Starts it, unless one was started since the page was shown."""
        posted = await form(request)
        if not posted.get("seen"):
            raise Malformed("this is no form of ours", "open the page and post its form", code="wrong-body")
        async with self._turn:  # of two forms that come at once the second finds what the first began
            incident, before = await self._about(request)
            if posted["seen"] == _seen(before):
                await self._start(incident, reason(posted), person)
        return RedirectResponse(f"/incidents/{incident}", 303)

    async def _confirm(self, request: Request, person: Person) -> Response:
        incident, _ = await self._about(request)
        posted = await document(request)
        return api.json(api.StartedAnswer(await self._start(incident, reason(posted), person)))

    async def _asks_end(self, request: Request, person: Person) -> Response:
        """Says what ending it does."""
        campaign = await self._campaign(request)
        if campaign.state is not CampaignState.RUNNING:
            raise _over(campaign)
        machines = named([str(name) for name, _ in campaign.asked.get("prior", ())])
        does = f"The tests of {machines} end now, and what is known by then stands; others may begin new ones."
        given = {"what": "abort", "machines": f"campaign {campaign.id}", "does": does, "seen": _seen((campaign,))}
        return _confirm(f"hangdog: end campaign {campaign.id}", _back(campaign), person, given)

    async def _ends(self, request: Request, person: Person) -> Response:
        """Ends it; one that was ended by now is what was wanted."""
        posted, campaign = await form(request), await self._campaign(request)
        if posted.get("seen") != _seen((campaign,)):
            raise Malformed("this is no form of ours", "open the page and post its form", code="wrong-body")
        if campaign.state is not CampaignState.ABORTED:
            await self._end(campaign, reason(posted), person)
        return RedirectResponse(_back(campaign), 303)

    async def _confirm_end(self, request: Request, person: Person) -> Response:
        campaign, posted = await self._campaign(request), await document(request)
        done = await self._end(campaign, reason(posted), person)
        return api.json(api.EndedAnswer(done.id, done.state))

    async def _campaign(self, request: Request) -> Campaign:
        return await self._registry.find(storable(request.path_params["id"]))

    async def _end(self, campaign: Campaign, because: str, person: Person) -> Campaign:
        """The campaign once it has ended, which is recorded before and after."""
        if campaign.state is not CampaignState.RUNNING:
            raise _over(campaign)
        why = f"{campaign.id}: {because}" if because.strip() else campaign.id
        entry = replace(person.audit_entry("abort diagnose", "", why), incident=campaign.incident)
        try:
            return await ended(self._registry, campaign.id, self._audit, entry)
        except WrongUse as error:  # it came to its end a moment ago
            raise Conflict(str(error), error.hint, code=error.code) from error

    async def _about(self, request: Request) -> tuple[str, tuple[Campaign, ...]]:
        incident, _ = await self._history.acts_of(storable(request.path_params["id"]))
        return incident.id, (await self._history.of(incident.id)).campaigns

    async def _start(self, incident: str, because: str, person: Person) -> str:
        """The name of the campaign, once it is in the store."""
        asked = _request(incident, because, person)
        began: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        try:
            self._limits.snapshot(person.name, steady())
            entry = replace(person.audit_entry("diagnose", "", f"{incident}: {asked.why}"), incident=incident)
            task = asyncio.create_task(self._follow(asked, entry, began), name=f"campaign about {incident}")
            self._followed.add(task)
            task.add_done_callback(self._followed.discard)
            return await began
        except WrongUse as error:
            raise Conflict(str(error), error.hint, code=error.code) from error

    async def _follow(
        self, asked: campaign_request.CampaignRequest, entry: AuditEntry, began: "asyncio.Future[str]"
    ) -> None:
        """Follows a campaign to its end, for the audit log, as `hangdog test` does."""
        try:
            async for step in followed(self._registry.run(asked), self._audit, entry):
                if not began.done():
                    began.set_result(step.name)
        except HangdogError as error:
            if not began.done():
                began.set_exception(error)  # else it is kept with the campaign
        finally:
            if not began.done():
                began.set_exception(
                    OurFault("the campaign did not begin", "the server's log tells more", code="server-failed")
                )


def _confirm(title: str, back: str, person: Person, given: dict[str, str], foreseen: Sequence[str] = ()) -> Response:
    empty = {"stopped": "", "why": (), "refused": (), "foreseen": foreseen, "wrong": "", "because": "", "typed": ()}
    words = {"most": decode.WHY, "back": back, "here": "", **nav(person)}
    return HTMLResponse(page("confirm.html", title, live=True, **words, **given, **empty))


def _over(campaign: Campaign) -> WrongUse:
    return Conflict(
        f"campaign {campaign.id} is over: {campaign.state}", "there is nothing left to end", code="campaign-is-over"
    )


def _back(campaign: Campaign) -> str:
    return f"/incidents/{quote(campaign.incident, safe='')}" if campaign.incident else "/"


def _request(incident: str, because: str, person: Person) -> campaign_request.CampaignRequest:
    return campaign_request.CampaignRequest(incident=incident, why=because, who=person.name)


def _seen(campaigns: tuple[Campaign, ...]) -> str:
    """What somebody is shown before they start one: another once there is one more."""
    return digest(sorted(one.id for one in campaigns))
