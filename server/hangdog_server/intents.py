"""What is to be done to machines, as the store remembers it: decided within the bounds, written down before it is done.

One row for a machine and an incident is what makes an act happen once. Every step here is one transaction; those that
decide take turns over all servers, so that two of them never both find room below a cap.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from hangdog_models.acting.caps import Caps, Mode
from hangdog_models.acting.history import Asked, Body, Known, Wanted
from hangdog_models.acting.safety import DAY_S, decide, tripping
from hangdog_models.errors import WrongUse
from hangdog_models.planning.checkpoint import Copies, forbids
from hangdog_server.tables import BREAKER, INTENTS

#: What decisions of all servers take turns at: a cap that two of them count at once has room for both.
TURN = "hangdog: what is done to machines"


class Act(StrEnum):
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
UNDER_WAY = (Act.PENDING, Act.MARKED, Act.RELEASING)
#: What a person may approve of, and dismiss.
OPEN = (Act.WAITING, Act.REFUSED, Act.DRY_RUN)
#: What was taken, whatever came of it.
TOOK = (*UNDER_WAY, Act.DONE, Act.FAILED, Act.RELEASED)


@dataclass(frozen=True, slots=True)
class Intent:
    """One row; times in Unix seconds, `words` the latest news of it, `who` whose decision it is."""

    incident: str
    machine: str
    job: str
    domain: str
    state: Act
    at: float
    changed: float
    because: str
    words: str
    who: str
    evidence_at: float
    body: Body
    marked: bool
    runs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of all machines; `free` are the names of those that have no job and can stand in.

    `copies` are those of the job's checkpoint, where somebody says; `unread` why what is said cannot be read.
    """

    machines: int
    free: frozenset[str]
    bodies: Mapping[str, Body]
    domains: Mapping[str, str]
    copies: Copies | None = None
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """How far hangdog may go, now (Unix seconds)."""

    mode: Mode
    caps: Caps
    now: float


def propose(connection: sa.Connection, wanted: Wanted, because: str, facts: Facts, rule: Rule) -> tuple[Intent, ...]:
    """Writes what follows from a verdict, unless it is written already; the rows of the incident that are new."""
    if connection.execute(sa.select(INTENTS.c.machine).where(INTENTS.c.incident == wanted.incident).limit(1)).first():
        return ()
    words, refused = _decided(connection, wanted, facts, rule, rule.mode is Mode.DRY_RUN, new=True)
    state = Act.REFUSED if refused else _STATES[rule.mode]
    for machine in dict.fromkeys(wanted.machines):
        body = wanted.bodies.get(machine, Body())
        connection.execute(
            INTENTS.insert().values(
                incident=wanted.incident, machine=machine, job=wanted.job, domain=facts.domains.get(machine, ""),
                state=state, at=rule.now, changed=rule.now, because=because, words=words, who="hangdog",
                evidence_at=wanted.evidence_at, boot=body.boot, serial=body.serial, marked=False, runs={},
            )
        )  # fmt: skip
    return of(connection, wanted.incident)


def approve(connection: sa.Connection, incident: str, facts: Facts, rule: Rule, who: str) -> tuple[Intent, ...]:
    """Has what is open of an incident be done, within the bounds as they are now; raises WrongUse."""
    if rule.mode not in (Mode.APPROVE, Mode.AUTO):
        raise WrongUse(
            f"the server is in mode {rule.mode}: nothing is done", 'set mode = "approve" in its --acting file'
        )
    rows = [row for row in of(connection, incident) if row.state in OPEN]
    if not rows:
        raise WrongUse(f"nothing of incident {incident} is to be approved", "hangdog actions lists what is")
    bodies = {row.machine: row.body for row in rows}
    wanted = Wanted(incident, rows[0].job, tuple(bodies), rows[0].evidence_at, bodies)
    words, refused = _decided(connection, wanted, facts, rule, dry=False, new=False)
    values = {"words": words} if refused else {"state": Act.PENDING, "at": rule.now, "who": who, "words": ""}
    mine = sa.and_(INTENTS.c.incident == incident, INTENTS.c.state.in_(OPEN))
    connection.execute(INTENTS.update().where(mine).values(changed=rule.now, **values))
    return of(connection, incident)


def dismiss(connection: sa.Connection, incident: str, words: str, who: str, now: float) -> tuple[Intent, ...]:
    """Has what is open of an incident not be done, and what is being done be undone; raises WrongUse."""
    rows = of(connection, incident)
    _change(connection, incident, OPEN, state=Act.DISMISSED, words=words, who=who, changed=now)
    _change(connection, incident, (Act.PENDING,), state=Act.RELEASING, words=words, who=who, changed=now)
    after = of(connection, incident)
    if after == rows:
        raise WrongUse(
            f"nothing of incident {incident} is to be dismissed", "hangdog release MACHINE undoes what is done"
        )
    return after


def release(connection: sa.Connection, machine: str, words: str, who: str, now: float) -> tuple[Intent, ...]:
    """Has our marks of a machine be taken away; raises WrongUse when there are none."""
    ours = sa.and_(INTENTS.c.machine == machine, INTENTS.c.marked)
    values = {"state": Act.RELEASING, "words": words, "who": who, "changed": now}
    if not connection.execute(INTENTS.update().where(ours).values(values)).rowcount:
        raise WrongUse(f"hangdog holds no mark on {machine}", "hangdog actions lists what it holds")
    return _rows(connection, sa.and_(INTENTS.c.machine == machine, INTENTS.c.state == Act.RELEASING))


def move(connection: sa.Connection, row: Intent, state: Act, now: float, words: str, marked: bool) -> bool:
    """Notes how far an act is, unless somebody changed it meanwhile; whether it is noted."""
    mine = sa.and_(INTENTS.c.incident == row.incident, INTENTS.c.machine == row.machine, INTENTS.c.state == row.state)
    values = {"state": state, "changed": now, "words": words, "marked": marked}
    return bool(connection.execute(INTENTS.update().where(mine).values(values)).rowcount)


def may(connection: sa.Connection, row: Intent) -> bool:
    """Notes that a mark of ours may stand from now on, unless somebody changed the row; whether it is noted."""
    return move(connection, row, row.state, row.changed, row.words, marked=True)


def ran(connection: sa.Connection, row: Intent, runs: Mapping[str, str]) -> None:
    """Keeps what of the job ran on a machine, before anything moves."""
    mine = sa.and_(INTENTS.c.incident == row.incident, INTENTS.c.machine == row.machine)
    connection.execute(INTENTS.update().where(mine).values(runs=dict(runs)))


def of(connection: sa.Connection, incident: str) -> tuple[Intent, ...]:
    """The rows of an incident, by machine."""
    return _rows(connection, INTENTS.c.incident == incident)


def of_each(connection: sa.Connection, incidents: Collection[str]) -> tuple[Intent, ...]:
    """The rows of several incidents, the newest first."""
    return _rows(connection, INTENTS.c.incident.in_(sorted(incidents)))


def of_machine(connection: sa.Connection, machine: str) -> tuple[Intent, ...]:
    """The rows of a machine, the newest first."""
    return _rows(connection, INTENTS.c.machine == machine)


def lately(connection: sa.Connection, since: float, limit: int) -> tuple[Intent, ...]:
    """What is under way or holds a mark, and what changed since then (Unix seconds); the newest first."""
    open_ = sa.or_(INTENTS.c.state.in_(UNDER_WAY), INTENTS.c.marked, INTENTS.c.changed >= since)
    return _rows(connection, open_, limit)


def out(connection: sa.Connection) -> frozenset[str]:
    """The machines that are taken, or are being taken."""
    return frozenset(row.machine for row in under_way(connection))


def changed(connection: sa.Connection, since: float) -> tuple[Intent, ...]:
    """All rows of the incidents of which one changed since then (Unix seconds), the newest first."""
    lately = sa.select(INTENTS.c.incident).where(INTENTS.c.changed >= since)
    return _rows(connection, INTENTS.c.incident.in_(lately))


def under_way(connection: sa.Connection) -> tuple[Intent, ...]:
    """What is to be led further, or holds a mark."""
    return _rows(connection, sa.or_(INTENTS.c.state.in_(UNDER_WAY), INTENTS.c.marked))


def known(connection: sa.Connection, incidents: Collection[str]) -> frozenset[str]:
    """Those of the incidents that there are rows of."""
    query = sa.select(INTENTS.c.incident).where(INTENTS.c.incident.in_(sorted(incidents))).distinct()
    return frozenset(connection.execute(query).scalars())


def latest(connection: sa.Connection, limit: int) -> tuple[Intent, ...]:
    """The newest rows first."""
    return _rows(connection, sa.true(), limit)


def breaker(connection: sa.Connection) -> tuple[str, float]:
    """Why the breaker is open, empty while it is closed, and since when it is one or the other."""
    row = connection.execute(sa.select(BREAKER)).first()
    return (row.why, row.since) if row is not None else ("", 0.0)


def set_breaker(connection: sa.Connection, why: str, who: str, now: float) -> None:
    """Opens the breaker, or closes it where there is no reason."""
    connection.execute(BREAKER.delete())
    connection.execute(BREAKER.insert().values(id=1, why=why, since=now, who=who))


def forget(connection: sa.Connection, before: float) -> None:
    """Removes rows from before that moment, but for those that hold a mark."""
    connection.execute(INTENTS.delete().where(INTENTS.c.at < before, sa.not_(INTENTS.c.marked)))


def said(row: Intent) -> str:
    """How far an act is, in words that go on after the machine's name."""
    words = f": {row.words}" if row.words else ""
    stands = "; its mark stands until it is released" if row.marked else ""
    return {
        Act.REFUSED: f"is refused{words}",
        Act.DRY_RUN: f"would be isolated (dry run){words}",
        Act.WAITING: f"waits for approval to be isolated{words}",
        Act.DISMISSED: f"is left where it is, by {row.who}{words}",
        Act.PENDING: f"is being isolated{words}",
        Act.MARKED: "is out of use, and its job is about to start elsewhere",
        Act.DONE: f"is {row.words or 'out of use'}",
        Act.FAILED: f"could not be isolated{words}{stands}",
        Act.RELEASING: f"is being brought back{words}",
        Act.RELEASED: f"is back{f', {row.words}' if row.words else ''}",
    }[row.state]


_STATES = {Mode.DRY_RUN: Act.DRY_RUN, Mode.APPROVE: Act.WAITING, Mode.AUTO: Act.PENDING}


def _decided(
    connection: sa.Connection, wanted: Wanted, facts: Facts, rule: Rule, dry: bool, new: bool
) -> tuple[str, bool]:
    """What to say, and whether it is a refusal; opens the breaker where it is to."""
    since = rule.now - max(DAY_S, rule.caps.again_s)
    rows = _rows(connection, sa.or_(INTENTS.c.at >= since, INTENTS.c.marked))
    out = {row.machine for row in rows if _is_out(row)}
    machines = Known(facts.machines, len(facts.free - out), facts.bodies, facts.domains)
    past = [_asked(row, dry) for row in rows]
    tripped, last = breaker(connection)
    if not tripped:
        asks = [Asked(one, wanted.incident, wanted.job, "", rule.now, took=False) for one in wanted.machines if new]
        tripped = tripping([*past, *asks], machines, rule.caps, last, rule.now)
        if tripped:
            set_breaker(connection, tripped, "", rule.now)
    decision = decide(wanted, machines, past, rule.caps, rule.now, tripped)
    words = "; ".join(filter(None, (decision.words, gated(wanted.machines, out, facts.copies, facts.unread))))
    return words, bool(words)


def gated(machines: Iterable[str], out: Collection[str], copies: Copies | None, unread: str) -> str:
    """Why the job's checkpoint forbids that these machines are taken beside those that are `out`; empty where it does not."""
    if unread:
        return unread
    forbidden = forbids(machines, out, copies) if copies is not None else ""
    return f"{forbidden}: copy those shards first, or test the machines (hangdog diagnose)" if forbidden else ""


def _asked(row: Intent, dry: bool) -> Asked:
    took = row.state in TOOK or (dry and row.state is Act.DRY_RUN)
    settled, failed = row.state in (Act.DONE, Act.RELEASED), row.state is Act.FAILED
    return Asked(row.machine, row.incident, row.job, row.domain, row.at, took, _is_out(row), settled, failed)


def _is_out(row: Intent) -> bool:
    return row.marked or row.state in UNDER_WAY


def _change(connection: sa.Connection, incident: str, states: Iterable[Act], **values: Any) -> None:
    mine = sa.and_(INTENTS.c.incident == incident, INTENTS.c.state.in_(tuple(states)))
    connection.execute(INTENTS.update().where(mine).values(values))


def _rows(connection: sa.Connection, which: sa.ColumnElement[bool], limit: int | None = None) -> tuple[Intent, ...]:
    query = sa.select(INTENTS).where(which).order_by(INTENTS.c.at.desc(), INTENTS.c.incident, INTENTS.c.machine)
    return tuple(
        Intent(
            row.incident, row.machine, row.job, row.domain, Act(row.state), row.at, row.changed, row.because, row.words,
            row.who, row.evidence_at, Body(row.boot, row.serial), row.marked, dict(row.runs),
        )
        for row in connection.execute(query.limit(limit))
    )  # fmt: skip
