"""Has the machines that hangdog took out tested without being asked, and brings back those that pass, where policy says so.

One campaign of levels 1 to 4 comes first. Where it convicts nobody, one of replays may follow. Nothing of it is kept here: whether a
campaign was begun for an incident, how it ended, and what has come back stand in the store. So a server that is killed anywhere between is followed by one that begins none twice, and releases nobody twice.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from hangdog_models.counts import named
from hangdog_models.errors import HangdogError
from hangdog_models.planning.campaign.level_planner import REPLAY
from hangdog_server.actions import policy
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.reconcile import ActionLoop
from hangdog_server.auth.audit_log import AuditEntry, AuditLog, followed
from hangdog_server.campaigns.campaign_registry import CampaignRegistry
from hangdog_server.campaigns.campaign_report import CampaignVerdict
from hangdog_server.campaigns.campaign_request import CampaignRequest, ReplayRequest
from hangdog_server.campaigns.following_replay import ROUNDS, following, replays, unexplained
from hangdog_server.cluster.leadership import Leading
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.round_capture import steady
from hangdog_server.store import actions, campaigns
from hangdog_server.store.actions import UNDER_WAY, ActionRecord
from hangdog_server.store.campaigns import Campaign, CampaignState
from hangdog_server.store.history import stated
from hangdog_server.store.store_errors import StoreFailed

#: Who asks for these campaigns, and brings machines back after them.
WHO = "hangdog"
#: Between two looks at what is out of use. Seconds.
TICK_S = 5.0
#: A campaign that was refused, as where others run already, is asked for again after so long. Seconds.
AGAIN_S = 60.0
#: Machines whose agents are away are waited for so long: after a server's restart they come back within seconds.
ABSENT_S = 60.0

log = logging.getLogger(__name__)


class IsolationTests:
    """The campaigns on machines that are out of use; `keep` begins them and acts upon them until it is cancelled."""

    def __init__(
        self,
        services: IncidentServices,
        acting: ActionLoop,
        campaigns: CampaignRegistry,
        leading: Leading,
        audit: AuditLog,
    ) -> None:
        self._services, self._acting, self._campaigns = services, acting, campaigns
        self._leading, self._audit = leading, audit
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._next: dict[str, float] = {}
        self._absent_until: dict[str, float] = {}

    async def keep(self) -> None:
        """Looks again and again; raises nothing."""
        if not self._chosen.testing.test:
            return
        try:
            while True:
                try:
                    await self.tick()
                except StoreFailed as error:
                    log.error("isolated machines are not tested now: %s", error)
                except Exception:  # a bug met with one incident must not keep the machines of others from being tested
                    log.exception("cannot manage the tests of isolated machines")
                await asyncio.sleep(TICK_S)
        finally:
            await self.close()

    async def tick(self) -> None:
        """Begins the campaigns that are due, and acts upon those that ended; raises StoreFailed."""
        if not self._chosen.testing.test or self._acting.stopped():
            return
        rows = sorted(await self._services.store.ask(actions.under_way), key=lambda row: row.incident)
        for incident, group in groupby(rows, lambda row: row.incident):
            await self._look_after(incident, list(group))

    async def close(self) -> None:
        """Waits for no campaign any more; those that run go on."""
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)

    @property
    def _chosen(self) -> ActionsConfig:
        return self._acting.chosen

    async def _look_after(self, incident: str, rows: Sequence[ActionRecord]) -> None:
        """All machines of a verdict are out before one is tested: who fails with others is told from these."""
        if any(row.state in UNDER_WAY for row in rows) or not await self._leading.leads(rows[0].job):
            return
        about = await self._services.store.ask(campaigns.about, incident)
        ours = [campaign for campaign in about if campaign.who == WHO and not replays(campaign)]
        machines = tuple(row.machine for row in rows if not self._services.fleet.untestable(row.machine))
        if not ours:
            if machines and self._ready(incident, machines, rows):
                why = f"out of use since incident {incident}"
                self._begin(rows[0].job, CampaignRequest(machines, incident, why=why))
            return
        held = (ours[-1], *_replayed(about, rows)[-1:])
        if any(campaign.state is CampaignState.RUNNING for campaign in held):
            return
        because = ""
        if self._chosen.testing.replay is not None and len(held) == 1 and unexplained(ours[-1], _report(ours[-1])):
            if not self._ready(incident, machines, rows):
                return
            because = await self._replay(ours[-1], rows, machines)
            if not because:
                return
        for row in rows:
            await self._conclude(held, row, because)

    def _ready(self, incident: str, machines: Sequence[str], rows: Sequence[ActionRecord]) -> bool:
        """Whether a campaign may be asked for: none is being asked for, no job runs there, and nobody is waited for."""
        fleet = self._services.fleet
        running = [name for name in machines if fleet.jobs_of(name)]  # the job that is moved may still be ending there
        if running or incident in self._asking or self._next.get(incident, 0.0) > steady():
            return False
        # nobody is tested later than the others: who is left out of the campaign stays out of use
        if len(machines) < len(rows) and self._absent_until.setdefault(incident, steady() + ABSENT_S) > steady():
            return False
        self._absent_until.pop(incident, None)
        return True

    async def _replay(self, before: Campaign, rows: Sequence[ActionRecord], machines: Sequence[str]) -> str:
        """Begins the campaign of replays that follows this one, and tells its result; else why none follows."""
        policy, fleet, job = self._chosen.testing.replay, self._services.fleet, rows[0].job
        assert policy is not None
        name = policy.name(job)
        replay = ReplayRequest(name, policy.group_size, policy.time_s) if name is not None else None
        chosen = following(_report(before), replay, policy.machines, {one: fleet.replays(one) for one in machines})
        if isinstance(chosen, str) or replay is None:
            return f"level 5 does not follow: {chosen}"
        for row in rows:
            await self._tell(before, row)
        why = f"campaign {before.id} convicted nobody"
        request = CampaignRequest(chosen, before.incident, (REPLAY,), ROUNDS * policy.time_s, why, replay=replay)
        self._begin(job, request)
        return ""

    def _begin(self, job: str, request: CampaignRequest) -> None:
        """Asks for a campaign: it is in the store only a moment later."""
        incident = request.incident
        task = asyncio.create_task(self._ask(job, replace(request, who=WHO)), name=f"tests after incident {incident}")
        self._asking[incident] = task
        task.add_done_callback(lambda _: self._asking.pop(incident))

    async def _ask(self, job: str, request: CampaignRequest) -> None:
        machines, incident = request.machines, request.incident
        what = "replays" if request.levels else "tests"
        log.warning("incident %s: %s on %s begin, as the policy says", incident, what, named(machines))
        entry = AuditEntry("diagnose", WHO, "", "policy", "", job, f"{named(machines)}: {request.why}", incident)
        try:
            async for _ in followed(self._campaigns.run(request), self._audit, entry):
                pass
        except HangdogError as error:
            log.warning("incident %s: %s not tested yet: %s", incident, named(machines), error)
            self._next[incident] = steady() + AGAIN_S

    async def _tell(self, campaign: Campaign, row: ActionRecord, because: str = "") -> ActionRecord:
        """Tells at the act what came of a campaign, once, and in the ledger who was innocent; the act as it is then."""
        if campaign.id in row.message:
            return row
        outcome = f"{_outcome(campaign, row.machine)}; {because}" if because else _outcome(campaign, row.machine)
        noted = replace(row, message=f"{row.message}; {outcome}" if row.message else outcome)
        now = self._services.clock()
        innocent = bool(campaign.convicted) and passed(campaign, row.machine)  # whom it convicted explains the hang

        def tell(connection: sa.Connection) -> None:
            moved = actions.move(connection, row, row.state, now, noted.message, row.marked)
            if moved and innocent:
                stated.clear(connection, row.incident, row.job, row.machine, now)

        await self._services.store.write(row.incident, tell)
        return noted

    async def _conclude(self, held: Sequence[Campaign], row: ActionRecord, because: str) -> None:
        """Tells what came of all campaigns, and brings a machine back that passed each of them, where that is wanted."""
        for campaign in held:
            row = await self._tell(campaign, row, because)
        if not (self._chosen.testing.release and all(passed(campaign, row.machine) for campaign in held)):
            return
        outcome = "; ".join([*(_outcome(campaign, row.machine) for campaign in held), *([because] if because else [])])
        store, now = self._services.store, self._services.clock()
        of_machine = await store.ask(actions.of_machine, row.machine)
        if any(one.marked and one.incident != row.incident for one in of_machine):
            return  # another incident holds it, too

        def back(connection: sa.Connection) -> tuple[ActionRecord, ...]:
            store.one_at_a_time(connection, policy.TURN)
            return policy.release(connection, row.machine, outcome, WHO, now)

        await store.do(back)
        self._services.judged.set()
        entry = AuditEntry(f"release {row.machine}", WHO, "", "policy", "", row.job, outcome, row.incident, "releasing")
        await self._audit.note(entry)


def passed(campaign: Campaign, machine: str) -> bool:
    """Whether a campaign that came to its end tested a machine in full and found nothing: no proof of health, and all there is.

    A group that failed with a convicted machine in it says nothing about the others, if they passed the same test elsewhere.
    """
    report = _report(campaign)
    if report.get("verdict") not in (CampaignVerdict.NOT_CONVICTED, CampaignVerdict.CONVICTED):
        return False
    tested = {one["machine"] for one in report["not_convicted"]}
    untested = {one["machine"] for one in report["untested"]}
    convicted = set(campaign.convicted)
    mine = [one for one in report["launches"] if machine in one["machines"]]
    fails, passes = ([one for one in mine if one["result"] == result] for result in ("fail", "pass"))
    explained = all(convicted & set(one["machines"]) for one in fails)
    elsewhere = {one["test"] for one in fails} <= {one["test"] for one in passes}
    return machine in tested - untested - convicted and explained and elsewhere


def _replayed(about: Sequence[Campaign], rows: Sequence[ActionRecord]) -> list[Campaign]:
    """The replays of these machines, whoever asked for them: people who had one held are not overruled by a second."""
    machines = {row.machine for row in rows}
    return [one for one in about if replays(one) and (one.who == WHO or machines & dict(one.asked["prior"]).keys())]


def _outcome(campaign: Campaign, machine: str) -> str:
    if machine in campaign.convicted:
        return f"campaign {campaign.id} convicted it"
    if passed(campaign, machine):
        return f"campaign {campaign.id} found nothing of it"
    if machine not in dict(campaign.asked.get("prior", ())):
        return f"campaign {campaign.id} did not test it"
    return f"campaign {campaign.id} did not decide: {campaign.note or campaign.state}"


def _report(campaign: Campaign) -> Mapping[str, Any]:
    report: Mapping[str, Any] = json.loads(campaign.report) if campaign.report else {}
    return report
