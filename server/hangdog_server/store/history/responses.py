"""What people do about incidents: the latest word stands with the incident, each of them in a row of its own.

Everything that follows from a word is in its transaction: it is there whole after a crash, or not at all.
"""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

import msgspec
import sqlalchemy as sa

from hangdog_models.actions.respond import ResponseDecision, decide
from hangdog_models.errors import WrongUse
from hangdog_models.incident import (
    ENDED,
    UNANSWERED,
    IncidentResponse,
    ResponseEntry,
    ResponseKind,
    SettledCause,
)
from hangdog_models.verdict import StallCause
from hangdog_server.store.actions import OPEN, ActionState
from hangdog_server.store.history import settled, stated
from hangdog_server.store.tables import INCIDENTS, INTENTS, RESPONSES, storable

#: Notes of one incident, and all that people do about it: a night of many hands has some dozen. A program that goes wrong
#: must not fill the store, nor keep people from closing the incident.
NOTES, ENTRIES = 200, 1000
#: What takes the verdict for known: whoever takes or closes an incident has seen it.
_SEES = (ResponseKind.ACKNOWLEDGED, ResponseKind.RESOLVED, ResponseKind.DISMISSED)
#: What closes an incident: nobody can know before there is a verdict, or none to come.
_CLOSES = (ResponseKind.RESOLVED, ResponseKind.DISMISSED)


def respond(
    connection: sa.Connection, name: str, wanted: ResponseDecision, shown: int | None = None, key: str = ""
) -> bool:
    """Keeps what somebody did, with all that follows; False where it is done already. Raises WrongUse.

    `shown`: how many decisions they were shown. `key` is the same where the same is sent twice.
    """
    columns = ("state", "kind", "evict", "asked", "settled", "response")
    query = sa.select(*(INCIDENTS.c[one] for one in columns)).where(INCIDENTS.c.id == name)
    row = connection.execute(query.with_for_update()).first()
    if row is None:
        raise WrongUse(f"incident {name} is not in the store", "hangdog incidents lists them", code="no-such-incident")
    before, known = read(row.response), settled.read(row.settled)
    if key and _came(connection, name, key):
        return False
    if wanted.what in _CLOSES and row.state not in ENDED:
        raise WrongUse(
            f"incident {name} is under way ({row.state})",
            f"hangdog watch {name} waits for its verdict",
            code="no-verdict-yet",
        )
    if wanted.settled is not None:
        _require_own(name, wanted.settled.machines, {*row.asked.get("asked", ()), *row.asked.get("absent", ())})
    try:
        after = decide(before, known, wanted, shown)
    except WrongUse as error:
        error.args = (f"incident {name}: {error}",)
        raise
    if after is None:
        return False
    _require_room(connection, name, wanted, before)
    if wanted.what in _SEES:
        after = replace(after, verdict=" ".join((row.state, row.kind, *sorted(row.evict))).strip())
    values: dict[str, Any] = {"response": asdict(after)}
    if wanted.what in (ResponseKind.RESOLVED, ResponseKind.REOPENED):
        cause = wanted.settled
        values["settled"] = {} if cause is None or cause.cause == StallCause.UNKNOWN else asdict(cause)
    connection.execute(INCIDENTS.update().where(INCIDENTS.c.id == name).values(values))
    connection.execute(
        RESPONSES.insert().values(
            incident=name, number=after.entries, what=wanted.what, at=wanted.at, who=wanted.who, text=_text(wanted), key=key
        )
    )  # fmt: skip
    if wanted.what in (*_CLOSES, ResponseKind.REOPENED):
        stated.restate(connection, name, wanted.at)
        _acts(connection, name, wanted)
    return True


def resolve(connection: sa.Connection, name: str, settled: SettledCause) -> bool:
    """Keeps what an incident turned out to be, as `respond` does."""
    wanted = ResponseDecision(ResponseKind.RESOLVED, settled.who, settled.at, settled.reason, settled=settled)
    return respond(connection, name, wanted)


def of(connection: sa.Connection, incident: str) -> tuple[ResponseEntry, ...]:
    """All that people did about an incident, the oldest first."""
    query = sa.select(RESPONSES).where(RESPONSES.c.incident == incident).order_by(RESPONSES.c.number)
    return tuple(ResponseEntry(row.number, row.what, row.at, row.who, row.text) for row in connection.execute(query))


def find(connection: sa.Connection, incident: str) -> IncidentResponse:
    """What people have made of an incident; nothing of one that is not there."""
    query = sa.select(INCIDENTS.c.response).where(INCIDENTS.c.id == incident)
    return read(connection.execute(query).scalar() or {})


def read(stored: Mapping[str, Any]) -> IncidentResponse:
    """What was kept with an incident; another version of hangdog may know more of it."""
    try:
        return msgspec.convert(stored, IncidentResponse)
    except msgspec.ValidationError:
        return UNANSWERED


def _came(connection: sa.Connection, name: str, key: str) -> bool:
    same = sa.and_(RESPONSES.c.incident == name, RESPONSES.c.key == storable(key))
    return connection.execute(sa.select(RESPONSES.c.number).where(same).limit(1)).first() is not None


def _text(wanted: ResponseDecision) -> str:
    if wanted.settled is None:
        return wanted.text
    machines = f" ({', '.join(wanted.settled.machines)})" if wanted.settled.machines else ""
    return f"{wanted.settled.cause}{machines}{f', {wanted.text}' if wanted.text else ''}"


def _acts(connection: sa.Connection, name: str, wanted: ResponseDecision) -> None:
    """What is open of machines that were not at fault is dismissed; one that is open again is asked for anew."""
    if wanted.what is ResponseKind.REOPENED:
        dismissed = sa.and_(INTENTS.c.incident == name, INTENTS.c.state == ActionState.DISMISSED)
        connection.execute(INTENTS.delete().where(dismissed))
        return
    cleared = stated.cleared(connection, name)
    mine = sa.and_(INTENTS.c.incident == name, INTENTS.c.state.in_(OPEN))
    for machine in connection.execute(sa.select(INTENTS.c.machine).where(mine)).scalars().all():
        if cleared(machine):
            values = {"state": ActionState.DISMISSED, "message": _text(wanted), "who": wanted.who, "changed": wanted.at}
            connection.execute(INTENTS.update().where(mine, INTENTS.c.machine == machine).values(values))


def _require_room(connection: sa.Connection, name: str, wanted: ResponseDecision, before: IncidentResponse) -> None:
    """Raises WrongUse where too much was written already; an incident can be closed all the same."""
    if wanted.what in (*_CLOSES, ResponseKind.REOPENED):
        return
    notes = 0
    if wanted.what is ResponseKind.NOTED:
        mine = sa.and_(RESPONSES.c.incident == name, RESPONSES.c.what == ResponseKind.NOTED)
        notes = connection.execute(sa.select(sa.func.count()).select_from(RESPONSES).where(mine)).scalar_one()
    if notes >= NOTES or before.entries >= ENTRIES:
        what = f"{notes} notes" if notes >= NOTES else f"{before.entries} entries"
        raise WrongUse(f"incident {name} already has {what}", "that is the limit for one incident", code="too-many")


def _require_own(name: str, machines: Collection[str], known: Collection[str]) -> None:
    """Raises WrongUse for a machine that the incident's job did not run on, as far as its machines are known."""
    for machine in machines if known else ():
        if machine not in known:
            near = difflib.get_close_matches(machine, sorted(known), 1)
            hint = f"is it {near[0]}?" if near else f"hangdog ranks {name} shows them"
            raise WrongUse(f"incident {name} has no machine {machine!r}", hint, code="unknown-machine")
