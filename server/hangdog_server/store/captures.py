"""The captures of incidents as rows: what each machine showed in each look."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec
import sqlalchemy as sa

from hangdog_proto.codec import rounds
from hangdog_server.store.tables import CAPTURES, INCIDENTS, storable


class RawCapture(msgspec.Struct, frozen=True, gc=False):
    """A `Capture` message as it arrived, and as it is kept: there looks before it may stand beside it (`together.kept`)."""

    machine: str
    round: int
    packed: bytes
    before: bytes | None = None


def keep(connection: sa.Connection, name: str, captures: Sequence[RawCapture]) -> None:
    """Keeps captures of an incident."""
    rows = [
        {
            "incident": storable(name),
            "machine": storable(one.machine),
            "round": one.round,
            "packed": one.packed,
            "before": one.before,
        }
        for one in captures
    ]
    if rows:
        # past SQLAlchemy, which goes over each value of tens of thousands of rows: twice the time
        insert = CAPTURES.insert().compile(dialect=connection.dialect)
        given = list(map(itemgetter(*insert.positiontup), rows)) if insert.positiontup else rows
        connection.exec_driver_sql(str(insert), given)
        count(connection, name, sum(len(one.packed) + len(one.before or b"") for one in captures))


def count(connection: sa.Connection, name: str, added: int) -> None:
    """Counts captures that were added to an incident, in bytes."""
    larger = {"captured_bytes": INCIDENTS.c.captured_bytes + added}
    connection.execute(INCIDENTS.update().where(INCIDENTS.c.id == name).values(larger))


def recall(connection: sa.Connection, name: str) -> tuple[dict[str, Any], tuple[RawCapture, ...]]:
    """What was asked for an incident, and its captures by machine and look."""
    asked = connection.execute(sa.select(INCIDENTS.c.asked).where(INCIDENTS.c.id == name)).scalar_one()
    rows = connection.execute(_of(name))
    return dict(asked), tuple(look for row in rows for look in unfolded(_capture(row)))


def kept(connection: sa.Connection, name: str) -> tuple[dict[str, Any], int]:
    """What was asked for an incident, and how many captures are kept of it."""
    asked = connection.execute(sa.select(INCIDENTS.c.asked).where(INCIDENTS.c.id == name)).scalar_one()
    mine = sa.select(CAPTURES.c.before).where(CAPTURES.c.incident == name)
    return dict(asked), sum(1 + rounds.count(before) for before in connection.scalars(mine))


def page(connection: sa.Connection, name: str, after: tuple[str, int], most: int) -> tuple[RawCapture, ...]:
    """As `Store.page`."""
    machine, number = after
    later = sa.and_(CAPTURES.c.machine == machine, CAPTURES.c.round > number)
    rows = connection.execute(_of(name).where(sa.or_(CAPTURES.c.machine > machine, later)).limit(most))
    return tuple(map(_capture, rows))


def unfolded(capture: RawCapture) -> Iterator[RawCapture]:
    """The looks that are kept as one, each as if it had come alone."""
    if capture.before is None:
        yield capture
        return
    for number, packed in rounds.unpack_rounds(capture.round, capture.packed, capture.before):
        yield RawCapture(capture.machine, number, packed)


def _of(name: str) -> sa.Select[Any]:
    columns = (CAPTURES.c.machine, CAPTURES.c.round, CAPTURES.c.packed, CAPTURES.c.before)
    return sa.select(*columns).where(CAPTURES.c.incident == name).order_by(CAPTURES.c.machine, CAPTURES.c.round)


def _capture(row: Any) -> RawCapture:
    return RawCapture(row.machine, row.round, row.packed, row.before)
