"""What people ask over gRPC about machines that have stopped, and the answers."""

import json
from collections.abc import AsyncIterator

from hangdog_models.counts import named
from hangdog_models.errors import HangdogError, WrongUse
from hangdog_models.planning.campaign.launch import CampaignRound
from hangdog_models.planning.campaign.level_planner import REPLAY_S
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import CampaignsServicer
from hangdog_server.auth.audit_log import AuditLog, followed
from hangdog_server.auth.authorizer import Authorizer, Person
from hangdog_server.campaigns.campaign_registry import CampaignRegistry, ended
from hangdog_server.campaigns.campaign_request import CampaignRequest, ReplayRequest
from hangdog_server.grpc_api.abort import Context, refuse, refusing
from hangdog_server.incidents import decode
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.rate_limits import RateLimits
from hangdog_server.settings import ServerSettings
from hangdog_server.store import campaigns, test_results
from hangdog_server.store.campaigns import Campaign
from hangdog_server.store.store import Store

#: Machines that somebody may name: more than may be tested together, so that the reason is said.
_NAMED = 100_000


class Campaigns(CampaignsServicer):
    """What people ask."""

    def __init__(
        self,
        registry: CampaignRegistry,
        store: Store,
        settings: ServerSettings,
        gate: Authorizer,
        limits: RateLimits,
        audit: AuditLog,
    ) -> None:
        self._registry = registry
        self._store = store
        self._settings = settings
        self._gate = gate
        self._limits = limits
        self._audit = audit

    async def Run(self, request: pb.CampaignRequest, context: Context) -> AsyncIterator[pb.CampaignStep]:
        """Starts a campaign and tells its steps."""
        try:
            person = self._gate.person(context)
            asked = _request(request, person)
            self._limits.snapshot(person.name, steady())
            entry = person.audit_entry("diagnose", "", f"{named(asked.machines) or asked.incident}: {asked.why}")
            async for step in followed(self._registry.run(asked), self._audit, entry):
                yield pb.CampaignStep(campaign=step.name, state=step.state, text=step.text, report_json=step.document)
        except HangdogError as error:
            await refuse(context, error)

    async def Follow(self, request: pb.CampaignName, context: Context) -> AsyncIterator[pb.CampaignStep]:
        """The steps of a campaign."""
        try:
            async for step in self._registry.follow(request.id):
                yield pb.CampaignStep(campaign=step.name, state=step.state, text=step.text, report_json=step.document)
        except HangdogError as error:
            await refuse(context, error)

    @refusing
    async def Plan(self, request: pb.CampaignRequest, context: Context) -> pb.CampaignPlan:
        """What a campaign would begin with."""
        machines, step = await self._registry.plan(_request(request, self._gate.person(context)))
        launches = step.launches if isinstance(step, CampaignRound) else ()
        document = {
            "because": str(step.reason),
            "launches": [
                {"test": one.diagnostic.name, "machines": list(one.machines), "repetitions": one.repetitions}
                for one in launches
            ],
        }
        return pb.CampaignPlan(machines=machines, plan_json=json.dumps(document))

    @refusing
    async def Abort(self, request: pb.CampaignName, context: Context) -> pb.CampaignSummary:
        """Ends a campaign."""
        person = self._gate.person(context)
        entry = person.audit_entry("abort diagnose", "", request.id[: decode.NAME])
        return _summary(await ended(self._registry, request.id, self._audit, entry))

    @refusing
    async def List(self, request: pb.CampaignsRequest, context: Context) -> pb.CampaignList:
        """The latest campaigns."""
        limit = min(request.limit or self._settings.listed, self._settings.max_listed)
        found = await self._store.ask(campaigns.latest, limit)
        return pb.CampaignList(campaigns=map(_summary, found))

    @refusing
    async def Get(self, request: pb.CampaignName, context: Context) -> pb.Campaign:
        """One campaign."""
        found = await self._store.ask(campaigns.find, request.id)
        return pb.Campaign(summary=_summary(found), report_json=found.report)

    @refusing
    async def History(self, request: pb.HistoryRequest, context: Context) -> pb.MachineHistory:
        """What a machine was tested for."""
        limit = min(request.limit or self._settings.listed, self._settings.max_listed)
        found = await self._store.ask(test_results.of, request.machine, limit, self._settings.probation_s)
        return pb.MachineHistory(
            entries=[
                pb.HistoryEntry(
                    machine=one.machine, at=one.at, campaign=one.campaign, test=one.test, level=max(0, one.level),
                    outcome=one.outcome, repetitions=min(one.repetitions, (1 << 32) - 1), says=one.says,
                    others=one.others,
                )
                for one in found.tests
            ],
            parts=found.parts,
            convictions=[
                pb.Conviction(machine=one.machine, part=one.part, at=one.at, campaign=one.campaign)
                for one in found.convictions
            ],
            probation=found.probation,
        )  # fmt: skip


def _request(request: pb.CampaignRequest, person: Person) -> CampaignRequest:
    """What is asked for; raises WrongUse."""
    if len(request.why) > decode.WHY:
        raise WrongUse(
            f"a reason of {len(request.why)} characters is too long", f"give {decode.WHY} at most", code="too-long"
        )
    machines = tuple(decode.name(machine, "machine") for machine in request.machines[:_NAMED])
    levels = tuple(request.levels[:16])
    replay = ReplayRequest(request.replay, request.group_size, request.replay_s or REPLAY_S)
    return CampaignRequest(machines, request.incident, levels, request.budget_s, request.why, person.name, replay)


def _summary(campaign: Campaign) -> pb.CampaignSummary:
    return pb.CampaignSummary(
        id=campaign.id,
        state=campaign.state,
        began=campaign.began,
        why=campaign.why,
        who=campaign.who,
        incident=campaign.incident,
        machines=[name for name, _ in campaign.asked["prior"]],
        convicted=campaign.convicted,
        note=campaign.note,
    )
