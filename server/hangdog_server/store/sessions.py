"""Remembers sessions of jobs and their standstills: a row at the beginning, changed at the end and, for all at once, now and then.

Each step is a transaction. A session that is over, or that another server closed, is not changed any more.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from hangdog_models.operations.session_histories import SessionHistory, SessionStall
from hangdog_server.store.tables import SESSIONS, STALLS

#: Sessions in one query: engines take a few thousand.
_ASKED = 500
#: Sessions forgotten in one transaction.
FORGOTTEN = 1000


class SessionState(StrEnum):
    """How far a session is."""

    OPEN = "open"  # or left so by a server that ended: the one that follows closes it
    ENDED = "ended"  # agents saw its end
    LOST = "lost"  # nobody knows what became of it after `until`


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as it is to be remembered; the moments are Unix seconds, `stills` the standstills by their numbers."""

    id: str
    job: str
    began: float
    until: float
    start: bool
    state: SessionState
    stills: tuple[tuple[int, SessionStall], ...] = ()


def write(connection: sa.Connection, row: SessionRow) -> None:
    """Writes a session, the same twice as once; whatever else is open of its job is over by then, unseen."""
    mine = SESSIONS.c.id == row.id
    state = connection.execute(sa.select(SESSIONS.c.state).where(mine)).scalar()
    if state is None:
        others = sa.and_(SESSIONS.c.job == row.job, SESSIONS.c.state == SessionState.OPEN)
        connection.execute(SESSIONS.update().where(others).values(state=SessionState.LOST))
        stated = {"id": row.id, "job": row.job, "began": row.began, "start": row.start}
        connection.execute(SESSIONS.insert().values(until=row.until, state=row.state, **stated))
    elif state == SessionState.OPEN:
        connection.execute(SESSIONS.update().where(mine).values(until=row.until, state=row.state))
    for number, still in row.stills:
        one = sa.and_(STALLS.c.session == row.id, STALLS.c.number == number)
        if not connection.execute(STALLS.update().where(one).values(over=still.over)).rowcount:
            known = {"session": row.id, "number": number, "since": still.since, "noticed": still.noticed}
            connection.execute(STALLS.insert().values(over=still.over, **known))


def stamp(connection: sa.Connection, ids: Collection[str], at: float) -> frozenset[str]:
    """Notes that these sessions are there at that moment; those of them that are no longer open."""
    listed, found = sorted(ids), set[str]()
    for begin in range(0, len(listed), _ASKED):
        mine = SESSIONS.c.id.in_(listed[begin : begin + _ASKED])
        still = sa.and_(mine, SESSIONS.c.state == SessionState.OPEN)
        connection.execute(SESSIONS.update().where(still).values(until=at))
        found |= {row.id for row in connection.execute(sa.select(SESSIONS.c.id).where(still))}
    return frozenset(ids) - found


def since(moment: float) -> sa.Select[Any]:
    """The sessions that were there at that moment or later, the newest first."""
    return sa.select(SESSIONS).where(SESSIONS.c.until >= moment).order_by(SESSIONS.c.began.desc(), SESSIONS.c.id)


def stills(moment: float) -> sa.Select[Any]:
    """Their standstills, the newest first."""
    joined = STALLS.join(SESSIONS, SESSIONS.c.id == STALLS.c.session)
    query = sa.select(STALLS).select_from(joined).where(SESSIONS.c.until >= moment)
    return query.order_by(STALLS.c.noticed.desc(), STALLS.c.session, STALLS.c.number)


def sessions(rows: Iterable[Any], stood: Iterable[Any]) -> tuple[SessionHistory, ...]:
    """The rows of both queries as sessions."""
    of: dict[str, list[SessionStall]] = {}
    for row in sorted(stood, key=lambda row: (row.session, row.number)):
        of.setdefault(row.session, []).append(SessionStall(row.since, row.noticed, row.over))
    return tuple(
        SessionHistory(
            row.job, row.began, row.until, row.start, row.state == SessionState.ENDED, tuple(of.get(row.id, ()))
        )
        for row in rows
    )


def forget(connection: sa.Connection, before: float) -> bool:
    """Removes some sessions that were last known to be there before that moment; whether there may be more."""
    old = sa.select(SESSIONS.c.id).where(SESSIONS.c.until < before)
    ids = [row.id for row in connection.execute(old.order_by(SESSIONS.c.until, SESSIONS.c.id).limit(FORGOTTEN))]
    for begin in range(0, len(ids), _ASKED):
        some = ids[begin : begin + _ASKED]
        connection.execute(STALLS.delete().where(STALLS.c.session.in_(some)))
        connection.execute(SESSIONS.delete().where(SESSIONS.c.id.in_(some)))
    return len(ids) == FORGOTTEN
