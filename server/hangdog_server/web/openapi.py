"""The OpenAPI document of the HTTP API: the paths are written here, the schemas of the answers are made from their types."""

import json
from functools import cache
from importlib.resources import files
from inspect import cleandoc
from typing import Any

from msgspec.json import schema_components

from hangdog_models.actions.respond import OF_MACHINES
from hangdog_models.incident import ResponseKind
from hangdog_models.lists.list_kinds import ACTIONS, INCIDENTS, JOBS, MACHINES, ListKind
from hangdog_models.lists.list_query import LONGEST
from hangdog_models.machine_history import MentionKind
from hangdog_models.verdict import StallCause
from hangdog_server.incidents.decode import WHY
from hangdog_server.web import api

_TEXT: dict[str, Any] = {"type": "string"}
_SHARE: dict[str, Any] = {"minimum": 0, "maximum": 1}
#: What the types of the models do not say: these values are checked nowhere, for a server of another version may store others.
_EXACT: dict[str, dict[str, Any]] = {
    "EarlierVerdict.confidence": _SHARE,
    "Headline.tone": {"enum": ["good", "warn", "bad", ""]},
    "Incident.judgement": {"anyOf": [{"$ref": "#/components/schemas/Verdict"}, {"type": "null"}]},
    "MachineNow.states": {"items": {"enum": list(MACHINES.states)}},
    "ResponseEntry.what": {"enum": [str(one) for one in ResponseKind]},
    "SuspectView.probability": _SHARE,
    "VerdictMention.mention": {"enum": [str(one) for one in MentionKind]},
    "VerdictMention.probability": _SHARE,
}


@cache  # to make it takes 20 ms of CPU time, and few ask for it
def document(version: str) -> dict[str, Any]:
    """The document, for this version of hangdog; the same object each time, so nobody may change it."""
    name = {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "An incident's id, or as much of it as is unique.",
        "schema": _TEXT,
    }
    seen = {
        "name": "seen",
        "in": "query",
        "description": "The mark of what is shown; what changed since is told at once.",
        "schema": _TEXT,
    }
    of = {
        "name": "of",
        "in": "query",
        "description": "The page whose changes are told instead: `/incidents`, `/jobs`, `/machines`, `/actions`, or `/machines/` and a machine's name, or `/jobs/NAME/communicators`.",
        "schema": _TEXT,
    }
    machine = {**name, "name": "name", "description": "A machine's name."}
    job = {**name, "name": "name", "description": "A job's name."}
    whose = {"name": "incident", "in": "query", "description": "Of this incident alone.", "schema": _TEXT}
    paths = {
        "/api/now": _get("Jobs and how they are, the latest incidents, and whom recent verdicts suspect.", "Now"),
        "/api/incidents": _get("Incidents, newest first; a search finds the machines that one names, too.", "Incidents", _asked(INCIDENTS)),
        "/api/jobs": _get("The jobs that are known now and how they are, the worst first.", "Jobs", _asked(JOBS)),
        "/api/jobs/{name}/communicators": _get("How the communicators of a job go on, those first in which a rank waits.", "Communicators", [job]),
        "/api/incidents/{id}": _get("One incident with its whole verdict.", "Incident", [name]),
        "/api/incidents/{id}/events": _events("Changes of one incident's state, as server-sent events named `state`; `beat` comes every two seconds with the Unix time.", [name, seen]),
        "/api/incidents/{id}/approve": _post("Has the machines that its verdict names be isolated, within the bounds. Takes the role `act`.", [name]),
        "/api/incidents/{id}/dismiss": _post("Has them be left where they are, for the reason given. Takes the role `act`.", [name], reason=True),
        "/api/incidents/{id}/ack": _post("Takes an incident; others see who has it. Takes the role `act`.", [name], "IncidentLine"),
        "/api/incidents/{id}/take-over": _post("Takes it over from somebody else. Takes the role `act`.", [name], "IncidentLine"),
        "/api/incidents/{id}/give-back": _post("Gives it back. Takes the role `act`.", [name], "IncidentLine"),
        "/api/incidents/{id}/note": _post("Writes a note on it: `because` is its text. Takes the role `act`.", [name], "IncidentLine", reason=True),
        "/api/incidents/{id}/resolve": _post("Says what it turned out to be, and closes it. Takes the role `act`.", [name], "IncidentLine", cause=True),
        "/api/incidents/{id}/reopen": _post("Opens it again. Takes the role `act`.", [name], "IncidentLine", reason=True),
        "/api/incidents/{id}/diagnose": _post("Starts a campaign of tests of its machines; answers with its name. Takes the role `act`.", [name], "Started"),
        "/api/machines/{name}/release": _post("Has hangdog's own marks on a machine be taken away. Takes the role `act`.", [machine]),
        "/api/breaker/close": _post("Closes the breaker, so that machines are acted upon again. Takes the role `act`.", []),
        "/api/campaigns/{id}/abort": _post("Ends a campaign of tests with what is known by then. Takes the role `act`.", [{**name, "description": "A campaign's id, or as much of it as is unique."}], "Ended"),
        "/api/actions": _get("What was, is and would be done to machines, newest first, and how far the server goes.", "ActionPage", [whose, *_asked(ACTIONS)]),
        "/api/machines/{name}": _get("What a machine was tested for and convicted of, and what verdicts said of it.", "Life", [machine]),
        "/api/machines": _get("Machines, those first that somebody has to see to, with what verdicts of all jobs said of them.", "Machines", _asked(MACHINES)),
        "/api/events": _events("Changes of what `/api/now` tells, as server-sent events named `state`; `beat` comes every two seconds with the Unix time.", [of, seen]),
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hangdog",
            "version": version,
            "description": "Which machine hangs which training job, why, and how sure that is. Times are Unix seconds.",
        },
        "security": [{"token": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "From `hangdog token new`."},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "hangdog", "description": "Set by /login."},
            },
        },
    }


def _asked(kind: ListKind) -> list[dict[str, Any]]:
    """What a list is asked by."""
    known = sorted({sort for one in kind.sorts for sort in (one.removeprefix("-"), f"-{one.removeprefix('-')}")})
    asked = [
        ("search", "Only lines that hold each of these terms, whatever the capitals.", {**_TEXT, "maxLength": LONGEST}),
        ("state", "Only lines in one of these states, with commas between, or said several times.", _TEXT),
        ("sort", f"The order; {kind.sorts[0]} when left out, `-` turns it around.", {"enum": known}),
        ("limit", "Lines of a page; 50 when left out, 1000 at most.", {"type": "integer", "minimum": 1}),
        ("page", "Which page.", {"type": "integer", "minimum": 1}),
    ]
    if kind.by_job:
        asked.append(("job", "Of this job alone.", _TEXT))
    return [{"name": name, "in": "query", "description": what, "schema": schema} for name, what, schema in asked]


def _get(what: str, schema: str, parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"get": {"summary": what, "parameters": parameters or [], "responses": _answers(content)}}


def _post(
    what: str, parameters: list[dict[str, Any]], schema: str = "Actions", reason: bool = False, cause: bool = False
) -> dict[str, Any]:
    """An act; the same asked for again is answered with 409, or what it came to, and nothing is done twice."""
    answers = _answers({"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}})
    wrong = answers["404"]["content"]
    answers["400"] = {
        "description": "What was posted is no JSON, holds more than a reason, or none where one is needed.",
        "content": wrong,
    }
    answers["403"] = {"description": "The role does not allow it, or another site's page asked.", "content": wrong}
    answers["408"] = {"description": "What was posted came too slowly.", "content": wrong}
    answers["413"] = {"description": "What was posted is too large.", "content": wrong}
    answers["409"] = {
        "description": "Nothing is left to decide, a bound forbids it, or the mode does.",
        "content": wrong,
    }
    because = {**_TEXT, "maxLength": WHY, "description": "Why; kept with the act and in the audit log."}
    properties: dict[str, Any] = {"because": {**because, "pattern": r"\S"} if reason else because}
    if schema == "IncidentLine":
        properties["key"] = {**_TEXT, "description": "The same where the same is sent twice: it is done once."}
    if cause:
        properties["cause"] = {"enum": [str(one) for one in StallCause]}
        properties["machines"] = {**_TEXT, "description": "Names of the machines at fault, with spaces between."}
    asked: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": ["because"] * reason + ["cause"] * cause,
        "additionalProperties": False,
    }
    if cause:  # machines are named only where it was one of them
        of_machines = [str(one) for one in OF_MACHINES]
        asked["anyOf"] = [
            {"properties": {"machines": {"maxLength": 0}}},
            {"properties": {"cause": {"enum": of_machines}}},
        ]
    body = {"required": reason or cause, "content": {"application/json": {"schema": asked}}}
    return {"post": {"summary": what, "parameters": parameters, "requestBody": body, "responses": answers}}


def _events(what: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    return {"get": {"summary": what, "parameters": parameters, "responses": _answers({"text/event-stream": {}})}}


def _answers(content: dict[str, Any]) -> dict[str, Any]:
    wrong = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "200": {"description": "The answer.", "content": content},
        "401": {"description": "No token was shown, or one that is unknown or has ended.", "content": wrong},
        "404": {"description": "There is no such thing.", "content": wrong},
        "503": {"description": "The store is away, or too many ask.", "content": wrong},
    }


def _schemas() -> dict[str, Any]:
    """All types of answers, and the verdict's, which has a schema of its own."""
    answers = [one for one in vars(api).values() if isinstance(one, type) and one.__name__.endswith("Answer")]
    text = json.dumps(schema_components(answers, ref_template="#/components/schemas/{name}")[1])
    schemas: dict[str, Any] = json.loads(text.replace('Answer"', '"'))
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])
        schema["required"] = list(schema["properties"])  # what has a default in Python is sent all the same
        for field in schema["properties"].values():
            field.pop("default", None)
            if field.get("type") == "integer":
                field["minimum"] = 0
    for place, exact in _EXACT.items():
        name, key = place.split(".")
        schemas[name]["properties"][key] |= exact
    own = (files("hangdog_models") / "verdict.schema.json").read_text("utf-8")
    verdict = json.loads(own.replace('"#/$defs/', '"#/components/schemas/Verdict/$defs/'))
    del verdict["$id"], verdict["$schema"]  # within this document it has no address of its own
    return schemas | {"Verdict": verdict}
