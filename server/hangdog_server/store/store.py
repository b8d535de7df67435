"""Remembers incidents and their raw captures, in SQLite or PostgreSQL."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Concatenate

import sqlalchemy as sa

from hangdog_models.diagnosis.clustering.incident_features import of_verdict
from hangdog_models.errors import WrongUse
from hangdog_models.incident import ENDED, RUNS_ON, SUSPECTED_WHY, EarlierVerdict, Incident, IncidentState
from hangdog_models.verdict import Verdict, to_json
from hangdog_server.store import actions, captures, leases, machine_history
from hangdog_server.store.captures import RawCapture
from hangdog_server.store.history import responses, settled, stall_incidents
from hangdog_server.store.tables import CAPTURES, INCIDENTS, storable
from hangdog_server.store.transactions import WITHIN_S, Given, Result, Transactions
from hangdog_server.telemetry import SILENT, Telemetry, WentOn

#: Verdicts of earlier looks that are kept with an incident: the first one, and the latest.
EARLIER = 20
#: Incidents of one job that tell how it is: a verdict, looks that failed after it, and one that is under way.
LATEST = 5
#: Names in one query: engines take a few thousand.
ASKED = 500
#: No name goes on with this character, the last one there is.
LAST = "\U0010ffff"


class Store(Transactions):
    """The incidents of one database."""

    _holder = ""

    def __init__(self, where: Path | str, within_s: float = WITHIN_S, telemetry: Telemetry = SILENT) -> None:
        """As `Steps` opens a database."""
        super().__init__(where, within_s, telemetry)
        #: Incidents that could not be written: people are shown them all the same, and nothing acts upon them.
        self.unwritten: dict[str, Incident] = {}
        #: Bytes of captures that wait in memory until they can be written.
        self.waiting_bytes = 0

    def fence(self, holder: str) -> None:
        """From now on only incidents are written to whose jobs' leases nobody else than `holder` has; others raise NotOurs."""
        self._holder = holder

    def _fenced(
        self, step: Callable[Concatenate[sa.Connection, Given], Result], name: str
    ) -> Callable[Concatenate[sa.Connection, Given], Result]:
        return leases.fenced(step, name, self._holder) if self._holder else step

    async def write(
        self,
        name: str,
        step: Callable[Concatenate[sa.Connection, Given], Result],
        *given: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """Takes a step that belongs to an incident, as this server leads its job; raises NotOurs where another one does."""
        return await self.do(self._fenced(step, name), *given, **named)

    async def write_of(
        self,
        job: str,
        step: Callable[Concatenate[sa.Connection, Given], Result],
        *given: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """Takes a step that belongs to a job, as this server leads it; raises NotOurs where another one does."""
        fenced = leases.fenced_of(step, job, self._holder) if self._holder else step
        return await self.do(fenced, *given, **named)

    async def begin(self, incident: Incident, asked: dict[str, Any]) -> None:
        """Remembers a new incident, and in `asked` (JSON) all that judging it again takes beside the captures."""
        await self.do(self._fenced(_begin, incident.id), incident, asked)

    async def remember(self, name: str, asked: Mapping[str, Any]) -> None:
        """Replaces what judging an incident again takes beside the captures: more is known at its end."""
        await self.do(self._fenced(_remember, name), name, asked)

    async def move(self, name: str, state: IncidentState, at: float, note: str = "") -> None:
        """Notes that an incident reached a state."""
        await self.do(self._fenced(_move, name), name, state, at, note)

    async def judged(self, name: str, verdict: Verdict, at: float, user: str = "") -> None:
        """Keeps an incident's verdict, with it its last state, what it says of machines, and by what later ones are compared.

        `user`: whose job it is; empty: nobody knows.
        """
        await self.do(self._fenced(_judged, name), name, verdict, at, user)

    async def judged_again(
        self, name: str, asked: Mapping[str, Any], verdict: Verdict, at: float, user: str = "", why: str = ""
    ) -> None:
        """Keeps the verdict of a further look at the same stall in place of the one before, which is noted as an earlier one.

        `why` it was looked at again: where a person was faster than the suspicion, that is noted, too.
        """
        await self.do(self._fenced(_judged_again, name), name, asked, verdict, at, user, why)

    async def went_on(self, name: str, stood_s: float) -> WentOn | None:
        """Notes that the job of an incident went on, having stood so long; None where that is noted, or it is gone."""
        return await self.do(self._fenced(_went_on, name), name, stood_s)

    async def next_look(self, name: str, behind: int) -> tuple[int, str]:
        """From which number on captures of a further look are kept, and how a person described the job for the one before.

        So many numbers `behind` the rounds of the look that was judged belong to it, too.
        """
        return await self.ask(_next_look, name, behind)

    async def keep(self, name: str, came: Sequence[RawCapture]) -> None:
        """Keeps captures of an incident, all or none."""
        await self.do(self._fenced(captures.keep, name), name, came)

    async def open(self) -> tuple[Incident, ...]:
        """The incidents that are still to be judged, newest first."""
        return await self.ask(_open)

    async def evicting(self, since: float) -> tuple[Incident, ...]:
        """The incidents that were judged since then and whose verdicts name machines to evict."""
        return await self.ask(_evicting, since)

    async def latest(self, job: str, limit: int) -> tuple[Incident, ...]:
        """The newest incidents first, without their verdict's text; of one job, or of all when `job` is empty."""
        found = await self.ask(_latest, job, limit)
        here = [one for one in self.unwritten.values() if job in ("", one.job)]
        if not here:
            return found
        both = {one.id: one for one in (*found, *here)}
        return tuple(sorted(both.values(), key=lambda one: (-one.began, one.id)))[:limit]

    async def of_jobs(self, jobs: Collection[str]) -> dict[str, tuple[Incident, ...]]:
        """The latest incidents of each of these jobs, newest first, but those of which their jobs may run on."""
        found = {one.id: one for one in await self.ask(_of_jobs, jobs)}
        found |= {one.id: one for one in self.unwritten.values() if one.job in jobs}
        by: dict[str, list[Incident]] = {}
        for one in sorted(found.values(), key=lambda one: (-one.began, one.id)):
            by.setdefault(one.job, []).append(one)
        return {job: tuple(incidents) for job, incidents in by.items()}

    async def find(self, prefix: str) -> Incident:
        """The one incident whose name begins so; raises WrongUse when there is none, or there are several."""
        here = [one for name, one in self.unwritten.items() if prefix and name.startswith(prefix)]
        try:
            found = await self.ask(_find, prefix)
        except WrongUse:
            if len(here) != 1:
                raise
            return here[0]
        if here and {one.id for one in here} != {found.id}:
            raise WrongUse(f"several incidents begin with {prefix!r}", "give more of the name", code="ambiguous-name")
        return here[0] if here else found

    async def recall(self, name: str) -> tuple[dict[str, Any], tuple[RawCapture, ...]]:
        """What was asked for an incident and the captures that came: enough to judge it again."""
        if name in self.unwritten:
            return {}, ()
        return await self.ask(captures.recall, name)

    async def kept(self, name: str) -> tuple[dict[str, Any], int]:
        """What was asked for an incident, and how many captures are kept of it."""
        return await self.ask(captures.kept, name)

    async def page(self, name: str, after: tuple[str, int], most: int) -> tuple[RawCapture, ...]:
        """Up to so many captures of an incident as they are kept, by machine and look, those behind `after`; `("", -1)` begins."""
        return await self.ask(captures.page, name, after, most)


def _begin(connection: sa.Connection, incident: Incident, asked: dict[str, Any]) -> None:
    connection.execute(
        INCIDENTS.insert().values(
            id=incident.id,
            job=incident.job,
            state=incident.state,
            began=incident.began,
            changed=incident.began,
            why=incident.why,
            note="",
            asked=asked,
            kind="",
            confidence=0.0,
            evict=[],
            verdict="",
        )
    )


def _remember(connection: sa.Connection, name: str, asked: Mapping[str, Any]) -> None:
    connection.execute(INCIDENTS.update().where(INCIDENTS.c.id == name).values(asked=dict(asked)))


def _move(connection: sa.Connection, name: str, state: IncidentState, at: float, note: str) -> None:
    connection.execute(INCIDENTS.update().where(INCIDENTS.c.id == name).values(state=state, changed=at, note=note))


def _judged(connection: sa.Connection, name: str, verdict: Verdict, at: float, user: str) -> None:
    document, features = to_json(verdict), of_verdict(verdict)
    text = json.dumps(document)
    connection.execute(
        INCIDENTS.update()
        .where(INCIDENTS.c.id == name)
        .values(
            state=IncidentState.JUDGED,
            changed=at,
            kind=document["verdict"],
            confidence=document["confidence"],
            evict=document["evict"]["machines"],
            verdict=text,
            verdict_bytes=len(text),
            features=asdict(features) if features is not None else {},
            owner=user,
        )
    )
    machine_history.note(connection, name, verdict, at)


def _judged_again(
    connection: sa.Connection, name: str, asked: Mapping[str, Any], verdict: Verdict, at: float, user: str, why: str
) -> None:
    row = connection.execute(sa.select(INCIDENTS).where(INCIDENTS.c.id == name).with_for_update()).first()
    if row is None:  # retention was first
        return
    before = _incident(row)
    noted = {"look": before.looks, "at": before.changed, "kind": before.kind, "confidence": before.confidence}
    earlier = [*row.earlier, noted]
    actions.outdated(connection, name, verdict.evict.machines, at)
    _judged(connection, name, verdict, at, user)
    values = {"asked": dict(asked), "earlier": earlier[:1] + earlier[1:][1 - EARLIER :], "note": "", "pruned": 0.0}
    if why.startswith(SUSPECTED_WHY) and not before.why.startswith(SUSPECTED_WHY):
        values["why"] = f"{why}; asked for before{f': {before.why}' if before.why else ''}"
    connection.execute(INCIDENTS.update().where(INCIDENTS.c.id == name).values(values))


def _went_on(connection: sa.Connection, name: str, stood_s: float) -> WentOn | None:
    mine = sa.and_(INCIDENTS.c.id == name, INCIDENTS.c.went_on_s == 0)
    evict = connection.execute(sa.select(INCIDENTS.c.evict).where(mine).with_for_update()).scalar()
    if evict is None:
        return None
    connection.execute(INCIDENTS.update().where(mine).values(went_on_s=stood_s))
    if stall_incidents.acted(connection, name):
        return WentOn.ACTED
    return WentOn.NAMED if evict else WentOn.BY_ITSELF


def _next_look(connection: sa.Connection, name: str, behind: int) -> tuple[int, str]:
    last = connection.execute(sa.select(sa.func.max(CAPTURES.c.round)).where(CAPTURES.c.incident == name)).scalar()
    asked = connection.execute(sa.select(INCIDENTS.c.asked).where(INCIDENTS.c.id == name)).scalar() or {}
    judged = asked.get("first", 0) + asked.get("rounds", 0) + behind
    return max(judged, 0 if last is None else last + 1), asked.get("job_toml", "")


def _open(connection: sa.Connection) -> tuple[Incident, ...]:
    query = sa.select(INCIDENTS).where(INCIDENTS.c.state.not_in(ENDED))
    return tuple(map(_incident, connection.execute(query.order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id))))


def _evicting(connection: sa.Connection, since: float) -> tuple[Incident, ...]:
    judged = sa.and_(INCIDENTS.c.state == IncidentState.JUDGED, INCIDENTS.c.changed >= since)
    query = _light().where(judged).order_by(INCIDENTS.c.changed, INCIDENTS.c.id)
    return tuple(incident for incident in map(_incident, connection.execute(query)) if incident.evict)


def changed(connection: sa.Connection, since: float, limit: int) -> tuple[Incident, ...]:
    """The incidents that changed since then (Unix seconds), those that began last first, without their verdict's text."""
    query = _light().where(INCIDENTS.c.changed >= since).order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id)
    return tuple(map(_incident, connection.execute(query.limit(limit))))


def listed(connection: sa.Connection, names: Sequence[str]) -> tuple[Incident, ...]:
    """The incidents of these names, without their verdict's text."""
    return tuple(map(_incident, connection.execute(_light().where(INCIDENTS.c.id.in_(list(names))))))


def _light() -> sa.Select[Any]:
    """Incidents without what is large of them."""
    columns = [column for column in INCIDENTS.c if column.name not in ("verdict", "asked", "features")]
    return sa.select(*columns, sa.literal("").label("verdict"))


def _latest(connection: sa.Connection, job: str, limit: int) -> tuple[Incident, ...]:
    query = _light().order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id).limit(limit)
    rows = connection.execute(query.where(INCIDENTS.c.job == job) if job else query)
    return tuple(_incident(row) for row in rows)


def _of_jobs(connection: sa.Connection, jobs: Collection[str]) -> tuple[Incident, ...]:
    runs_on = sa.or_(*(INCIDENTS.c.why.startswith(why) for why in RUNS_ON))
    asked, found = sorted({storable(job) for job in jobs}), list[Any]()
    for begin in range(0, len(asked), ASKED):
        mine = sa.and_(INCIDENTS.c.job.in_(asked[begin : begin + ASKED]), sa.not_(runs_on))
        newest = sa.func.row_number().over(
            partition_by=INCIDENTS.c.job, order_by=(INCIDENTS.c.began.desc(), INCIDENTS.c.id)
        )
        ranked = sa.select(INCIDENTS.c.id, newest.label("place")).where(mine).subquery()
        names = sa.select(ranked.c.id).where(ranked.c.place <= LATEST)
        found += connection.execute(_light().where(INCIDENTS.c.id.in_(names))).all()
    return tuple(map(_incident, found))


def _find(connection: sa.Connection, prefix: str) -> Incident:
    prefix = storable(prefix)
    # LIKE would take capitals for small letters in SQLite only, and use no index in PostgreSQL
    begins = INCIDENTS.c.id.between(prefix, prefix + LAST)
    newest = sa.select(INCIDENTS).where(begins).order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id)
    rows = connection.execute(newest.limit(6)).all()
    exact = [row for row in rows if row.id == prefix]
    if not rows or not prefix:
        raise WrongUse(f"no incident is named {prefix!r}", "hangdog incidents lists them", code="no-such-incident")
    if len(rows) > 1 and not exact:
        names = ", ".join(row.id for row in rows[:5]) + (", ..." if len(rows) > 5 else "")
        raise WrongUse(
            f"several incidents begin with {prefix!r}: {names}", "give more of the name", code="ambiguous-name"
        )
    return _incident(exact[0] if exact else rows[0])


def _incident(row: Any) -> Incident:
    return Incident(
        id=row.id,
        job=row.job,
        began=row.began,
        why=row.why,
        state=IncidentState(row.state),
        changed=row.changed,
        note=row.note,
        kind=row.kind,
        confidence=row.confidence,
        evict=tuple(row.evict),
        verdict=row.verdict,
        pruned=row.pruned,
        earlier=tuple(EarlierVerdict(**one) for one in row.earlier),
        went_on_s=row.went_on_s,
        settled=settled.read(row.settled),
        response=responses.read(row.response),
    )
