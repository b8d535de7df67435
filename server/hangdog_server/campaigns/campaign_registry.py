"""Takes requests for campaigns in, starts them or goes on with them, and passes on what machines say."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace

from hangdog_models.counts import counted
from hangdog_models.errors import HangdogError, ServerUnreachable, WrongUse
from hangdog_models.planning.campaign.launch import CampaignRound, LaunchBudget
from hangdog_models.planning.campaign.round_planner import Stop
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth.audit_log import AuditEntry, AuditLog
from hangdog_server.campaigns.campaign_request import CampaignPlanRequest, CampaignRequest, from_json
from hangdog_server.campaigns.campaign_run import CampaignRun, CampaignServices, planned
from hangdog_server.campaigns.launch import LaunchRun
from hangdog_server.campaigns.suspects import asked
from hangdog_server.incidents.round_capture import steady
from hangdog_server.progress import ProgressUpdate
from hangdog_server.store import campaigns, leases
from hangdog_server.store.campaigns import Campaign, CampaignState
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.store.trusted_date import believed

log = logging.getLogger(__name__)

#: Bytes of randomness in a campaign's name: 12 hexadecimal digits, as an incident's.
_NAME_BYTES = 6
#: Ticks in the life of a lease: one that failed, or came late, loses nothing.
_TICKS = 3.0


class CampaignRegistry:
    """The running campaigns: no machine is in two of them."""

    def __init__(self, services: CampaignServices) -> None:
        self._services = services
        self._running: dict[str, CampaignRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._me = secrets.token_hex(8)

    async def run(self, request: CampaignRequest) -> AsyncIterator[ProgressUpdate]:
        """The steps of the campaign that this request starts; raises HangdogError when it is refused or fails."""
        wanted = await self._asked(request)
        self._require_free(wanted)
        name = secrets.token_hex(_NAME_BYTES)
        incident = (await self._services.store.find(request.incident)).id if request.incident else ""
        if self._services.store.shared:  # before there is anything that another server could take up
            await self._services.store.do(leases.take, [_lease(name)], self._me, "", self._services.settings.lease_s)
        at = self._services.clock()
        campaign = Campaign(name, at, request.who, request.why, incident, wanted.to_json())
        self._require_free(wanted)  # somebody may have been faster
        async for step in self._led(CampaignRun(campaign, wanted, self._services)).follow():
            yield step

    async def plan(self, request: CampaignRequest) -> tuple[tuple[str, ...], CampaignRound | Stop]:
        """The machines a campaign would be about, and its first round; nobody is asked anything."""
        wanted = await self._asked(request)
        budget = LaunchBudget(seconds=wanted.budget_s)
        step = await asyncio.to_thread(planned, wanted, wanted.belief(), 0, budget)
        return tuple(wanted.prior), step

    def busy(self, machines: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """The jobs that run on any of these machines, each with its machines: those refuse tests until it has ended."""
        wanted, found = set(machines), dict[str, list[str]]()
        for seen in self._services.fleet.machines(steady()):
            for job in seen.jobs if seen.machine in wanted else ():
                found.setdefault(job, []).append(seen.machine)
        return {job: tuple(on) for job, on in found.items()}

    async def follow(self, name: str) -> AsyncIterator[ProgressUpdate]:
        """The steps of a campaign that runs, from its first; of one that ended the last."""
        campaign = await self.find(name)
        course = self._running.get(campaign.id)
        if course is None:
            if campaign.state is CampaignState.RUNNING:
                raise ServerUnreachable(
                    f"campaign {campaign.id} is led by another server", "ask there", code="not-the-leader"
                )
            yield ProgressUpdate(
                campaign.id, campaign.state, campaign.note or f"it is {campaign.state}", campaign.report
            )
            return
        async for step in course.follow():
            yield step

    async def find(self, name: str) -> Campaign:
        """The one campaign whose name begins so; raises HangdogError."""
        return await self._services.store.ask(campaigns.find, name)

    async def abort(self, name: str, who: str) -> Campaign:
        """Ends a campaign with what is known by now, and waits until it has ended; raises HangdogError."""
        campaign = await self.find(name)
        course, task = self._running.get(campaign.id), self._tasks.get(campaign.id)
        if course is not None and task is not None:
            course.abort(who)
            await asyncio.wait((task,))
            return await self.find(campaign.id)
        if campaign.state is CampaignState.RUNNING:
            raise ServerUnreachable(
                f"campaign {campaign.id} is led by another server", "ask there", code="not-the-leader"
            )
        raise WrongUse(f"campaign {campaign.id} is over: {campaign.state}", code="campaign-is-over")

    async def take_report(self, machine: str, stated: pb.Diagnosed) -> str:
        """Takes in what a machine says of a launch; the reason why it is refused, empty when it is taken."""
        course = self._running.get(stated.launch.partition("-")[0])
        launch = course.launched.get(stated.launch) if course is not None else None
        return (
            await launch.take_report(machine, stated) if launch else f"nobody waits for launch {stated.launch[:60]!r}"
        )

    def launches(self) -> Iterator[LaunchRun]:
        """The launches that are under way, which are told who of their machines comes and goes."""
        return (launch for course in self._running.values() for launch in course.launched.values())

    async def keep(self) -> None:
        """Takes up what other servers left, and forgets what is too old; ends only by being cancelled."""
        settings, forgot = self._services.settings, steady()
        while True:
            await asyncio.sleep(settings.lease_s / _TICKS)
            try:
                await self.tick()
                if settings.keep_s and steady() - forgot >= settings.prune_s:
                    forgot = steady()
                    now = (await believed(self._services.store, self._services.clock)).at
                    await self._services.store.do(campaigns.forget, now - settings.keep_s)
            except StoreFailed as error:
                log.error("cannot manage campaigns now: %s", error)
            except Exception:  # a bug met in one tick must not end the watch over all campaigns
                log.exception("cannot manage campaigns")

    async def tick(self) -> None:
        """Goes on with campaigns that nobody leads, gives up those that another server does; raises StoreFailed."""
        store = self._services.store
        opened = await store.ask(campaigns.open_)
        mine = {campaign.id for campaign in opened}
        if store.shared and opened:
            names = {_lease(campaign.id): campaign.id for campaign in opened}
            held = await store.do(leases.take, names, self._me, "", self._services.settings.lease_s)
            mine = {names[job] for job, found in held.items() if found.holder == self._me}
            for name in self._running.keys() & (set(names.values()) - mine):
                log.warning("campaign %s: another server leads it now", name)
                self._tasks[name].cancel()
        for campaign in opened:
            if campaign.id in mine and campaign.id not in self._running:
                again = await store.ask(campaigns.find, campaign.id)  # it may have come to its end since
                if again.state is CampaignState.RUNNING and campaign.id not in self._running:
                    log.warning("campaign %s: resumed", campaign.id)
                    self._led(CampaignRun(again, from_json(again.asked), self._services, resumed=True))

    async def close(self) -> None:
        """Stops leading; whoever takes the store up next goes on with what is unfinished."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # a task cancelled before it began raises

    async def _asked(self, request: CampaignRequest) -> CampaignPlanRequest:
        services = self._services
        return await asked(request, services.fleet, services.store, services.settings, services.clock)

    def _require_free(self, wanted: CampaignPlanRequest) -> None:
        if len(self._running) >= self._services.settings.max_campaigns:
            many = len(self._running)
            stated = f"{counted(many, 'campaign')} {'is' if many == 1 else 'are'} running"
            raise ServerUnreachable(stated, "try again when one has ended", code="server-busy")
        for name, course in self._running.items():
            if taken := sorted(course.machines & wanted.prior.keys()):
                what = f"machine {taken[0]} is being tested by campaign {name}"
                raise WrongUse(what, f"follow it: hangdog test follow {name}", code="machine-in-use")

    def _led(self, course: CampaignRun) -> CampaignRun:
        name = course.campaign.id

        async def lead() -> None:
            try:
                await course.lead()
            finally:
                del self._running[name]
                if self._services.store.shared:
                    try:
                        await self._services.store.do(leases.drop, [_lease(name)], self._me)
                    except StoreFailed as error:
                        log.warning("cannot release the lease of campaign %s, which then expires: %s", name, error)

        self._running[name] = course
        task = asyncio.create_task(lead(), name=f"campaign {name}")
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name))
        return course


async def ended(registry: CampaignRegistry, name: str, audit: AuditLog, entry: AuditEntry) -> Campaign:
    """The campaign, ended by whose deed it is; recorded are that it was asked for, and what came of it. Raises HangdogError."""
    await audit.note(replace(entry, outcome="asked"))
    try:
        campaign = await registry.abort(name, entry.who)
    except HangdogError as error:
        await audit.note(replace(entry, outcome=f"refused: {error}"))
        raise
    outcome = f"{campaign.state}: {campaign.note}" if campaign.note else str(campaign.state)
    await audit.note(replace(entry, outcome=outcome))
    return campaign


def _lease(name: str) -> str:
    """What a campaign's lease is called among those of jobs, none of which begins so."""
    return f"\n{name}"
