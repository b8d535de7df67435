"""Draws the pages of remembered incidents: judges nothing anew, but looks again at what was judged."""

import asyncio
import json
import logging
import secrets
from collections import OrderedDict
from dataclasses import dataclass, fields, replace
from typing import Any

from markupsafe import Markup, escape

from hangdog_models.actions.by_hand import collects, command_to_collect, stands
from hangdog_models.diagnosis.judge import investigate
from hangdog_models.errors import ServerUnreachable
from hangdog_models.incident import UNANSWERED, Incident, IncidentState
from hangdog_models.topology import build
from hangdog_models.verdict import Verdict, from_json
from hangdog_models.views import incident_view
from hangdog_models.views.answer_text import accuses
from hangdog_models.views.incident_view import IncidentView
from hangdog_models.views.timeline import IncidentTimeline
from hangdog_server.grpc_api import incident_timeline
from hangdog_server.grpc_api.incident_timeline import StallSpan, campaign_text
from hangdog_server.incidents.replay import StoredRound, replay
from hangdog_server.store.actions import describe
from hangdog_server.store.captures import RawCapture
from hangdog_server.store.store import Store
from hangdog_server.web.history import TONES, ActionView, mark
from hangdog_server.web.incident_page import IncidentHeader, incident_page
from hangdog_server.web.render import page, part, since, utc
from hangdog_server.web.timeline_part import timeline_part

#: Pages kept as they were drawn: at three in the morning several people open the same one. A large one is some MiB.
KEPT = 8
#: Incidents of which it is kept since when their jobs stand: reading that takes the whole verdict.
STOOD = 256
#: Pages that may wait to be drawn, one at a time: each may take a core for seconds, in the process that agents speak to.
WAITING = 8

log = logging.getLogger(__name__)


class Drawn:
    """The pages of incidents, drawn one at a time and kept for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # what stands on a page where that which changes faster belongs: nobody can have written it into a name on the page
        self._places = PagePlaces(*(secrets.token_hex(16) for _ in fields(PagePlaces)))
        self._kept: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._stood: OrderedDict[tuple[str, str, float], StallSpan] = OrderedDict()
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def page(
        self, incident: Incident, done: ActionView, part: Markup, strip: Markup, person: str, now: float
    ) -> str:
        """The page of an incident, with what is `done` about it as that `part` of the page, and how its job moves as that `strip`.

        Raises HangdogError.
        """
        changes = f"/api/incidents/{incident.id}/events?seen={mark(incident, done.mark)}"
        shown = timeline_part(await self.timeline(incident, done), now)
        if incident.state is not IncidentState.JUDGED or not incident.verdict:
            return _pending(incident, changes, part + strip, shown, person, now)
        page, places = await self._judged(incident, person), self._places
        when = escape(done.when(incident.evict))
        page = page.replace(places.events, escape(changes)).replace(places.timeline, shown)
        return page.replace(places.done, part + strip).replace(places.when, when)

    async def timeline(self, incident: Incident, done: ActionView) -> IncidentTimeline:
        """What happened when; raises HangdogError."""
        key = (incident.id, str(incident.state), incident.changed)
        if key not in self._stood:
            self._stood[key] = await incident_timeline.stall_span(self._store, incident)
            while len(self._stood) > STOOD:
                self._stood.popitem(last=False)
        return incident_timeline.put_together(incident, self._stood[key], done.acts, done.campaigns, done.entries)

    async def _judged(self, incident: Incident, person: str) -> str:
        drawn = replace(incident, response=UNANSWERED)  # what people do is put into the page each time
        key = (incident.id, mark(drawn, incident.note), person)  # it may be shown before it is written
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if self._waiting >= WAITING:
            raise ServerUnreachable(
                "the server is busy with other pages", "open it again in some seconds", code="server-busy"
            )
        self._waiting += 1
        try:
            async with self._turn:
                if key not in self._kept:
                    self._kept[key] = await self._draw(incident, person)
                    while len(self._kept) > KEPT:
                        self._kept.popitem(last=False)
                return self._kept[key]
        finally:
            self._waiting -= 1

    async def _draw(self, incident: Incident, person: str) -> str:
        asked, captures = ({}, ()) if incident.pruned else await self._store.recall(incident.id)
        return await asyncio.to_thread(_drawn, incident, asked, captures, person, self._places)


@dataclass(frozen=True, slots=True)
class PagePlaces:
    """What is put into a page each time: where changes are told, what happened when, what is done and may be, how far it is."""

    events: str
    timeline: str
    done: str
    when: str


def done_part(incident: Incident, done: ActionView, acts: bool, who: str) -> Markup:
    """What is done about an incident, as a part of its page; `acts`: whoever looks may decide, else `who` may."""
    testable = acts and accuses(incident.kind)  # else there is nobody to begin with
    over = incident.settled is not None or incident.response.closed
    typed = () if over else done.by_hand(incident.evict)
    again = command_to_collect(incident.job) if _asks_for_more(incident) else ""
    if not done.acts and not done.campaigns and not testable and not typed and not again:
        return Markup("")
    tested = [(one, campaign_text(one)) for one in done.campaigns]
    return part(
        "done.html",
        done=done,
        tested=tested,
        describe=describe,
        tones=TONES,
        utc=utc,
        acts=acts,
        who=who,
        testable=testable,
        typed=typed,
        again=again,
    )


def _asks_for_more(incident: Incident) -> bool:
    """Whether its verdict says what to collect, and its job may still stand."""
    try:
        return bool(incident.verdict) and stands(incident) and collects(from_json(json.loads(incident.verdict)))
    except (KeyError, TypeError, ValueError):  # of another version of ours
        return False


def _drawn(
    incident: Incident, asked: dict[str, Any], captures: tuple[RawCapture, ...], person: str, places: PagePlaces
) -> str:
    verdict = from_json(json.loads(incident.verdict))
    shown = _scene(incident, verdict, asked, captures) if captures else None
    note = (
        f"its captures were removed on {utc(incident.pruned)}: what follows is its verdict" if incident.pruned else ""
    )
    about = IncidentHeader(
        id=incident.id,
        state=str(incident.state),
        note="; ".join(filter(None, (_over(incident), str(incident.settled or ""), note or incident.note))),
        times=f"{utc(incident.began)}",
        events=places.events,
        timeline=places.timeline,
        done=places.done,
        when=places.when,
        postmortem=f"/incidents/{incident.id}/postmortem.md",
        person=person,
    )
    return incident_page(verdict, shown, about)


def _over(incident: Incident) -> str:
    return f"The job {incident.went_on}" if incident.went_on else ""


def _scene(
    incident: Incident, verdict: Verdict, asked: dict[str, Any], captures: tuple[RawCapture, ...]
) -> IncidentView | None:
    """What the verdict was drawn from; None where what is kept cannot be read: then the verdict stands alone."""
    try:
        replayed = replay(incident.job, asked, (StoredRound(one.machine, one.round, one.packed) for one in captures))
        topology, _ = build(replayed.layout, replayed.snapshot.highest_rank())
        return incident_view.of(investigate(replayed.snapshot, topology), verdict)
    except Exception:  # kept by another version, or damaged: no reason to hide the verdict
        log.exception("cannot show incident %s", incident.id)
        return None


def _pending(incident: Incident, events: str, done: Markup, timeline: Markup, person: str, now: float) -> str:
    known: dict[str, str] = {
        IncidentState.SUSPECTED: "It is suspected to stand still; its machines are about to be looked at.",
        IncidentState.CAPTURING: "Its machines are being looked at. This page turns into the verdict by itself.",
        IncidentState.RECORDED: "Its agents recorded it while no server was there, and hand it over. This page turns into the verdict by itself.",
        IncidentState.FAILED: "It could not be judged.",
    }
    over = f"{_over(incident)}." if incident.went_on else ""
    words = " ".join(filter(None, (known.get(incident.state, ""), over, str(incident.settled or ""))))
    began = Markup("{}, {} ago").format(utc(incident.began), since(incident.began, now))
    return page(
        "pending.html",
        f"{incident.state}: {incident.job}",
        live=True,
        nav=True,
        here="",
        person=person,
        incident=incident,
        words=words,
        began=began,
        events=events,
        done=done,
        timeline=timeline,
    )
