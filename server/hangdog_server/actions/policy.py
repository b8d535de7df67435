"""Decides what is done to machines, within the bounds: after a verdict, and when a person asks.

Every decision is one transaction. All servers take turns, so two of them never both find room below a cap.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from hangdog_models.actions.action_history import ActionHistory, Body, PastAction, WantedAction
from hangdog_models.actions.caps import Caps, Mode
from hangdog_models.actions.may_isolate import DAY_S, decide, tripping
from hangdog_models.errors import WrongUse
from hangdog_models.owner import UNKNOWN, Owner, written
from hangdog_models.planning.checkpoint import Copies, forbids
from hangdog_server.store.actions import OPEN, TOOK, UNDER_WAY, ActionRecord, ActionState, decided, of, of_machine
from hangdog_server.store.history import stated
from hangdog_server.store.tables import BREAKER, INTENTS

#: The lock for which decisions of all servers take turns: a cap that two of them count at once has room for both.
TURN = "hangdog: what is done to machines"
_STATES = {Mode.DRY_RUN: ActionState.DRY_RUN, Mode.APPROVE: ActionState.WAITING, Mode.AUTO: ActionState.PENDING}


@dataclass(frozen=True, slots=True)
class ActionFacts:
    """What is known of all machines; `free` names the spares: machines without a job.

    - `copies`: those of the job's checkpoint, None if no file says; `unread`: why the file cannot be read.
    - `owner`: whose the job is; `conflicts`: what its machines or the scheduler contradict.
    - `pods`: the job's pods by machine.
    """

    machines: int
    free: frozenset[str]
    bodies: Mapping[str, Body]
    domains: Mapping[str, str]
    copies: Copies | None = None
    unread: str = ""
    owner: Owner = UNKNOWN
    conflicts: tuple[str, ...] = ()
    pods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActionRule:
    """How far hangdog may go, now (Unix seconds)."""

    mode: Mode
    caps: Caps
    now: float


def propose(
    connection: sa.Connection, wanted: WantedAction, because: str, facts: ActionFacts, rule: ActionRule
) -> tuple[ActionRecord, ...]:
    """Writes the actions for a verdict, except those that are there already or that people decided against; the new rows."""
    before, cleared = (
        {row.machine for row in of(connection, wanted.incident)},
        stated.cleared(connection, wanted.incident),
    )
    new = tuple(one for one in dict.fromkeys(wanted.machines) if one not in before and not cleared(one))
    if not new:
        return ()
    wanted = replace(wanted, machines=new)
    words, refused = _decided(connection, wanted, facts, rule, rule.mode is Mode.DRY_RUN, new=True)
    state = ActionState.REFUSED if refused else _STATES[rule.mode]
    for machine in new:
        body = wanted.bodies.get(machine, Body())
        connection.execute(
            INTENTS.insert().values(
                incident=wanted.incident, machine=machine, job=wanted.job, domain=facts.domains.get(machine, ""),
                state=state, at=rule.now, changed=rule.now, reason=because, message=words, who="hangdog",
                evidence_at=wanted.evidence_at, boot=body.boot, serial=body.serial, marked=False, runs={},
                owner=written(facts.owner), pods=list(facts.pods.get(machine, ())),
            )
        )  # fmt: skip
    return tuple(row for row in of(connection, wanted.incident) if row.machine in new)


def approve(
    connection: sa.Connection, incident: str, facts: ActionFacts, rule: ActionRule, who: str
) -> tuple[ActionRecord, ...]:
    """Approves the open actions of an incident, within the bounds as they are now; raises WrongUse."""
    if rule.mode not in (Mode.APPROVE, Mode.AUTO):
        raise WrongUse(
            f"the server does not act in mode {rule.mode}",
            'set mode = "approve" in its --acting file',
            code="acting-disabled",
        )
    rows = [row for row in of(connection, incident) if row.state in OPEN]
    if not rows:
        raise WrongUse(
            f"incident {incident} has nothing to approve",
            "hangdog actions lists what waits for approval",
            code="nothing-to-decide",
        )
    bodies = {row.machine: row.body for row in rows}
    wanted = WantedAction(incident, rows[0].job, tuple(bodies), rows[0].evidence_at, bodies)
    words, refused = _decided(connection, wanted, facts, rule, dry=False, new=False)
    values = (
        {"message": words} if refused else {"state": ActionState.PENDING, "at": rule.now, "who": who, "message": ""}
    )
    mine = sa.and_(INTENTS.c.incident == incident, INTENTS.c.state.in_(OPEN))
    connection.execute(INTENTS.update().where(mine).values(changed=rule.now, **values))
    return of(connection, incident)


def dismiss(connection: sa.Connection, incident: str, words: str, who: str, now: float) -> tuple[ActionRecord, ...]:
    """Dismisses the open actions of an incident, and undoes those under way; its rows."""
    _change(connection, incident, OPEN, state=ActionState.DISMISSED, message=words, who=who, changed=now)
    _change(
        connection, incident, (ActionState.PENDING,), state=ActionState.RELEASING, message=words, who=who, changed=now
    )
    return of(connection, incident)


def release(connection: sa.Connection, machine: str, words: str, who: str, now: float) -> tuple[ActionRecord, ...]:
    """Has our marks on a machine removed; raises WrongUse if there are none."""
    ours = sa.and_(INTENTS.c.machine == machine, INTENTS.c.marked)
    values = {"state": ActionState.RELEASING, "message": words, "who": who, "changed": now}
    if not connection.execute(INTENTS.update().where(ours).values(values)).rowcount:
        raise WrongUse(
            f"hangdog has not isolated {machine}",
            "hangdog actions lists the machines that it has",
            code="machine-not-isolated",
        )
    return tuple(row for row in of_machine(connection, machine) if row.state is ActionState.RELEASING)


def breaker(connection: sa.Connection) -> tuple[str, float]:
    """Why the breaker is open (empty: it is closed), and since when."""
    row = connection.execute(sa.select(BREAKER)).first()
    return (row.why, row.since) if row is not None else ("", 0.0)


def set_breaker(connection: sa.Connection, why: str, who: str, now: float) -> None:
    """Opens the breaker for a reason, or closes it without one."""
    connection.execute(BREAKER.delete())
    connection.execute(BREAKER.insert().values(id=1, why=why, since=now, who=who))


def _decided(
    connection: sa.Connection, wanted: WantedAction, facts: ActionFacts, rule: ActionRule, dry: bool, new: bool
) -> tuple[str, bool]:
    """The message, and whether it is a refusal; opens the breaker if it is due."""
    wanted = replace(wanted, user=facts.owner.user, conflicts=facts.conflicts)
    since = rule.now - max(DAY_S, rule.caps.again_s)
    rows = decided(connection, since)
    out = {row.machine for row in rows if _is_out(row)}
    machines = ActionHistory(facts.machines, len(facts.free - out), facts.bodies, facts.domains)
    past = [_asked(row, dry) for row in rows]
    tripped, last = breaker(connection)
    if not tripped:
        asks = [
            PastAction(one, wanted.incident, wanted.job, "", rule.now, took=False) for one in wanted.machines if new
        ]
        tripped = tripping([*past, *asks], machines, rule.caps, last, rule.now)
        if tripped:
            set_breaker(connection, tripped, "", rule.now)
    decision = decide(wanted, machines, past, rule.caps, rule.now, tripped)
    words = "; ".join(filter(None, (decision.words, gated(wanted.machines, out, facts.copies, facts.unread))))
    return words, bool(words)


def gated(machines: Iterable[str], out: Collection[str], copies: Copies | None, unread: str) -> str:
    """Why the job's checkpoint forbids to take these machines, while others are `out`; empty: it does not."""
    if unread:
        return unread
    forbidden = forbids(machines, out, copies) if copies is not None else ""
    return f"{forbidden}: copy those shards first, or test the machines (hangdog test)" if forbidden else ""


def _asked(row: ActionRecord, dry: bool) -> PastAction:
    took = row.state in TOOK or (dry and row.state is ActionState.DRY_RUN)
    settled, failed = row.state in (ActionState.DONE, ActionState.RELEASED), row.state is ActionState.FAILED
    return PastAction(
        row.machine, row.incident, row.job, row.domain, row.at, took, _is_out(row), settled, failed, row.owner.user
    )


def _is_out(row: ActionRecord) -> bool:
    return row.marked or row.state in UNDER_WAY


def _change(connection: sa.Connection, incident: str, states: Iterable[ActionState], **values: Any) -> None:
    mine = sa.and_(INTENTS.c.incident == incident, INTENTS.c.state.in_(tuple(states)))
    connection.execute(INTENTS.update().where(mine).values(values))
