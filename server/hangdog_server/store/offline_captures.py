"""Keeps what agents recorded while no server was there: each message once, with the incident it is folded into."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa

from hangdog_models.incident import (
    CHECKED_WHY,
    CRASHED_WHY,
    NUMBERS_WHY,
    RUNS_ON,
    SUSPECTED_WHY,
    UNDER_WAY,
    IncidentState,
)
from hangdog_models.owner import UNKNOWN, Owner, OwnerKind
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Kind
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.store.captures import count
from hangdog_server.store.store import Store
from hangdog_server.store.tables import CAPTURES, INCIDENTS, SPOOLED, storable


@dataclass(frozen=True, slots=True)
class OfflineCapture:
    """One message of one machine's standstill, which began at `began` (Unix seconds by the server's clock).

    `round`, `last` and `more` are as in an answer to an order, `rounds` and `interval_s` what the agent set out to take,
    `boot` and `serial` what the machine was then. `stood_s`: for how long the job had stood still when it was captured; 0: unknown.
    `crash`: no standstill, but a crash, the first end of which was at `began`; `life_s` is for how long the job had run then.
    `numbers`: no standstill, but wrong numbers, the first of which was logged at `began`.
    """

    machine: str
    id: str
    stall: str
    local: AnnouncedJob
    began: float
    round: int
    last: bool
    more: bool
    rounds: int
    interval_s: float
    why: str
    refused: int
    packed: bytes
    boot: str = ""  # what is kept of older agents, or by older servers, has none
    serial: str = ""
    stood_s: float = 0.0
    #: Which job it is of: `local.job` is what that is called now, and another owner's may have been called so.
    whose: str = ""
    crash: bool = False
    life_s: float = 0.0
    numbers: bool = False

    @property
    def of_job(self) -> str:
        """As it is kept."""
        return self.whose or self.local.job


@dataclass(frozen=True, slots=True)
class Folded:
    """Into which incident a message was folded; `again`: it had been before; `refused`: why it was not."""

    incident: str
    again: bool = False
    refused: str = ""


class Spooled:
    """The spooled messages of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def fold(self, kept: OfflineCapture, name: str, near_s: float, at: float) -> Folded:
        """Keeps a message in the incident of its standstill, or of the job's next to it in time, else in a new one `name`d.

        An incident that was judged is open again with it. A crash of a job that stood still is the end of that standstill:
        it is noted there, and opens none. Raises StoreFailed; then nothing is kept.
        """

        def fold(connection: sa.Connection) -> Folded:
            self._store.one_at_a_time(connection, f"fold {kept.of_job}")  # else two looks at once make two incidents
            return _fold(connection, kept, name, near_s, at)

        return await self._store.do(fold)

    async def fold_check(
        self, kept: OfflineCapture, name: str, near_s: float, since: float, at: float
    ) -> Folded | None:
        """Keeps what checks found of a machine, in a new incident `name`d, or in the one of what they found `near_s` from it.

        None where it is told: an incident begun `since` then has the same kind, or its verdict evicts the machine. Raises
        StoreFailed; then nothing is kept.
        """

        def fold(connection: sa.Connection) -> Folded | None:
            self._store.one_at_a_time(connection, f"checks of {kept.machine}")  # of several servers one opens it
            return _fold_check(connection, kept, name, near_s, since, at)

        return await self._store.do(fold)

    async def crash(self, job: str, since: float) -> str | None:
        """The incident of the newest crash of a job since that moment (Unix seconds), if it was not seen to go on after it."""
        return await self._store.ask(_crash, job, since)

    async def note(self, incident: str, note: str) -> None:
        """Notes in an incident what came of it later; raises NotOurs where another server leads its job."""
        await self._store.write(incident, _note, incident, note)

    async def of(self, incident: str, packed: bool = True) -> tuple[OfflineCapture, ...]:
        """All that was folded into an incident, by machine and round; without the captures themselves if not `packed`."""
        return await self._store.ask(_of, incident, packed)


def _fold(connection: sa.Connection, kept: OfflineCapture, name: str, near_s: float, at: float) -> Folded:
    mine = sa.select(SPOOLED.c.incident).where(SPOOLED.c.machine == kept.machine)
    before = connection.execute(mine.where(SPOOLED.c.id == kept.id)).scalar()
    if before is not None:
        return Folded(before, again=True)
    same = mine.where(SPOOLED.c.stall == kept.stall, SPOOLED.c.job == kept.of_job)
    incident = connection.execute(same.limit(1)).scalar() or _near(connection, kept, near_s)
    if incident is None and kept.crash and (stood := _stood(connection, kept)) is not None:
        connection.execute(INCIDENTS.update().where(INCIDENTS.c.id == stood).values(note=f"{CRASHED_WHY} {kept.why}"))
        return Folded(stood, again=True)
    pruned = sa.select(INCIDENTS.c.pruned).where(INCIDENTS.c.id == incident).with_for_update()
    if incident is not None and connection.execute(pruned).scalar_one():
        return Folded(incident, refused="this standstill was judged long ago, and its other looks are removed")
    if incident is None:
        incident = name
        why = f"{_trigger(kept)} {kept.why}"
        if kept.crash and (before := _numbers_before(connection, kept)) is not None:
            why = f"{why}; its numbers were wrong before, incident {before}"
        connection.execute(INCIDENTS.insert().values(_incident(kept, name, why, at)))
    else:
        taken = sa.select(CAPTURES.c.round).where(
            CAPTURES.c.incident == incident, CAPTURES.c.machine == kept.machine, CAPTURES.c.round == kept.round
        )
        if connection.execute(taken).first() is not None:
            return Folded(incident, refused=f"look {kept.round} of this standstill is kept under another id")
        _reopen(connection, incident, at)
    _insert(connection, kept, incident)
    return Folded(incident)


def _fold_check(
    connection: sa.Connection, kept: OfflineCapture, name: str, near_s: float, since: float, at: float
) -> Folded | None:
    if _known(connection, kept, since):
        return None
    mine = _checks().where(SPOOLED.c.machine == kept.machine, SPOOLED.c.job == kept.of_job, INCIDENTS.c.pruned == 0)
    near = mine.where(sa.func.abs(INCIDENTS.c.began - kept.began) <= near_s).order_by(SPOOLED.c.round.desc())
    before = connection.execute(near.limit(1)).first()
    if before is None:
        connection.execute(INCIDENTS.insert().values(_incident(kept, name, f"{CHECKED_WHY} {kept.why}", at)))
        _insert(connection, kept, name)
        return Folded(name)
    _reopen(connection, before.incident, at)
    _insert(connection, replace(kept, round=before.round + 1, rounds=before.round + 2), before.incident)
    return Folded(before.incident)


def _known(connection: sa.Connection, kept: OfflineCapture, since: float) -> bool:
    same = _checks().where(SPOOLED.c.machine == kept.machine, SPOOLED.c.stall == kept.stall, SPOOLED.c.began >= since)
    if connection.execute(same.limit(1)).first() is not None:
        return True
    query = sa.select(INCIDENTS.c.evict).where(INCIDENTS.c.job == kept.local.job, INCIDENTS.c.began >= since)
    unsuspicious = sa.not_(INCIDENTS.c.why.startswith(CHECKED_WHY))
    return any(kept.machine in evict for (evict,) in connection.execute(query.where(unsuspicious)))


def _checks() -> sa.Select[Any]:
    """What checks found that opened incidents."""
    joined = SPOOLED.join(INCIDENTS, INCIDENTS.c.id == SPOOLED.c.incident)
    return (
        sa.select(SPOOLED.c.incident, SPOOLED.c.round)
        .select_from(joined)
        .where(INCIDENTS.c.why.startswith(CHECKED_WHY))
    )


def _reopen(connection: sa.Connection, incident: str, at: float) -> None:
    ended = INCIDENTS.c.state != IncidentState.RECORDED
    connection.execute(
        INCIDENTS.update()
        .where(INCIDENTS.c.id == incident, ended)
        .values(state=IncidentState.RECORDED, changed=at, note="")
    )


def _insert(connection: sa.Connection, kept: OfflineCapture, incident: str) -> None:
    capture = {"incident": incident, "machine": kept.machine, "round": kept.round, "packed": kept.packed}
    connection.execute(CAPTURES.insert().values(capture))
    count(connection, incident, len(kept.packed))
    reported = asdict(kept)
    columns = {key: reported.pop(key) for key in ("machine", "id", "began", "round")} | {"stall": reported.pop("stall")}
    del reported["packed"]
    if not kept.crash:  # a server of before reads what has none of them
        del reported["crash"], reported["life_s"]
    if not kept.numbers:
        del reported["numbers"]
    connection.execute(SPOOLED.insert().values(**columns, incident=incident, job=kept.of_job, stated=reported))


def _near(connection: sa.Connection, kept: OfflineCapture, near_s: float) -> str | None:
    """The incident of this job that is nearest in time and holds no other standstill of the machine."""
    mine = sa.select(SPOOLED.c.incident).where(SPOOLED.c.machine == kept.machine)
    apart = sa.func.abs(INCIDENTS.c.began - kept.began)
    held = sa.select(SPOOLED.c.incident).where(SPOOLED.c.job == kept.of_job)
    crashed, numbers = INCIDENTS.c.why.startswith(CRASHED_WHY), INCIDENTS.c.why.startswith(NUMBERS_WHY)
    alike = crashed if kept.crash else numbers if kept.numbers else sa.not_(sa.or_(crashed, _runs_on()))
    query = sa.select(INCIDENTS.c.id).where(
        INCIDENTS.c.id.in_(held), INCIDENTS.c.id.not_in(mine), apart <= near_s, INCIDENTS.c.pruned == 0,
        alike,
    )  # fmt: skip
    found: str | None = connection.execute(query.order_by(apart, INCIDENTS.c.id).limit(1)).scalar()
    return found


def _stood(connection: sa.Connection, kept: OfflineCapture) -> str | None:
    """The incident of the standstill that this crash ends: the job's newest since it was started, if it did not go on."""
    query = sa.select(INCIDENTS.c.id, INCIDENTS.c.why, INCIDENTS.c.kind, INCIDENTS.c.went_on_s, INCIDENTS.c.state)
    query = query.where(INCIDENTS.c.job == kept.local.job, INCIDENTS.c.began > kept.began - kept.life_s)
    query = query.where(sa.not_(_runs_on()))
    row = connection.execute(query.order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id).limit(1)).first()
    if row is None or not row.why.startswith(SUSPECTED_WHY) or row.went_on_s:
        return None
    stands = row.state in UNDER_WAY or row.kind not in ("", Kind.NONE)
    found: str = row.id
    return found if stands else None


def _numbers_before(connection: sa.Connection, kept: OfflineCapture) -> str | None:
    """The newest incident of wrong numbers of the job since it was started."""
    query = sa.select(INCIDENTS.c.id).where(
        INCIDENTS.c.job == kept.local.job, INCIDENTS.c.began > kept.began - kept.life_s,
        INCIDENTS.c.why.startswith(NUMBERS_WHY),
    )  # fmt: skip
    found: str | None = connection.execute(query.order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id).limit(1)).scalar()
    return found


def _trigger(kept: OfflineCapture) -> str:
    if kept.crash:
        return CRASHED_WHY
    return NUMBERS_WHY if kept.numbers else "recorded while no server was there:"


def _runs_on() -> sa.ColumnElement[bool]:
    """Whether an incident's job may run on."""
    return sa.or_(*(INCIDENTS.c.why.startswith(why) for why in RUNS_ON))


def _crash(connection: sa.Connection, job: str, since: float) -> str | None:
    query = sa.select(INCIDENTS.c.id, INCIDENTS.c.went_on_s).where(
        INCIDENTS.c.job == storable(job), INCIDENTS.c.began >= since, INCIDENTS.c.why.startswith(CRASHED_WHY)
    )
    row = connection.execute(query.order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id).limit(1)).first()
    return None if row is None or row.went_on_s else str(row.id)


def _note(connection: sa.Connection, incident: str, note: str) -> None:
    connection.execute(INCIDENTS.update().where(INCIDENTS.c.id == incident).values(note=note))


def _incident(kept: OfflineCapture, name: str, why: str, at: float) -> dict[str, Any]:
    return {
        "id": name,
        "job": kept.local.job,
        "state": IncidentState.RECORDED,
        "began": kept.began,
        "changed": at,
        "why": why,
        "note": "",
        "asked": {},
        "kind": "",
        "confidence": 0.0,
        "evict": [],
        "verdict": "",
    }


def _of(connection: sa.Connection, incident: str, packed: bool) -> tuple[OfflineCapture, ...]:
    joined = SPOOLED.join(
        CAPTURES,
        sa.and_(
            CAPTURES.c.incident == SPOOLED.c.incident,
            CAPTURES.c.machine == SPOOLED.c.machine,
            CAPTURES.c.round == SPOOLED.c.round,
        ),
    )
    capture = CAPTURES.c.packed if packed else sa.literal(b"").label("packed")
    query = sa.select(SPOOLED, capture).select_from(joined).where(SPOOLED.c.incident == incident)
    rows: Sequence[Any] = connection.execute(query.order_by(SPOOLED.c.machine, SPOOLED.c.round)).all()
    return tuple(_kept(row) for row in rows)


def _kept(row: Any) -> OfflineCapture:
    reported = dict(row.stated)
    local = reported.pop("local")
    ranks = tuple(Rank(rank) for rank in local["ranks"])
    return OfflineCapture(
        machine=row.machine,
        id=row.id,
        stall=row.stall,
        began=row.began,
        round=row.round,
        packed=row.packed,
        local=AnnouncedJob(
            local["job"],
            ranks,
            local["world_size"],
            local["topology"],
            _owner(local.get("owner")),
            pods=tuple(local.get("pods", ())),
            notes=tuple(local.get("notes", ())),
            switch=local.get("switch", ""),
        ),
        **reported,
    )


def _owner(reported: Mapping[str, Any] | None) -> Owner:
    return Owner(OwnerKind(reported["kind"]), reported["id"], reported["uid"]) if reported else UNKNOWN
