"""What is to be done to machines, as the store remembers it: written down, as `decisions` has it, before it is done.

One row for a machine and an incident is what makes an act happen once.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa

from hangdog_models.actions.action_history import Body
from hangdog_models.owner import UNKNOWN, Owner, read
from hangdog_server.store.tables import INTENTS


class ActionState(StrEnum):
    """How far it is."""

    REFUSED = "refused"  # a bound forbids it
    DRY_RUN = "dry-run"  # it would be done, were it not for the mode
    WAITING = "waiting"  # for a person to approve of it
    DISMISSED = "dismissed"  # a person did not
    PENDING = "pending"  # to be done; its machine may be marked already
    MARKED = "marked"  # seen to be out of use; its job is to start elsewhere
    DONE = "done"
    FAILED = "failed"  # given up
    RELEASING = "releasing"  # the mark is to be taken away
    RELEASED = "released"


#: What a running server leads further.
UNDER_WAY = (ActionState.PENDING, ActionState.MARKED, ActionState.RELEASING)
#: What a person may approve of, and dismiss.
OPEN = (ActionState.WAITING, ActionState.REFUSED, ActionState.DRY_RUN)
#: Who it is that leaves a machine where it is, where a further look no longer names it.
LATER = "a later look"
#: What was taken, whatever came of it.
TOOK = (*UNDER_WAY, ActionState.DONE, ActionState.FAILED, ActionState.RELEASED)


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One row; times in Unix seconds, `words` the latest news of it, `who` whose decision it is.

    `owner` is whose job it is, `pods` the UIDs of those that it has on the machine.
    """

    incident: str
    machine: str
    job: str
    domain: str
    state: ActionState
    at: float
    changed: float
    reason: str
    message: str
    who: str
    evidence_at: float
    body: Body
    marked: bool
    runs: Mapping[str, str]
    owner: Owner = UNKNOWN
    pods: tuple[str, ...] = ()


def move(
    connection: sa.Connection, row: ActionRecord, state: ActionState, now: float, words: str, marked: bool
) -> bool:
    """Notes how far an act is, unless somebody changed it meanwhile; whether it is noted."""
    mine = sa.and_(INTENTS.c.incident == row.incident, INTENTS.c.machine == row.machine, INTENTS.c.state == row.state)
    values = {"state": state, "changed": now, "message": words, "marked": marked}
    return bool(connection.execute(INTENTS.update().where(mine).values(values)).rowcount)


def may(connection: sa.Connection, row: ActionRecord) -> bool:
    """Notes that a mark of ours may stand from now on, unless somebody changed the row; whether it is noted."""
    return move(connection, row, row.state, row.changed, row.message, marked=True)


def ran(connection: sa.Connection, row: ActionRecord, runs: Mapping[str, str]) -> None:
    """Keeps what of the job ran on a machine, before anything moves."""
    mine = sa.and_(INTENTS.c.incident == row.incident, INTENTS.c.machine == row.machine)
    connection.execute(INTENTS.update().where(mine).values(runs=dict(runs)))


def of(connection: sa.Connection, incident: str) -> tuple[ActionRecord, ...]:
    """The rows of an incident, by machine."""
    return _rows(connection, INTENTS.c.incident == incident)


def of_each(connection: sa.Connection, incidents: Collection[str]) -> tuple[ActionRecord, ...]:
    """The rows of several incidents, the newest first."""
    return _rows(connection, INTENTS.c.incident.in_(sorted(incidents)))


def of_machine(connection: sa.Connection, machine: str) -> tuple[ActionRecord, ...]:
    """The rows of a machine, the newest first."""
    return _rows(connection, INTENTS.c.machine == machine)


def lately(connection: sa.Connection, since: float, limit: int) -> tuple[ActionRecord, ...]:
    """What is under way or holds a mark, and what changed since then (Unix seconds); the newest first."""
    open_ = sa.or_(INTENTS.c.state.in_(UNDER_WAY), INTENTS.c.marked, INTENTS.c.changed >= since)
    return _rows(connection, open_, limit)


def decided(connection: sa.Connection, since: float) -> tuple[ActionRecord, ...]:
    """What was decided since then (Unix seconds), or holds a mark; the newest first."""
    return _rows(connection, sa.or_(INTENTS.c.at >= since, INTENTS.c.marked))


def out(connection: sa.Connection) -> frozenset[str]:
    """The machines that are taken, or are being taken."""
    return frozenset(row.machine for row in under_way(connection))


def changed(connection: sa.Connection, since: float) -> tuple[ActionRecord, ...]:
    """All rows of the incidents of which one changed since then (Unix seconds), the newest first."""
    lately = sa.select(INTENTS.c.incident).where(INTENTS.c.changed >= since)
    return _rows(connection, INTENTS.c.incident.in_(lately))


def under_way(connection: sa.Connection) -> tuple[ActionRecord, ...]:
    """What is to be led further, or holds a mark."""
    return _rows(connection, sa.or_(INTENTS.c.state.in_(UNDER_WAY), INTENTS.c.marked))


def known(connection: sa.Connection, incidents: Collection[str]) -> frozenset[tuple[str, str]]:
    """Of these incidents, the machines that there are rows of."""
    query = sa.select(INTENTS.c.incident, INTENTS.c.machine).where(INTENTS.c.incident.in_(sorted(incidents)))
    return frozenset((row.incident, row.machine) for row in connection.execute(query))


def latest(connection: sa.Connection, limit: int) -> tuple[ActionRecord, ...]:
    """The newest rows first."""
    return _rows(connection, sa.true(), limit)


def outdated(connection: sa.Connection, incident: str, named: Collection[str], now: float) -> None:
    """A later look at an incident names these machines: what is open of others is over, and what an earlier look ended is asked anew."""
    mine = INTENTS.c.incident == incident
    others = sa.and_(mine, INTENTS.c.state.in_(OPEN), INTENTS.c.machine.not_in(sorted(named)))
    values = {"state": ActionState.DISMISSED, "message": "", "who": LATER, "changed": now}
    ended = sa.and_(mine, INTENTS.c.state == ActionState.DISMISSED, INTENTS.c.who == LATER)
    connection.execute(INTENTS.delete().where(ended, INTENTS.c.machine.in_(sorted(named))))
    connection.execute(INTENTS.update().where(others).values(values))


def forget(connection: sa.Connection, before: float) -> None:
    """Removes rows from before that moment, but for those that hold a mark."""
    connection.execute(INTENTS.delete().where(INTENTS.c.at < before, sa.not_(INTENTS.c.marked)))


def describe(row: ActionRecord) -> str:
    """How far an act is, in words that go on after the machine's name."""
    words = f": {row.message}" if row.message else ""
    stands = "; its mark stands until it is released" if row.marked else ""
    return {
        ActionState.REFUSED: f"is not isolated{words}",
        ActionState.DRY_RUN: f"would be isolated (dry run){words}",
        ActionState.WAITING: f"waits for approval to be isolated{words}",
        ActionState.DISMISSED: f"is left where it is, by {row.who}{words}",
        ActionState.PENDING: f"is being isolated{words}",
        ActionState.MARKED: "is out of use, and its job is about to start elsewhere",
        ActionState.DONE: f"is {row.message or 'out of use'}",
        ActionState.FAILED: f"could not be isolated{words}{stands}",
        ActionState.RELEASING: f"is being brought back{words}",
        ActionState.RELEASED: f"is back{f', {row.message}' if row.message else ''}",
    }[row.state]


def in_short(row: ActionRecord) -> str:
    """How far an act is, in the few words that a card or a column has room for."""
    by = f" by {row.who}" if row.who else ""
    return {
        ActionState.REFUSED: "not isolated: a bound forbids it",
        ActionState.DRY_RUN: "would be isolated (dry run)",
        ActionState.WAITING: "waits for approval",
        ActionState.DISMISSED: f"dismissed{by}",
        ActionState.PENDING: "being isolated",
        ActionState.MARKED: "isolated",
        ActionState.DONE: "isolated",
        ActionState.FAILED: "could not be isolated",
        ActionState.RELEASING: "being released",
        ActionState.RELEASED: f"released{by}",
    }[row.state]


def _rows(
    connection: sa.Connection, which: sa.ColumnElement[bool], limit: int | None = None
) -> tuple[ActionRecord, ...]:
    query = sa.select(INTENTS).where(which).order_by(INTENTS.c.at.desc(), INTENTS.c.incident, INTENTS.c.machine)
    return tuple(
        ActionRecord(
            row.incident, row.machine, row.job, row.domain, ActionState(row.state), row.at, row.changed, row.reason, row.message,
            row.who, row.evidence_at, Body(row.boot, row.serial), row.marked, dict(row.runs),
            read(row.owner), tuple(row.pods),
        )
        for row in connection.execute(query.limit(limit))
    )  # fmt: skip
