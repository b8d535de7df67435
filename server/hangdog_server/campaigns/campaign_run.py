"""Leads one campaign from round to round: plans, launches on all groups at once, learns, until the planner has no question.

Every launch is in the store before a machine hears of it. A campaign lives on when whoever asked for it hangs up, and when
its server ends: the next one asks for what was under way again, which the machines do not do twice.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from hangdog_models.counts import counted, named
from hangdog_models.errors import HangdogError, OurFault, ServerUnreachable
from hangdog_models.planning.campaign.belief import Belief, update
from hangdog_models.planning.campaign.launch import CampaignRound, Launch, LaunchBudget, LaunchResult
from hangdog_models.planning.campaign.level_planner import LADDER, Conclusion, concluded, outcomes
from hangdog_models.planning.campaign.replay_planner import plan_replay
from hangdog_models.planning.campaign.round_planner import Stop, plan
from hangdog_server.campaigns import campaign_report
from hangdog_server.campaigns.campaign_report import CampaignEnd
from hangdog_server.campaigns.campaign_request import CampaignPlanRequest
from hangdog_server.campaigns.launch import LaunchRun
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.round_capture import steady
from hangdog_server.progress import ProgressStream, ProgressUpdate
from hangdog_server.protocol.commands import Abort
from hangdog_server.settings import ServerSettings
from hangdog_server.store import campaigns, test_results
from hangdog_server.store.campaigns import Campaign, CampaignState, StoredCampaign
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed

log = logging.getLogger(__name__)

#: A launch may take so many times as long as it usually does: machines that are slow are what is looked for.
PATIENCE = 4.0
#: A machine that twice did not answer is asked no more in this campaign.
SILENCES = 2
#: How often one campaign is taken up: one that ends its server each time must not do so for ever.
ATTEMPTS = 3
#: Between two attempts to store how a campaign ended, while the store is away. Seconds.
AGAIN_S = 2.0
#: With less time than this left nothing new is launched: the agents' levels begin with nothing less either.
LEAST_S = 5.0

_NAMES = {one.name: level for level, one in LADDER.items()}


@dataclass(frozen=True, slots=True)
class CampaignServices:
    """What campaigns are led with; `clock` gives Unix seconds."""

    fleet: Fleet
    store: Store
    settings: ServerSettings
    clock: Callable[[], float]


class CampaignRun:
    """A running campaign: `lead` it once, `follow` it as often as people ask. `launched` is what is under way, by name."""

    def __init__(
        self, campaign: Campaign, asked: CampaignPlanRequest, services: CampaignServices, resumed: bool = False
    ) -> None:
        self.campaign = campaign
        self._asked = asked
        self._services = services
        self._resumed = resumed
        self._launches: list[StoredCampaign] = []
        self.launched: dict[str, LaunchRun] = {}
        self._progress = ProgressStream()
        self._aborted = ""
        self._before = 0
        self._spent_s = 0.0
        self._since = 0.0

    @property
    def machines(self) -> frozenset[str]:
        """Those that are its own for as long as it runs."""
        return frozenset(self._asked.prior)

    def follow(self) -> AsyncIterator[ProgressUpdate]:
        """All steps from the first to the last, as they are said; raises what the campaign failed of."""
        return self._progress.follow()

    def abort(self, who: str) -> None:
        """Ends it with what is known by now."""
        if not self._aborted:
            self._aborted = f"aborted by {who}"
            self._say(CampaignState.RUNNING, f"{self._aborted}: ending all tests")
        for launching in self.launched.values():
            launching.abort()

    async def lead(self) -> None:
        """Leads the campaign to its end; whatever goes wrong is said and remembered, and ends here."""
        try:
            await self._through()
        except HangdogError as error:
            await self._fail(error)
        except asyncio.CancelledError:  # the store does not hear of it: whoever takes the store up goes on
            stopped = "the server stopped before the campaign ended"
            self._progress.failure = ServerUnreachable(stopped, "the next server continues it", code="server-stopped")
        except Exception as error:  # a bug of ours must not leave a campaign that looks as if it were still running
            log.exception("campaign %s failed", self.campaign.id)
            what = f"campaign {self.campaign.id} failed: {type(error).__name__}: {error}"
            await self._fail(OurFault(what, "this is a bug in hangdog; the server's log says more", code="bug"))
        finally:
            self._progress.end()

    async def _through(self) -> None:
        name, store = self.campaign.id, self._services.store
        self._since = steady()
        if self._resumed:
            await self._take_up()
        else:
            await store.do(campaigns.begin, self.campaign)
            self._say(CampaignState.RUNNING, f"campaign {name} upon {named(self._asked.prior)}")
        for machine, why in self._asked.unable.items():
            self._say(CampaignState.RUNNING, f"{machine} cannot be tested: {why}")
        while True:
            belief = self._belief()
            step = await asyncio.to_thread(planned, self._asked, belief, self._rounds, self._budget())
            if self._aborted or not isinstance(step, CampaignRound):
                break
            await self._round(step)
        if isinstance(step, CampaignRound):  # aborted: what is known is asked for without any budget left
            step = await asyncio.to_thread(plan, belief, self._asked.diagnostics, LaunchBudget(0.0, 0, 0, 0))
        assert not isinstance(step, CampaignRound)
        await self._end(CampaignEnd(step, self._aborted or str(step.reason), bool(self._aborted)), belief)

    async def _take_up(self) -> None:
        """Goes on with what was under way when the server before ended."""
        name, store, attempt = self.campaign.id, self._services.store, self._asked.attempt + 1
        self._spent_s = self._passed_s(self.campaign.began, self._asked.budget_s)
        self._say(CampaignState.RUNNING, f"campaign {name}, which the server's end cut short")
        self._launches = list(await store.ask(campaigns.launches, name))
        self._before = len(self._launches)
        if attempt > ATTEMPTS:
            raise ServerUnreachable(
                f"the server ended {counted(attempt, 'time')} during this campaign",
                "start a new one",
                code="server-stopped",
            )
        self._asked = replace(self._asked, attempt=attempt)
        await store.do(campaigns.remember, name, self._asked.to_json())
        if open_ := [one for one in self._launches if one.came is None]:
            self._say(
                CampaignState.RUNNING, f"asking again for {counted(len(open_), 'launch', 'launches')}, under way then"
            )
            await self._launch(open_)

    async def _round(self, step: CampaignRound) -> None:
        number = 1 + self._rounds
        first, now, left_s = len(self._launches), self._services.clock(), self._left_s()
        new = [
            StoredCampaign(
                first + at, number, one.diagnostic.name, one.machines, one.repetitions, now,
                min(left_s, one.seconds if self._asked.replays else PATIENCE * one.seconds),
            )
            for at, one in enumerate(step.launches)
        ]  # fmt: skip
        await self._stored(lambda: self._services.store.do(campaigns.planned, self.campaign.id, new))
        self._launches += new
        self._say(CampaignState.RUNNING, f"round {number}: {step.reason}")
        await self._launch(new)

    async def _launch(self, new: list[StoredCampaign]) -> None:
        """Runs launches at once, each to its conclusion; the first failure of ours ends all."""
        tasks = [
            asyncio.create_task(self._launched(one), name=f"launch {self.campaign.id}-{one.number}") for one in new
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _launched(self, one: StoredCampaign) -> None:
        services, campaign = self._services, self.campaign.id
        name = f"{campaign}-{one.number}"
        passed_s = self._passed_s(one.began, one.deadline_s) if one.number < self._before else 0.0
        left_s = max(LEAST_S, one.deadline_s - passed_s)  # agents refuse less, and would be taken for silent

        async def met(meet: str) -> None:
            try:
                await services.store.do(campaigns.met, campaign, one.number, meet)
            except StoreFailed as error:  # only the next server would need it
                log.warning("launch %s: the address where its members meet is not stored: %s", name, error)

        settings = services.settings  # a whole cluster comes back to a server that was started anew
        lost_s = max(settings.campaign_lost_s, settings.returned_s) if self._resumed else settings.campaign_lost_s
        replay = self._asked.replay.name
        launching = LaunchRun(name, one, _NAMES[one.test], left_s, services.fleet, lost_s, met, replay)
        self.launched[name] = launching
        if self._aborted:
            launching.abort()
        try:
            answers = await launching.answers()
        finally:
            del self.launched[name]
        came = Conclusion(LaunchResult.INCONCLUSIVE, self._aborted)
        if answers:
            came = concluded(LADDER[_NAMES[one.test]], answers)
        reports = {machine: answer.report for machine, answer in answers.items() if answer.report is not None}
        at = services.clock()
        await self._stored(lambda: services.store.do(campaigns.concluded, campaign, one, came, reports, at))
        parts = {
            machine: tuple(found) for machine, reported in reports.items() if (found := test_results.blamed(reported))
        }
        self._launches[one.number] = replace(one, came=came, ended=at, parts=parts)
        because = f": {came.reason}" if came.reason else ""
        self._say(CampaignState.RUNNING, f"{named(one.machines)}: {one.test}: {came.result}{because}")

    def _belief(self) -> Belief:
        """What is believed by now: the same whatever came first, and whichever server led."""
        belief, silences = self._asked.belief(), dict.fromkeys(self._asked.unable, SILENCES)
        for one in self._launches:
            if one.came is None:
                continue
            launch = Launch(LADDER[_NAMES[one.test]], one.machines, one.repetitions)
            belief = update(belief, outcomes(launch, one.came))
            for machine in one.came.silent:
                silences[machine] = silences.get(machine, 0) + (SILENCES if machine in one.came.out else 1)
        gone = frozenset(machine for machine, times in silences.items() if times >= SILENCES)
        return replace(belief, gone=gone)

    @property
    def _rounds(self) -> int:
        """The rounds that have begun."""
        return max((one.round for one in self._launches), default=0)

    def _left_s(self) -> float:
        """Seconds of the budget: by the steady clock, for somebody may set the other one."""
        return max(0.0, self._asked.budget_s - self._spent_s - (steady() - self._since))

    def _passed_s(self, since: float, most: float) -> float:
        """Seconds since a moment before this server began, as far as its clock can be believed."""
        return min(max(0.0, self._services.clock() - since), most)

    def _budget(self) -> LaunchBudget:
        left_s = self._left_s()
        return LaunchBudget(seconds=left_s if left_s >= LEAST_S else 0.0)

    async def _end(self, end: CampaignEnd, belief: Belief) -> None:
        services, campaign = self._services, self.campaign
        at = services.clock()
        reported = campaign_report.document(campaign, self._asked, end, belief, self._launches, at)
        text, convicts = json.dumps(reported), campaign_report.convicts(end, self._asked, self._launches)
        state = CampaignState.ABORTED if end.cut else CampaignState.DONE
        await self._stored(lambda: services.store.do(campaigns.end, campaign.id, state, at, "", text, convicts))
        log.info("campaign %s: %s", campaign.id, campaign_report.sentence(reported))
        self._say(state, campaign_report.sentence(reported), text)

    async def _fail(self, error: HangdogError) -> None:
        at, end = self._services.clock(), campaigns.end
        self._progress.failure = error
        for one in (each for each in self._launches if each.came is None):
            for machine in one.machines:
                self._services.fleet.send(machine, Abort(f"{self.campaign.id}-{one.number}"))
        self._say(CampaignState.FAILED, str(error))
        await self._stored(
            lambda: self._services.store.do(end, self.campaign.id, CampaignState.FAILED, at, str(error), "", ())
        )

    async def _stored(self, step: Callable[[], Awaitable[object]]) -> None:
        """Takes a step in the store however long it is away."""
        while True:
            try:
                await step()
            except StoreFailed as error:
                log.error("campaign %s waits for the store: %s", self.campaign.id, error)
                await asyncio.sleep(AGAIN_S)
            else:
                return

    def _say(self, state: CampaignState, text: str, document: str = "") -> None:
        self._progress.say(ProgressUpdate(self.campaign.id, state, text, document))


def planned(asked: CampaignPlanRequest, belief: Belief, began: int, budget: LaunchBudget) -> CampaignRound | Stop:
    """The next round after `began` ones, or the end; replays have fixed groups before any others."""
    if not asked.replays:
        return plan(belief, asked.diagnostics, budget)
    (replay,) = asked.diagnostics
    return plan_replay(belief, replay, asked.able, asked.group_size, began, budget)
