"""The lines of the ledger upon one incident: what its verdict and its tests say of machines, and what people take back.

A line is added when a machine's standing in the incident changes, and none is ever removed: what is taken back shows.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from hangdog_models.actions.respond import clears
from hangdog_models.incident import UNANSWERED, IncidentResponse
from hangdog_models.machine_history import MentionKind
from hangdog_server.store.history import settled
from hangdog_server.store.tables import INCIDENTS, LEDGER

#: What the ledger says where tests convict a machine; in the place of a verdict's kind.
BY_TESTS = "diagnosis"
#: What a verdict said of a machine: its standing, and the probability and size of the smallest hypothesis with it.
Mention = tuple[MentionKind, float, int]
#: What may be taken back.
_AGAINST = (MentionKind.CONVICTED, MentionKind.SUSPECTED)


def note(
    connection: sa.Connection, incident: str, job: str, found: Mapping[str, Mention], kind: str, at: float
) -> None:
    """Writes what a verdict changes; judging an incident again to the same end changes nothing.

    Who was convicted by tests stays so, and what people took back stays taken back.
    """
    before = _spoken(connection, incident)
    now = dict(found)
    for machine, row in before.items():
        if machine not in now and row.mention != MentionKind.CLEARED:
            now[machine] = MentionKind.CLEARED, 0.0, 1
    lines = []
    for machine, (mention, probability, among) in sorted(now.items()):
        known = before.get(machine)
        stated = {"probability": probability, "among": among, "kind": kind}
        if known is not None and known.kind == BY_TESTS:
            continue
        if known is not None and known.mention == mention:
            connection.execute(LEDGER.update().where(LEDGER.c.id == known.id).values(stated))
        else:
            lines.append({"machine": machine, "incident": incident, "job": job, "at": at, "mention": mention, **stated})
    if lines:
        connection.execute(LEDGER.insert(), lines)
    restate(connection, incident, at)


def clear(connection: sa.Connection, incident: str, job: str, machine: str, at: float) -> None:
    """Writes, once, that tests found another machine of the incident guilty and nothing of this one that stands accused."""
    known = _spoken(connection, incident).get(machine)
    if known is None or known.kind == BY_TESTS or known.mention not in _AGAINST:
        return
    line = {"machine": machine, "incident": incident, "job": job, "at": at, "mention": MentionKind.CLEARED}
    connection.execute(LEDGER.insert().values(**line, probability=0.0, among=1, kind=BY_TESTS))
    restate(connection, incident, at)


def restate(connection: sa.Connection, incident: str, at: float) -> None:
    """Takes back what people say is wrong, and says again what they no longer do."""
    innocent = cleared(connection, incident)
    last = {row.machine: row for row in connection.execute(latest().where(LEDGER.c.incident == incident))}
    lines = []
    for machine, row in sorted(_spoken(connection, incident).items()):
        back = last[machine].mention == MentionKind.TAKEN_BACK
        if back == (innocent(machine) and row.mention in _AGAINST):
            continue
        mention = row.mention if back else MentionKind.TAKEN_BACK
        kept = {name: getattr(row, name) for name in ("machine", "incident", "job", "probability", "among", "kind")}
        lines.append({**kept, "at": at, "mention": mention})
    if lines:
        connection.execute(LEDGER.insert(), lines)


def cleared(connection: sa.Connection, incident: str) -> Callable[[str], bool]:
    """Says of a machine whether people hold it to be without fault in an incident."""
    query = sa.select(INCIDENTS.c.response, INCIDENTS.c.settled).where(INCIDENTS.c.id == incident)
    row = connection.execute(query).first()
    if row is None:
        return lambda machine: False
    try:
        response = msgspec.convert(row.response, IncidentResponse)
    except msgspec.ValidationError:  # of another version of ours
        response = UNANSWERED
    cause = settled.read(row.settled)
    return lambda machine: clears(response, cause, machine)


def latest() -> sa.Select[Any]:
    """The latest line of each machine in each incident."""
    other = LEDGER.alias()
    same = sa.and_(other.c.incident == LEDGER.c.incident, other.c.machine == LEDGER.c.machine)
    return sa.select(LEDGER).where(~sa.exists().where(same, other.c.id > LEDGER.c.id))


def _spoken(connection: sa.Connection, incident: str) -> dict[str, Any]:
    """The latest line of each machine that a verdict or a test wrote."""
    mine = sa.and_(LEDGER.c.incident == incident, LEDGER.c.mention != MentionKind.TAKEN_BACK)
    rows = connection.execute(sa.select(LEDGER).where(mine).order_by(LEDGER.c.id))
    return {row.machine: row for row in rows}
