"""Remembers what jobs were seen to survive: one row a job, which only ever learns while the job is the same user's.

Writing the same again changes nothing, and what two servers write of one job adds up: so none of it needs a lease.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from hangdog_models.phase_history import PastPhases
from hangdog_server.store.tables import PHASES, storable

#: Jobs that are remembered: those seen last. A row is a few hundred bytes as a rule, 60 KiB at most.
MOST = 10_000
#: Jobs in one query: engines take a few thousand.
_ASKED = 500
#: Jobs forgotten in one transaction.
FORGOTTEN = 1000


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """A job's phases as they are remembered, whose job it is (empty: not known), and when it was seen last (Unix seconds)."""

    job: str
    owner: str
    seen: float
    past: PastPhases


def write(connection: sa.Connection, rows: Iterable[PhaseRow]) -> None:
    """Adds what is known of jobs to what is remembered; of another user's job of that name nothing is left."""
    stored = {storable(row.job): row for row in sorted(rows, key=lambda row: row.job)}  # in one order everywhere
    before = {row.job: row for row in _read(connection, stored, for_update=True)}
    for job, row in stored.items():
        known = before.get(job)
        past = row.past.joined(known.past) if known is not None and same_user(known.owner, row.owner) else row.past
        owner = row.owner or (known.owner if known is not None else "")
        values = {"owner": owner, "seen": row.seen, "watched_s": past.watched_s, "longest": dict(past.longest)}
        if known is not None:
            connection.execute(PHASES.update().where(PHASES.c.job == job).values(values))
        else:
            connection.execute(PHASES.insert().values(job=job, **values))


def read(connection: sa.Connection, jobs: Collection[str]) -> dict[str, PhaseRow]:
    """What is remembered of these jobs."""
    rows = {row.job: row for row in _read(connection, [storable(job) for job in jobs])}
    return {job: rows[storable(job)] for job in jobs if storable(job) in rows}


def same_user(one: str, other: str) -> bool:
    """Whether two jobs of one name may be one user's: who is not known contradicts nobody."""
    return one == other or not (one and other)


def forget(connection: sa.Connection, before: float, most: int = MOST) -> bool:
    """Removes some jobs that were last seen before that moment, or beyond so many the longest ago; whether there may be more."""
    count = connection.execute(sa.select(sa.func.count()).select_from(PHASES)).scalar_one()
    oldest = sa.select(PHASES.c.job, PHASES.c.seen).order_by(PHASES.c.seen, PHASES.c.job).limit(FORGOTTEN)
    jobs = [row.job for at, row in enumerate(connection.execute(oldest)) if row.seen < before or at < count - most]
    for begin in range(0, len(jobs), _ASKED):
        connection.execute(PHASES.delete().where(PHASES.c.job.in_(jobs[begin : begin + _ASKED])))
    return len(jobs) == FORGOTTEN


def _read(connection: sa.Connection, jobs: Collection[str], for_update: bool = False) -> Iterable[PhaseRow]:
    listed = sorted(jobs)
    for begin in range(0, len(listed), _ASKED):
        query = sa.select(PHASES).where(PHASES.c.job.in_(listed[begin : begin + _ASKED])).order_by(PHASES.c.job)
        for row in connection.execute(query.with_for_update() if for_update else query):
            yield PhaseRow(row.job, row.owner, row.seen, PastPhases(row.watched_s, row.longest))
