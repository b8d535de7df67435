"""Earlier incidents that one may be compared with, and what each turned out to be."""

from collections.abc import Collection
from dataclasses import dataclass

import msgspec
import sqlalchemy as sa

from hangdog_models.incident import IncidentState, ResponseState
from hangdog_models.past_incidents import IncidentFeatures, Outcome
from hangdog_server.store import campaigns
from hangdog_server.store.history import responses, settled
from hangdog_server.store.tables import INCIDENTS

#: Incidents that one is compared with: the latest before it, and none from before so many seconds. Code and machines change.
COMPARED, COMPARED_S = 500, 365 * 86400.0


@dataclass(frozen=True, slots=True)
class Comparable:
    """An incident by what it is compared with others; `kind` is its verdict's."""

    id: str
    job: str
    began: float
    kind: str
    features: IncidentFeatures


def read(connection: sa.Connection, incident: str) -> tuple[Comparable | None, tuple[Comparable, ...]]:
    """An incident, and those before it, the newest first; none where it names no single machine."""
    columns = [INCIDENTS.c[name] for name in ("id", "job", "began", "kind", "features")]
    row = connection.execute(sa.select(*columns).where(INCIDENTS.c.id == incident)).first()
    mine = _comparable(row) if row is not None else None
    if mine is None:
        return None, ()
    query = sa.select(*columns).where(
        INCIDENTS.c.state == IncidentState.JUDGED,
        INCIDENTS.c.began < mine.began,
        INCIDENTS.c.began >= mine.began - COMPARED_S,
        INCIDENTS.c.id != incident,
    )
    rows = connection.execute(query.order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id).limit(COMPARED))
    return mine, tuple(found for found in map(_comparable, rows) if found is not None)


def came_to(connection: sa.Connection, incidents: Collection[Comparable]) -> dict[str, str]:
    """What each turned out to be, in words: by people, else by tests, else by its verdict alone."""
    names = [one.id for one in incidents]
    columns = [INCIDENTS.c[name] for name in ("id", "settled", "response", "went_on_s")]
    rows = {row.id: row for row in connection.execute(sa.select(*columns).where(INCIDENTS.c.id.in_(names)))}
    tested = campaigns.tested(connection, names) if names else {}
    found = {}
    for one in incidents:
        row, machine = rows.get(one.id), one.features.machine
        cause, response = (settled.read(row.settled), responses.read(row.response)) if row is not None else (None, None)
        outcome = tested.get((one.id, machine))
        if cause is not None:
            found[one.id] = str(cause)
        elif response is not None and response.state == ResponseState.DISMISSED:
            found[one.id] = f"{response}{f': {response.reason}' if response.reason else ''}"
        elif outcome is not None:
            found[one.id] = f"tests convicted {machine}" if outcome is Outcome.CONVICTED else f"tests cleared {machine}"
        else:
            went_on = f", went on after {row.went_on_s:.0f} s" if row is not None and row.went_on_s else ""
            found[one.id] = f"nobody said; the verdict was {one.kind}{went_on}"
    return found


def _comparable(row: sa.Row[tuple[str, str, float, str, dict[str, object]]]) -> Comparable | None:
    """None where nothing was kept to compare it by, or another version of hangdog kept it."""
    try:
        return Comparable(row.id, row.job, row.began, row.kind, msgspec.convert(row.features, IncidentFeatures))
    except msgspec.ValidationError:
        return None
