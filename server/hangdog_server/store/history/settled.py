"""What people said that incidents turned out to be; the latest word stands with the incident, earlier ones in the record."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

import msgspec
import sqlalchemy as sa

from hangdog_models.errors import WrongUse
from hangdog_models.incident import ENDED, SettledCause
from hangdog_models.verdict import StallCause
from hangdog_server.store.tables import INCIDENTS

#: The cause that people said; NULL where nobody said one.
CAUSE = INCIDENTS.c.settled["cause"].as_string()


def settle(connection: sa.Connection, name: str, settled: SettledCause) -> None:
    """Keeps what an incident turned out to be, or takes it back; raises WrongUse while nobody can know, or for a strange machine."""
    query = sa.select(INCIDENTS.c.state, INCIDENTS.c.asked).where(INCIDENTS.c.id == name)
    row = connection.execute(query.with_for_update()).first()
    if row is None:
        raise WrongUse(f"incident {name} is not in the store", "hangdog incidents lists them")
    if row.state not in ENDED:
        raise WrongUse(f"incident {name} is under way ({row.state})", f"hangdog watch {name} waits for its verdict")
    _require_own(name, settled.machines, {*row.asked.get("asked", ()), *row.asked.get("absent", ())})
    kept = {} if settled.cause == StallCause.UNKNOWN else asdict(settled)
    connection.execute(INCIDENTS.update().where(INCIDENTS.c.id == name).values(settled=kept))


def read(stored: Mapping[str, Any]) -> SettledCause | None:
    """What was kept; None where nothing was, or another version of hangdog kept it."""
    try:
        return msgspec.convert(stored, SettledCause)
    except msgspec.ValidationError:
        return None


def of_each(connection: sa.Connection, incidents: Collection[str]) -> dict[str, SettledCause]:
    """What people said of these incidents, of those that they spoke of."""
    query = sa.select(INCIDENTS.c.id, INCIDENTS.c.settled).where(INCIDENTS.c.id.in_(sorted(incidents)))
    rows = ((row.id, read(row.settled)) for row in connection.execute(query))
    return {name: found for name, found in rows if found is not None}


def _require_own(name: str, machines: Collection[str], known: Collection[str]) -> None:
    """Raises WrongUse for a machine that the incident's job did not run on, as far as its machines are known."""
    for machine in machines if known else ():
        if machine not in known:
            near = difflib.get_close_matches(machine, sorted(known), 1)
            hint = f"is it {near[0]}?" if near else f"hangdog ranks {name} shows them"
            raise WrongUse(f"incident {name} has no machine {machine!r}", hint)
