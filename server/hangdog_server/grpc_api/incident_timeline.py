"""The timeline of an incident, of what the store keeps: what was seen, what was decided, what was done, what tests came to."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from hangdog_models.counts import named
from hangdog_models.incident import Incident, ResponseEntry, ResponseKind
from hangdog_models.views.timeline import Event, EventKind, IncidentTimeline, timeline
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.campaigns import campaign_report
from hangdog_server.store import actions, campaigns
from hangdog_server.store.actions import OPEN, ActionRecord, ActionState, describe
from hangdog_server.store.campaigns import Campaign, CampaignState
from hangdog_server.store.history import responses
from hangdog_server.store.store import Store

#: Who has acts done where nobody approves of them.
ITSELF = "hangdog"


class StallSpan(NamedTuple):
    """From when a job was not seen to move (None: nobody saw that), and how many ranks it has (0: not known)."""

    since: float | None
    ranks: int


async def of(store: Store, incident: Incident) -> IncidentTimeline:
    """The timeline of an incident; raises HangdogError."""
    acts = await store.ask(actions.of, incident.id)
    tests = await store.ask(campaigns.about, incident.id)
    answers = await store.ask(responses.of, incident.id)
    return put_together(incident, await stall_span(store, incident), acts, tests, answers)


def packed(line: IncidentTimeline) -> pb.IncidentTimeline:
    """The timeline as it is told over the wire."""
    events = [pb.IncidentEvent(at=one.at, kind=one.kind, text=one.text) for one in line.events]
    return pb.IncidentTimeline(events=events, since=line.since, until=line.until, ranks=line.ranks)


async def stall_span(store: Store, incident: Incident) -> StallSpan:
    """The standstill in which it was looked; raises HangdogError."""
    asked = {} if incident.id in store.unwritten else (await store.kept(incident.id))[0]
    stood_s, looked = asked.get("stood_s"), asked.get("began", incident.began)
    return StallSpan(looked - stood_s if stood_s else None, _ranks(incident, asked))


def put_together(
    incident: Incident,
    stood: StallSpan,
    acts: Iterable[ActionRecord],
    tests: Iterable[Campaign],
    answers: Iterable[ResponseEntry],
) -> IncidentTimeline:
    """The timeline of an incident, of what is kept of it."""
    return timeline(incident, stood.since, stood.ranks, {*_acted(acts), *_tested(tests), *_answered(answers)})


def campaign_text(campaign: Campaign) -> str:
    """How far a campaign is or what came of it, in one sentence."""
    if campaign.report:
        try:
            return campaign_report.sentence(json.loads(campaign.report))
        except (ValueError, KeyError, TypeError):  # of another version of ours
            return f"{campaign.state}: {named(campaign.convicted) or 'nobody'} convicted"
    if campaign.state is CampaignState.RUNNING:
        return f"{named([str(name) for name, _ in campaign.asked.get('prior', ())])} being tested"
    return f"{campaign.state}: {campaign.note}" if campaign.note else str(campaign.state)


def _ranks(incident: Incident, asked: Mapping[str, Any]) -> int:
    """How many ranks the job has: as it was judged, else as its machines announced them."""
    if incident.verdict:
        try:
            return int(json.loads(incident.verdict)["job"]["world_size"])
        except (ValueError, KeyError, TypeError):  # of another version of ours
            return 0
    placed = [*asked.get("asked", {}).values(), *asked.get("absent", {}).values()]
    return max((int(one.get("world_size") or len(one.get("ranks", ()))) for one in placed), default=0)


def _answered(answers: Iterable[ResponseEntry]) -> Iterator[Event]:
    """What people did about the incident, but for notes, and for what they said that it was: that the incident tells."""
    left_out = (ResponseKind.NOTED, ResponseKind.RESOLVED)
    return (Event(one.at, EventKind.RESPONSE, str(one)) for one in answers if one.what not in left_out)


def _acted(acts: Iterable[ActionRecord]) -> Iterator[Event]:
    """Acts as they are kept: when each was listed or decided upon, and its latest change."""
    for row in acts:
        decided = row.state not in (*OPEN, ActionState.DISMISSED)
        if row.changed > row.at:
            approved = decided and row.who != ITSELF
            kind = EventKind.APPROVAL if approved else EventKind.ACT
            decision = f"{row.who} approved" if approved else "it was decided" if decided else "it was proposed"
            yield Event(row.at, kind, f"{row.machine}: {decision} to isolate it")
        yield Event(row.changed, EventKind.ACT, f"{row.machine} {describe(row)}")


def _tested(tests: Iterable[Campaign]) -> Iterator[Event]:
    for one in tests:
        why = f": {one.why}" if one.why else ""
        yield Event(one.began, EventKind.TEST, f"{one.who} has machines tested by campaign {one.id}{why}")
        if one.state is not CampaignState.RUNNING:
            yield Event(one.changed, EventKind.TEST, f"campaign {one.id}: {campaign_text(one)}")
