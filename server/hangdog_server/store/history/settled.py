"""What people said that incidents turned out to be; the latest word stands with the incident, earlier ones in its responses."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from hangdog_models.incident import SettledCause
from hangdog_server.store.tables import INCIDENTS

#: The cause that people said; NULL where nobody said one.
CAUSE = INCIDENTS.c.settled["cause"].as_string()


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
