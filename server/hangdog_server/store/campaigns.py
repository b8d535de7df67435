"""Remembers campaigns: what is asked, every launch before anybody is told of it, how each came out, and the end.

What machines were tested for in them outlives them, and is kept by `trials`.
A launch is concluded once and a campaign ends once, whoever tries: each is a change of a row that is still open.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from hangdog_models.errors import WrongUse
from hangdog_models.machine_history import MentionKind
from hangdog_models.past_incidents import Outcome
from hangdog_models.planning.campaign.launch import LaunchResult
from hangdog_models.planning.campaign.level_planner import Conclusion
from hangdog_models.reading.hardware.test_report import Diagnosed
from hangdog_server.store import test_results
from hangdog_server.store.history.stated import BY_TESTS
from hangdog_server.store.store import LAST
from hangdog_server.store.tables import CAMPAIGNS, INCIDENTS, LAUNCHES, LEDGER, TESTS, storable

#: Campaigns about one incident that are told of at once: each takes minutes, and people read them.
ABOUT = 20


class CampaignState(StrEnum):
    """How far a campaign is. Only a running one is led further, by the next server, too."""

    RUNNING = "running"
    DONE = "done"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Campaign:
    """One campaign as remembered; times are Unix seconds, `report` is JSON text, empty before there is one."""

    id: str
    began: float
    who: str
    why: str
    incident: str
    asked: Mapping[str, Any]
    state: CampaignState = CampaignState.RUNNING
    changed: float = 0.0
    convicted: tuple[str, ...] = ()
    note: str = ""
    report: str = ""


@dataclass(frozen=True, slots=True)
class StoredCampaign:
    """One launch as remembered; `came` is empty while it is under way, `meet` until its members know where.

    `parts` are those that its failed tests named, by machine.
    """

    number: int
    round: int
    test: str
    machines: tuple[str, ...]
    repetitions: int
    began: float
    deadline_s: float
    meet: str = ""
    ended: float = 0.0
    came: Conclusion | None = None
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Convict:
    """A machine that a campaign convicts, and the parts of it that its failed tests named; none: the machine as a whole."""

    machine: str
    probability: float
    parts: tuple[str, ...] = field(default=())


def begin(connection: sa.Connection, campaign: Campaign) -> None:
    """Remembers a new campaign."""
    values = {
        "id": campaign.id, "state": campaign.state, "began": campaign.began, "changed": campaign.began, "note": "",
        "who": campaign.who, "why": campaign.why, "incident": campaign.incident, "asked": dict(campaign.asked),
        "convicted": [], "report": "",
    }  # fmt: skip
    connection.execute(CAMPAIGNS.insert().values(values))


def remember(connection: sa.Connection, name: str, asked: Mapping[str, Any]) -> None:
    """Replaces what planning takes: how often it was taken up changes."""
    connection.execute(CAMPAIGNS.update().where(CAMPAIGNS.c.id == name).values(asked=dict(asked)))


def planned(connection: sa.Connection, name: str, launches: Sequence[StoredCampaign]) -> None:
    """Remembers the launches of a round, which begin now."""
    rows = [
        {
            "campaign": name, "number": one.number, "round": one.round, "test": one.test, "machines": list(one.machines),
            "repetitions": one.repetitions, "began": one.began, "deadline_s": one.deadline_s, "meet": "", "ended": 0.0,
            "result": "", "came": {},
        }
        for one in launches
    ]  # fmt: skip
    connection.execute(LAUNCHES.insert(), rows)


def met(connection: sa.Connection, name: str, number: int, meet: str) -> None:
    """Remembers where the members of a launch meet."""
    mine = sa.and_(LAUNCHES.c.campaign == name, LAUNCHES.c.number == number)
    connection.execute(LAUNCHES.update().where(mine).values(meet=meet))


def concluded(
    connection: sa.Connection,
    name: str,
    launch: StoredCampaign,
    came: Conclusion,
    reports: Mapping[str, Diagnosed],
    at: float,
) -> bool:
    """Remembers how a launch came out and what each machine reported, once; whether it was the first to."""
    mine = sa.and_(LAUNCHES.c.campaign == name, LAUNCHES.c.number == launch.number, LAUNCHES.c.result == "")
    reported = {
        "because": storable(came.reason),
        "silent": {machine: storable(why) for machine, why in came.silent.items()},
        "unable": {machine: storable(why) for machine, why in came.unable.items()},
        "out": sorted(came.out),
        "parts": {machine: parts for machine, report in reports.items() if (parts := test_results.blamed(report))},
    }
    change = LAUNCHES.update().where(mine).values(result=str(came.result), came=reported, ended=at)
    if not connection.execute(change).rowcount:
        return False
    of = test_results.LaunchResults(name, launch.test, launch.machines, at)
    for machine, report in reports.items():
        test_results.keep_report(connection, of, machine, report)
    silent = {machine: why for machine, why in {**came.silent, **came.unable}.items() if machine not in reports}
    test_results.keep_silence(connection, of, silent)
    return True


def end(
    connection: sa.Connection,
    name: str,
    state: CampaignState,
    at: float,
    note: str,
    report: str,
    convicts: Iterable[Convict],
) -> bool:
    """Ends a campaign and writes down whom it convicts, once; whether it was the first to."""
    named = list(convicts)
    mine = sa.and_(CAMPAIGNS.c.id == name, CAMPAIGNS.c.state == CampaignState.RUNNING)
    values = {"state": state, "changed": at, "note": note, "report": storable(report)}
    change = CAMPAIGNS.update().where(mine).values(**values, convicted=[one.machine for one in named])
    if not connection.execute(change).rowcount:
        return False
    about, job = _about(connection, name)
    for one in named:
        test_results.convict(connection, name, one.machine, one.parts, at)
        line = {"machine": one.machine, "incident": about, "job": job, "at": at, "mention": MentionKind.CONVICTED}
        connection.execute(LEDGER.insert().values(**line, probability=one.probability, among=1, kind=BY_TESTS))
    return True


def _about(connection: sa.Connection, name: str) -> tuple[str, str]:
    """Where the ledger keeps what a campaign says: in its incident, so that one convicts a machine once, and else by its name."""
    joined = CAMPAIGNS.outerjoin(INCIDENTS, INCIDENTS.c.id == CAMPAIGNS.c.incident)
    query = sa.select(CAMPAIGNS.c.incident, INCIDENTS.c.job).select_from(joined).where(CAMPAIGNS.c.id == name)
    row = connection.execute(query).one()
    return row.incident or name, row.job or ""


def open_(connection: sa.Connection) -> tuple[Campaign, ...]:
    """The campaigns that are still to be led, oldest first."""
    query = sa.select(CAMPAIGNS).where(CAMPAIGNS.c.state == CampaignState.RUNNING).order_by(CAMPAIGNS.c.began)
    return tuple(_campaign(row) for row in connection.execute(query))


def latest(connection: sa.Connection, limit: int) -> tuple[Campaign, ...]:
    """The newest campaigns first."""
    query = sa.select(CAMPAIGNS).order_by(CAMPAIGNS.c.began.desc(), CAMPAIGNS.c.id).limit(limit)
    return tuple(_campaign(row) for row in connection.execute(query))


def about(connection: sa.Connection, incident: str) -> tuple[Campaign, ...]:
    """The campaigns about an incident, the oldest first."""
    query = sa.select(CAMPAIGNS).where(CAMPAIGNS.c.incident == incident).order_by(CAMPAIGNS.c.began, CAMPAIGNS.c.id)
    return tuple(_campaign(row) for row in connection.execute(query.limit(ABOUT)))


def lately(connection: sa.Connection, since: float, limit: int) -> tuple[Campaign, ...]:
    """The campaigns that run, or changed since then (Unix seconds), the newest first."""
    query = sa.select(CAMPAIGNS).where(_lately(since)).order_by(CAMPAIGNS.c.began.desc(), CAMPAIGNS.c.id).limit(limit)
    return tuple(_campaign(row) for row in connection.execute(query))


def convicting(connection: sa.Connection, since: float) -> tuple[Campaign, ...]:
    """The campaigns that ended since then (Unix seconds) and convicted somebody, without what is large of them."""
    columns = [column for column in CAMPAIGNS.c if column.name not in ("asked", "report")]
    light = sa.select(*columns, sa.literal("").label("asked"), sa.literal("").label("report"))
    ended = sa.and_(CAMPAIGNS.c.state != CampaignState.RUNNING, CAMPAIGNS.c.changed >= since)
    found = map(_campaign, connection.execute(light.where(ended).order_by(CAMPAIGNS.c.changed)))
    return tuple(campaign for campaign in found if campaign.convicted)


@dataclass(frozen=True, slots=True)
class Glimpse:
    """How far a campaign is: to look at that again and again must not read every report."""

    id: str
    incident: str
    state: CampaignState


def glimpses(
    connection: sa.Connection, incidents: Collection[str], since: float, limit: int
) -> tuple[tuple[Glimpse, ...], tuple[Glimpse, ...]]:
    """How far the campaigns about these incidents are, as `about` orders them, and those that `lately` gives."""
    query = sa.select(CAMPAIGNS.c.id, CAMPAIGNS.c.incident, CAMPAIGNS.c.state)
    about = query.where(CAMPAIGNS.c.incident.in_(sorted(incidents))).order_by(CAMPAIGNS.c.began, CAMPAIGNS.c.id)
    recent = query.where(_lately(since)).order_by(CAMPAIGNS.c.began.desc(), CAMPAIGNS.c.id).limit(limit)
    first, second = (
        tuple(Glimpse(row.id, row.incident, CampaignState(row.state)) for row in connection.execute(each))
        for each in (about, recent)
    )
    return first, second


def tested(connection: sa.Connection, incidents: Collection[str]) -> dict[tuple[str, str], Outcome]:
    """What the campaigns about these incidents came to of each machine, by incident and machine: convicted, or all passed."""
    query = sa.select(CAMPAIGNS.c.id, CAMPAIGNS.c.incident, CAMPAIGNS.c.convicted).where(
        CAMPAIGNS.c.state == CampaignState.DONE, CAMPAIGNS.c.incident.in_(sorted(incidents))
    )
    about = {row.id: row for row in connection.execute(query)}
    outcomes: dict[tuple[str, str], set[str]] = {}
    tests = sa.select(TESTS.c.campaign, TESTS.c.machine, TESTS.c.outcome).where(TESTS.c.campaign.in_(sorted(about)))
    for campaign, machine, outcome in connection.execute(tests):
        outcomes.setdefault((about[campaign].incident, machine), set()).add(outcome)
    found = {key: Outcome.CLEARED for key, seen in outcomes.items() if seen == {LaunchResult.PASS}}
    return found | {(row.incident, name): Outcome.CONVICTED for row in about.values() for name in row.convicted}


def find(connection: sa.Connection, prefix: str) -> Campaign:
    """The one campaign whose name begins so; raises WrongUse when there is none, or there are several."""
    prefix = storable(prefix)
    begins = CAMPAIGNS.c.id.between(prefix, prefix + LAST)
    rows = connection.execute(sa.select(CAMPAIGNS).where(begins).order_by(CAMPAIGNS.c.id).limit(2)).all()
    if not rows or not prefix:
        raise WrongUse(f"no campaign is named {prefix[:40]!r}", "hangdog test list lists them", code="no-such-campaign")
    if len(rows) > 1 and rows[0].id != prefix:
        raise WrongUse(f"several campaigns begin with {prefix[:40]!r}", "give more of the name", code="ambiguous-name")
    return _campaign(rows[0])


def launches(connection: sa.Connection, name: str) -> tuple[StoredCampaign, ...]:
    """The launches of a campaign, as they were planned."""
    query = sa.select(LAUNCHES).where(LAUNCHES.c.campaign == name).order_by(LAUNCHES.c.number)
    return tuple(_kept(row) for row in connection.execute(query))


def forget(connection: sa.Connection, before: float) -> bool:
    """Removes some of what was tested, and campaigns that ended, before that moment; whether there may be more."""
    more = test_results.forget(connection, before)
    ended = sa.and_(CAMPAIGNS.c.state != CampaignState.RUNNING, CAMPAIGNS.c.changed < before)
    old = connection.execute(sa.select(CAMPAIGNS.c.id).where(ended).limit(1)).scalar()
    if old is not None:
        connection.execute(LAUNCHES.delete().where(LAUNCHES.c.campaign == old))
        connection.execute(CAMPAIGNS.delete().where(CAMPAIGNS.c.id == old))
    return more or old is not None


def _lately(since: float) -> sa.ColumnElement[bool]:
    return sa.or_(CAMPAIGNS.c.state == CampaignState.RUNNING, CAMPAIGNS.c.changed >= since)


def _campaign(row: Any) -> Campaign:
    return Campaign(
        row.id, row.began, row.who, row.why, row.incident, row.asked or {}, CampaignState(row.state), row.changed,
        tuple(row.convicted), row.note, row.report,
    )  # fmt: skip


def _kept(row: Any) -> StoredCampaign:
    came: Conclusion | None = None
    reported = row.came
    if row.result:
        came = Conclusion(
            LaunchResult(row.result),
            reported["because"],
            reported["silent"],
            reported["unable"],
            frozenset(reported["out"]),
        )
    return StoredCampaign(
        row.number, row.round, row.test, tuple(row.machines), row.repetitions, row.began, row.deadline_s, row.meet,
        row.ended, came, {machine: tuple(parts) for machine, parts in reported.get("parts", {}).items()},
    )  # fmt: skip
