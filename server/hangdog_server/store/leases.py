"""The leases of jobs in the database: of several servers beside it one leads a job's incidents, and nobody else writes them.

Time is the database's own, so that servers need not agree on it. A lease that ran out is anybody's; its holder may go on
until somebody has taken it, and finds out with the next thing it writes.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.store.tables import INCIDENTS, LEASES, storable

Given = ParamSpec("Given")
Result = TypeVar("Result")


class NotOurs(StoreFailed):
    """Another server leads the job now: what was to be written is not."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads a job; `address` is where its agents belong, empty when nobody was told."""

    holder: str
    address: str


def take(
    connection: sa.Connection, jobs: Collection[str], holder: str, address: str, lasts_s: float
) -> dict[str, Lease]:
    """Takes the leases of jobs, or prolongs them, where they are free or `holder`'s; who holds each afterwards.

    Who has the same address was there before: a server that is started again need not wait until its own leases run out.
    """
    now = _now(connection)
    taken = sa.text(
        "INSERT INTO leases (job, holder, address, until) VALUES (:job, :holder, :address, :until) ON CONFLICT (job) DO UPDATE"
        " SET holder = excluded.holder, address = excluded.address, until = excluded.until"
        " WHERE leases.holder = excluded.holder OR leases.until < :now"
        " OR (leases.address = excluded.address AND leases.address <> '')"
    )
    rows = [
        {"job": job, "holder": holder, "address": address, "until": now + lasts_s, "now": now}
        for job in sorted(
            {storable(job) for job in jobs}
        )  # in one order everywhere: else two servers wait for each other
    ]
    if not rows:
        return {}
    connection.execute(taken, rows)
    held = sa.select(LEASES).where(LEASES.c.job.in_([row["job"] for row in rows]))
    return {row.job: Lease(row.holder, row.address) for row in connection.execute(held)}


def drop(connection: sa.Connection, jobs: Iterable[str], holder: str) -> None:
    """Gives the leases of jobs back, as far as they are `holder`'s."""
    mine = sa.and_(LEASES.c.holder == holder, LEASES.c.job.in_(sorted(jobs)))
    connection.execute(LEASES.delete().where(mine))


def drop_all(connection: sa.Connection, holder: str) -> None:
    """Gives all leases of `holder` back."""
    connection.execute(LEASES.delete().where(LEASES.c.holder == holder))


def fenced(
    step: Callable[Concatenate[sa.Connection, Given], Result], name: str, holder: str
) -> Callable[Concatenate[sa.Connection, Given], Result]:
    """A step that writes to the incident `name`, and is taken back with NotOurs where another than `holder` leads its job."""
    leased = sa.select(LEASES.c.holder).join(INCIDENTS, INCIDENTS.c.job == LEASES.c.job).where(INCIDENTS.c.id == name)
    return _guarded(step, leased, f"incident {name}", holder)


def fenced_of(
    step: Callable[Concatenate[sa.Connection, Given], Result], job: str, holder: str
) -> Callable[Concatenate[sa.Connection, Given], Result]:
    """A step that writes of a job, and is taken back with NotOurs where another than `holder` leads it."""
    leased = sa.select(LEASES.c.holder).where(LEASES.c.job == storable(job))
    return _guarded(step, leased, f"job {job}", holder)


def _guarded(
    step: Callable[Concatenate[sa.Connection, Given], Result], leased: sa.Select[Any], what: str, holder: str
) -> Callable[Concatenate[sa.Connection, Given], Result]:
    @wraps(step)
    def guarded(connection: sa.Connection, /, *given: Given.args, **named: Given.kwargs) -> Result:
        result = step(connection, *given, **named)
        # whoever wants the lease waits until this is done, so that nothing is written behind a new holder's back
        found = connection.execute(leased.with_for_update(read=True, of=LEASES)).scalar()
        if found is not None and found != holder:
            raise NotOurs(
                f"{what} is led by another server now", "it holds the lease of the job", code="not-the-leader"
            )
        return result

    return guarded


def _now(connection: sa.Connection) -> float:
    sqlite = connection.dialect.name == "sqlite"
    clock = "(julianday('now') - 2440587.5) * 86400.0" if sqlite else "extract(epoch FROM clock_timestamp())"
    return float(connection.execute(sa.text(f"SELECT {clock}")).scalar_one())
