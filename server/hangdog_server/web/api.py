"""What the pages show as JSON, for programs: documented by the OpenAPI document that is served beside it."""

import json
from dataclasses import asdict
from typing import Any

from hangdog_server.store import Incident
from hangdog_server.web.present import MachineNow, Present


def incident_line(incident: Incident) -> dict[str, Any]:
    """An incident's line in a list; times are Unix seconds, `verdict` is empty before there is one."""
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
    }


def incident_whole(incident: Incident) -> dict[str, Any]:
    """One incident: its line, with the whole verdict (`hangdog.verdict/1`), null before there is one, under `judgement`."""
    return {**incident_line(incident), "judgement": json.loads(incident.verdict) if incident.verdict else None}


def present(now: Present) -> dict[str, Any]:
    """The page *Now*."""
    return {
        "jobs": [asdict(one) for one in now.jobs],
        "incidents": [incident_line(one) for one in now.incidents],
        "suspects": [asdict(one) for one in now.suspects],
    }


def machine(one: MachineNow) -> dict[str, Any]:
    """A machine, and how often verdicts convicted, suspected and cleared it; `weight` sums its shares of probability."""
    return asdict(one)
