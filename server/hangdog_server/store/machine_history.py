"""What verdicts said of machines, across jobs: who was suspected, convicted, cleared, when and with which probability.

Written in the transaction that keeps the verdict. A line is added when a machine's standing in an incident changes; it
outlives the incident where that is removed for its size.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from hangdog_models.diagnosis.clustering.incident_features import KINDS
from hangdog_models.incident import IncidentState, ResponseState
from hangdog_models.machine_history import MachineRecord, MentionKind, VerdictMention
from hangdog_models.past_incidents import EarlierIncident, IncidentFeatures
from hangdog_models.verdict import StallCause, Verdict
from hangdog_models.views.answer_text import accuses
from hangdog_server.store import actions
from hangdog_server.store.history import settled, stated
from hangdog_server.store.history.stated import Mention
from hangdog_server.store.tables import INCIDENTS, INTENTS, LEDGER

#: A hypothesis of more machines than this (a group that spans a good part of the job) says nothing of any of them.
MOST = 64
#: Incidents that a new one is compared with: the latest, and none from before so many seconds. Code and machines change.
COMPARED, COMPARED_S = 200, 90 * 86400.0
#: What is taken back counts with what a later verdict cleared: neither speaks against the machine any more.
BEHIND = (MentionKind.CLEARED, MentionKind.TAKEN_BACK)
#: Lines forgotten in one transaction.
FORGOTTEN = 1000


def mentions(verdict: Verdict) -> dict[str, Mention]:
    """Of each machine a verdict names: its standing, and the probability and size of the smallest hypothesis with it.

    Where the cause lies in no machine, nobody is convicted: who holds the job up is suspected as far as it may be the machine.
    """
    evicted = verdict.evict.machines if accuses(verdict.kind) else ()
    named = [(one.machines, one.probability) for one in verdict.suspects]
    if not accuses(verdict.kind):
        held_up = [verdict.culprit] if verdict.culprit is not None else []
        named = [(one.machines, one.causes.get(StallCause.MACHINE, 0.0)) for one in held_up]
    if evicted:
        named.append((evicted, verdict.evict.coverage))
    found: dict[str, Mention] = {}
    for machines, probability in sorted(named, key=lambda one: len(one[0])):
        for machine in machines if len(machines) <= MOST else ():
            state = MentionKind.CONVICTED if machine in evicted else MentionKind.SUSPECTED
            found.setdefault(machine, (state, probability, len(machines)))
    return found


def note(connection: sa.Connection, incident: str, verdict: Verdict, at: float) -> None:
    """Writes what a verdict changes; judging an incident again to the same end changes nothing."""
    job = connection.execute(sa.select(INCIDENTS.c.job).where(INCIDENTS.c.id == incident)).scalar_one()
    stated.note(connection, incident, job, mentions(verdict), str(verdict.kind), at)


def of(connection: sa.Connection, machine: str, since: float, limit: int) -> tuple[VerdictMention, ...]:
    """The lines of one machine from `since` (Unix seconds) on, newest first."""
    query = sa.select(LEDGER).where(LEDGER.c.machine == machine, LEDGER.c.at >= since)
    rows = connection.execute(query.order_by(LEDGER.c.at.desc(), LEDGER.c.id.desc()).limit(limit))
    return tuple(
        VerdictMention(
            row.machine, row.incident, row.job, row.at, MentionKind(row.mention), row.probability, row.among, row.kind
        )
        for row in rows
    )


def worst(connection: sa.Connection, since: float, limit: int) -> tuple[MachineRecord, ...]:
    """The machines that verdicts since then name, by their latest standing in each incident: most convicted, then weighed."""
    lines = last(since).subquery()

    def times(*kinds: MentionKind) -> sa.ColumnElement[int]:
        return sa.func.sum(sa.case((lines.c.mention.in_(kinds), 1), else_=0))

    counts = times(MentionKind.CONVICTED), times(MentionKind.SUSPECTED), times(*BEHIND)
    share = sa.case((lines.c.mention == MentionKind.TAKEN_BACK, 0.0), else_=lines.c.probability / lines.c.among)
    weight, newest = sa.func.sum(share), sa.func.max(lines.c.at)
    query = sa.select(lines.c.machine, *counts, weight, newest).group_by(lines.c.machine)
    order = counts[0].desc(), weight.desc(), newest.desc(), lines.c.machine
    return tuple(MachineRecord(*row) for row in connection.execute(query.order_by(*order).limit(limit)))


def last(since: float) -> sa.Select[Any]:
    """The latest line of each machine in each incident, of those from `since` (Unix seconds) on."""
    return stated.latest().where(LEDGER.c.at >= since)


def past(connection: sa.Connection, incident: str, now: float) -> tuple[tuple[str, EarlierIncident], ...]:
    """The latest incidents that a new one may be compared with, newest first, each with whose job it was.

    Neither one that a person dismissed, nor one that was over before anything was done, unless people said what it was.
    """
    mine = INTENTS.c.incident == INCIDENTS.c.id
    left = sa.exists().where(mine, INTENTS.c.state == actions.ActionState.DISMISSED, INTENTS.c.who != actions.LATER)
    closed = sa.func.coalesce(INCIDENTS.c.response["state"].as_string(), "")
    dismissed = sa.or_(left, closed == ResponseState.DISMISSED)
    acted = sa.exists().where(mine, INTENTS.c.state.in_(actions.TOOK))
    query = sa.select(INCIDENTS.c.id, INCIDENTS.c.began, INCIDENTS.c.owner, INCIDENTS.c.features).where(
        INCIDENTS.c.state == IncidentState.JUDGED,
        INCIDENTS.c.began >= now - COMPARED_S,
        INCIDENTS.c.kind.in_(KINDS),
        INCIDENTS.c.id != incident,
        sa.or_(settled.CAUSE.is_not(None), sa.and_(~dismissed, sa.or_(INCIDENTS.c.went_on_s == 0, acted))),
    )
    rows = connection.execute(query.order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id).limit(COMPARED))
    return tuple(
        (row.owner, EarlierIncident(row.id, max(0.0, now - row.began), features))
        for row in rows
        if (features := _features(row.features)) is not None
    )


def _features(stored: Mapping[str, Any]) -> IncidentFeatures | None:
    """What was kept of an incident; None where nothing was, or another version of hangdog kept it."""
    try:
        return msgspec.convert(stored, IncidentFeatures)
    except msgspec.ValidationError:
        return None


def forget(connection: sa.Connection, before: float) -> bool:
    """Removes some lines from before that moment; whether there may be more."""
    old = sa.select(LEDGER.c.id).where(LEDGER.c.at < before).limit(FORGOTTEN)
    return connection.execute(LEDGER.delete().where(LEDGER.c.id.in_(old))).rowcount == FORGOTTEN
