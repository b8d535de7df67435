"""Has the machines that hangdog took out tested without being asked, and brings back those that pass, where policy says so.

Nothing of it is kept here: whether a campaign was begun for an incident, how it ended, and what has come back stand in the store. So a
server that is killed anywhere between is followed by one that begins none twice, and releases nobody twice.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from hangdog_models.counts import named
from hangdog_models.errors import HangdogError
from hangdog_server.actions import policy
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.reconcile import ActionLoop
from hangdog_server.auth.audit_log import AuditEntry, AuditLog, followed
from hangdog_server.campaigns.campaign_registry import CampaignRegistry
from hangdog_server.campaigns.campaign_report import CampaignVerdict
from hangdog_server.campaigns.campaign_request import CampaignRequest
from hangdog_server.cluster.leadership import Leading
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.round_capture import steady
from hangdog_server.store import actions, campaigns
from hangdog_server.store.actions import UNDER_WAY, ActionRecord
from hangdog_server.store.campaigns import Campaign, CampaignState
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
        ours = [campaign for campaign in about if campaign.who == WHO]
        if not ours:
            self._begin(incident, rows)
        elif ours[-1].state is not CampaignState.RUNNING:
            for row in rows:
                await self._conclude(ours[-1], row)

    def _begin(self, incident: str, rows: Sequence[ActionRecord]) -> None:
        """Asks for the campaign, unless that is under way: it is in the store only a moment later."""
        fleet = self._services.fleet
        machines = tuple(row.machine for row in rows if not fleet.untestable(row.machine))
        running = [name for name in machines if fleet.jobs_of(name)]  # the job that is moved may still be ending there
        if not machines or running or incident in self._asking or self._next.get(incident, 0.0) > steady():
            return
        # nobody is tested later than the others: who is left out of the campaign stays out of use
        if len(machines) < len(rows) and self._absent_until.setdefault(incident, steady() + ABSENT_S) > steady():
            return
        self._absent_until.pop(incident, None)
        task = asyncio.create_task(self._ask(incident, rows[0].job, machines), name=f"tests after incident {incident}")
        self._asking[incident] = task
        task.add_done_callback(lambda _: self._asking.pop(incident))

    async def _ask(self, incident: str, job: str, machines: tuple[str, ...]) -> None:
        why = f"out of use since incident {incident}"
        log.warning("incident %s: tests of %s begin, as the policy says", incident, named(machines))
        request = CampaignRequest(machines, incident, why=why, who=WHO)
        entry = AuditEntry("diagnose", WHO, "", "policy", "", job, f"{named(machines)}: {why}", incident)
        try:
            async for _ in followed(self._campaigns.run(request), self._audit, entry):
                pass
        except HangdogError as error:
            log.warning("incident %s: %s not tested yet: %s", incident, named(machines), error)
            self._next[incident] = steady() + AGAIN_S

    async def _conclude(self, campaign: Campaign, row: ActionRecord) -> None:
        """Tells at the act what came of the campaign, once, and brings a machine back that passed, where that is wanted."""
        outcome = _outcome(campaign, row.machine)
        if campaign.id not in row.message:
            words = f"{row.message}; {outcome}" if row.message else outcome
            now = self._services.clock()
            await self._services.store.write(row.incident, actions.move, row, row.state, now, words, row.marked)
        if not (self._chosen.testing.release and passed(campaign, row.machine)):
            return
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
    """Whether a campaign that came to its end tested a machine in full and found nothing: no proof of health, and all there is."""
    report = _report(campaign)
    if report.get("verdict") not in (CampaignVerdict.NOT_CONVICTED, CampaignVerdict.CONVICTED):
        return False
    tested = {one["machine"] for one in report["not_convicted"]}
    untested = {one["machine"] for one in report["untested"]}
    failed = {name for one in report["launches"] if one["result"] == "fail" for name in one["machines"]}
    return machine in tested - untested - failed - set(campaign.convicted)


def _outcome(campaign: Campaign, machine: str) -> str:
    if machine in campaign.convicted:
        return f"campaign {campaign.id} convicted it"
    if passed(campaign, machine):
        return f"campaign {campaign.id} found nothing of it"
    return f"campaign {campaign.id} did not decide: {campaign.note or campaign.state}"


def _report(campaign: Campaign) -> Mapping[str, Any]:
    report: Mapping[str, Any] = json.loads(campaign.report) if campaign.report else {}
    return report
