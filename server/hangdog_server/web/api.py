"""What the pages show as JSON, for programs: documented by the OpenAPI document that is served beside it."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from hangdog_models.incident import Incident, ResponseEntry
from hangdog_models.lists.machine_now import MachineNow
from hangdog_models.past_incidents import SimilarIncidents
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster.job_states import KnownJob
from hangdog_server.web.history import MachineLife
from hangdog_server.web.overview import Present


def incident_line(incident: Incident) -> dict[str, Any]:
    """An incident's line in a list; times are Unix seconds, `verdict` is empty before there is one.

    `earlier`: what earlier looks at the same stall came to; `went_on_s`: how long the job had stood when it was seen to go
    on, 0 where it was not; `settled`: what people said that it turned out to be, null where nobody did; `response`: who has
    it, and whether people are done with it.
    """
    return {
        "id": incident.id,
        "job": incident.job,
        "state": str(incident.state),
        "began": incident.began,
        "changed": incident.changed,
        "why": incident.why,
        "note": incident.note,
        "verdict": incident.kind,
        "confidence": incident.confidence,
        "evict": list(incident.evict),
        "earlier": [asdict(one) for one in incident.earlier],
        "went_on_s": incident.went_on_s,
        "settled": asdict(incident.settled) if incident.settled else None,
        "response": {
            name: value for name, value in asdict(incident.response).items() if name not in ("verdict", "changed")
        },
    }


def incident_whole(incident: Incident, entries: Iterable[ResponseEntry], similar: SimilarIncidents) -> dict[str, Any]:
    """One incident: its line, with the whole verdict (`hangdog.verdict/1`), null before there is one, under `judgement`.

    `entries` are what people did about it, `seen_before` earlier ones of its kind.
    """
    return {
        **incident_line(incident),
        "judgement": json.loads(incident.verdict) if incident.verdict else None,
        "entries": [asdict(one) for one in entries],
        "seen_before": {"count": similar.count, "shown": [asdict(one) for one in similar.shown]},
    }


def present(now: Present) -> dict[str, Any]:
    """The page *Now*."""
    return {
        "headline": asdict(now.headline),
        "jobs": [job(one) for one in now.jobs],
        "incidents": [incident_line(one) for one in now.incidents],
        "suspects": [asdict(one) for one in now.suspects],
    }


def job(one: KnownJob) -> dict[str, Any]:
    """A job, on how many machines, how many ranks, and how it is: the same words as on the page and in `hangdog jobs`."""
    state = one.state
    return {
        "name": one.name,
        "machines": one.machines,
        "ranks": one.ranks,
        "status": str(state.condition),
        "message": state.text,
        "tone": state.tone,
        "incident": state.incident,
        "since": state.since,
    }


def machine(one: MachineNow) -> dict[str, Any]:
    """A machine, and how often verdicts convicted, suspected and cleared it; `weight` sums its shares of probability."""
    return asdict(one)


def actions(listed: pb.ActionList) -> dict[str, Any]:
    """Acts as `hangdog actions` lists them, and how far the server goes; times are Unix seconds."""
    fields = "incident", "machine", "job", "state", "marked", "at", "changed", "who", "reason", "message"
    return {
        "mode": listed.mode,
        "actors": list(listed.actors),
        "breaker": listed.breaker,
        "actions": [{name: getattr(one, name) for name in fields} for one in listed.actions],
    }


def life(name: str, kept: MachineLife) -> dict[str, Any]:
    """What a machine was tested for and convicted of, newest first; `probation`: until when, 0 where it is on none."""
    return {
        "name": name,
        "probation": kept.past.probation,
        "parts": list(kept.past.parts),
        "tests": [{**asdict(one), "others": list(one.others)} for one in kept.past.tests],
        "convictions": [asdict(one) for one in kept.past.convictions],
        "ledger": [{**asdict(one), "mention": str(one.mention)} for one in kept.ledger],
    }
