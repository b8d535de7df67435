"""Answers what people ask of the past: what verdicts said of machines, and all that is kept of one incident."""

import json
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict

from hangdog_models.errors import WrongUse
from hangdog_models.incident import UNANSWERED, Incident, IncidentResponse, SettledCause
from hangdog_models.machine_history import MachineRecord, VerdictMention
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.settings import ServerSettings
from hangdog_server.store import machine_history
from hangdog_server.store.captures import unfolded
from hangdog_server.store.store import Store

#: Captures read from the store at once: a machine's is some 100 KiB, and 16 MiB at most.
PAGE = 16


class Records:
    """What the store remembers, as it is told over the wire; `clock` gives Unix seconds."""

    def __init__(self, store: Store, settings: ServerSettings, clock: Callable[[], float]) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock

    async def ledger(self, request: pb.MentionsRequest) -> pb.MentionsAnswer:
        """The lines of one machine, or the most suspected machines; raises HangdogError."""
        since = back(request.within_s, self._clock())
        limit = min(request.limit or self._settings.listed, self._settings.max_listed)
        if request.machine:
            entries = await self._store.ask(machine_history.of, request.machine, since, limit)
            return pb.MentionsAnswer(entries=[_entry(entry) for entry in entries])
        worst = await self._store.ask(machine_history.worst, since, limit)
        return pb.MentionsAnswer(machines=[_record(record) for record in worst])

    async def bundle(self, name: str) -> AsyncIterator[pb.BundlePart]:
        """All that is kept of the incident whose name begins so; raises HangdogError."""
        incident = await self._store.find(name)
        if incident.pruned:
            day = time.strftime("%Y-%m-%d", time.gmtime(incident.pruned))
            raise WrongUse(
                f"the captures of incident {incident.id} were removed on {day}",
                f"its verdict is kept: hangdog show {incident.id}; --keep-captures of the server is their limit",
                code="captures-removed",
            )
        asked, captures = await self._store.kept(incident.id)
        head = pb.BundleHead(
            summary=summary(incident),
            verdict_json=incident.verdict,
            asked_json=json.dumps(asked),
            captures=captures,
        )
        yield pb.BundlePart(head=head)
        after = "", -1
        while page := await self._store.page(incident.id, after, PAGE):
            for one in page:
                for look in unfolded(one):  # one after the other: together they may be many times what is kept
                    capture = pb.KeptCapture(machine=look.machine, round=look.round, packed=look.packed)
                    yield pb.BundlePart(capture=capture)
            after = page[-1].machine, page[-1].round


def back(within_s: float, now: float) -> float:
    """The Unix time that a span of seconds reaches back to from `now`, 0 for all there is; raises WrongUse."""
    if not (math.isfinite(within_s) and within_s >= 0):
        raise WrongUse(f"{within_s:g} s is no span of time", "give seconds, 0 for all there is", code="out-of-range")
    return max(0.0, now - within_s) if within_s else 0.0


def summary(incident: Incident) -> pb.IncidentSummary:
    """An incident's line in the list."""
    return pb.IncidentSummary(
        id=incident.id,
        job=incident.job,
        began=incident.began,
        state=incident.state,
        verdict=incident.kind,
        confidence=incident.confidence,
        evict=incident.evict,
        why=incident.why,
        note=incident.note,
        earlier=[
            pb.EarlierVerdict(look=one.look, at=one.at, verdict=one.kind, confidence=one.confidence)
            for one in incident.earlier
        ],
        went_on_s=incident.went_on_s,
        settled=_settled(incident.settled),
        response=_response(incident.response),
    )


def _settled(settled: SettledCause | None) -> pb.SettledCause | None:
    return pb.SettledCause(**asdict(settled)) if settled is not None else None


def _response(response: IncidentResponse) -> pb.Response | None:
    if response == UNANSWERED:
        return None
    stated = asdict(response)
    del stated["verdict"], stated["changed"]
    return pb.Response(**stated)


def _entry(entry: VerdictMention) -> pb.VerdictMention:
    return pb.VerdictMention(
        machine=entry.machine,
        incident=entry.incident,
        job=entry.job,
        at=entry.at,
        mention=entry.mention,
        probability=entry.probability,
        among=entry.among,
        verdict=entry.kind,
    )


def _record(record: MachineRecord) -> pb.MachineRecord:
    return pb.MachineRecord(
        machine=record.machine,
        convicted=record.convicted,
        suspected=record.suspected,
        cleared=record.cleared,
        weight=record.weight,
        last=record.last,
    )
