"""Answers what operation was like: reads from the store what a report rests on, within bounds that it names where they are met."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from hangdog_models.incident import IncidentState
from hangdog_models.machine_history import MentionKind
from hangdog_models.operations import compute
from hangdog_models.operations.past_events import (
    Came,
    MachineMention,
    MachineTestRecord,
    Naming,
    PastEvents,
    PastIncident,
)
from hangdog_models.operations.report_json import to_json
from hangdog_models.planning.campaign.launch import LaunchResult
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.grpc_api.history_service import back
from hangdog_server.store import machine_history
from hangdog_server.store import sessions as rows
from hangdog_server.store.actions import TOOK, ActionState
from hangdog_server.store.campaigns import CampaignState
from hangdog_server.store.history import settled
from hangdog_server.store.store import Store
from hangdog_server.store.tables import CAMPAIGNS, CONVICTIONS, INCIDENTS, INTENTS, LEDGER, TESTS

#: Rows of each sort that are read, the newest: at Llama 3's nine interruptions a day of 16,384 GPUs, three years of
#: incidents; and what a server reads in a second or two.
MOST = 10_000

Noun = TypeVar("Noun")


class Operations:
    """Makes reports of what the store remembers; `clock` gives Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float], restart_s: float) -> None:
        """A job that begins again within `restart_s` seconds after its end is restarted."""
        self._restart_s = restart_s
        self._store = store
        self._clock = clock
        self._turn = asyncio.Lock()  # a report of a long time takes SQLite's one thread for a second

    async def report(self, request: pb.ReportRequest) -> pb.ReportAnswer:
        """What operation was like lately; raises HangdogError."""
        now = self._clock()
        since = back(request.within_s, now)
        async with self._turn:
            found = await self._store.ask(past, since, self._restart_s)
        report = await asyncio.to_thread(compute.report, found, since, now, self._restart_s)
        return pb.ReportAnswer(report_json=json.dumps(to_json(report)))


def past(connection: sa.Connection, since: float, restart_s: float = 0.0, most: int = MOST) -> PastEvents:
    """All that is remembered from `since` (Unix seconds) on, with what is known beside it of what began before.

    Sessions that ended less than `restart_s` before belong to it: what followed may be a restart.
    """
    cut: list[str] = []

    def read(what: str, query: sa.Select[Any], noun: Callable[[Any], Noun]) -> tuple[Noun, ...]:
        found = connection.execute(query.limit(most + 1)).all()
        if len(found) > most:
            cut.append(f"more than {most} {what}: only the newest are counted")
        return tuple(noun(row) for row in found[:most])

    incidents = read("incidents", _incidents(since), _incident)
    namings = read("machines named by verdicts", _namings(since), _naming)
    stated = read(
        "lines of the ledger", machine_history.last(since).order_by(LEDGER.c.at.desc(), LEDGER.c.id.desc()), _mention
    )
    trials = read("tests", _trials(since), _trial)
    convicted = read("convictions", _convicted(since), _conviction)
    job_sessions = read("sessions of jobs", rows.since(since - restart_s), _same)
    stood = read("standstills of jobs", rows.stills(since - restart_s), _same)
    sessions = rows.sessions(job_sessions, stood)
    return PastEvents(incidents, namings, _together(trials, convicted), stated, tuple(cut), sessions)


def _same(row: Any) -> Any:
    return row


def _incidents(since: float) -> sa.Select[Any]:
    columns = [
        INCIDENTS.c[name] for name in ("id", "began", "changed", "state", "kind", "earlier", "confidence", "settled")
    ]
    stood = INCIDENTS.c.asked["stood_s"].as_float().label("stood_s")
    looked = INCIDENTS.c.asked["began"].as_float().label("looked")
    query = sa.select(*columns, stood, looked).where(INCIDENTS.c.began >= since)
    return query.order_by(INCIDENTS.c.began.desc(), INCIDENTS.c.id)


def _incident(row: Any) -> PastIncident:
    judged = row.state == IncidentState.JUDGED
    stood = (row.looked or row.began) - row.stood_s if row.stood_s else None  # as the latest look knew it
    failed = row.state == IncidentState.FAILED
    first = next(
        (one["at"] for one in row.earlier if one["kind"]), row.changed
    )  # the first verdict is what was waited for
    return PastIncident(
        row.id, row.began, row.kind if judged else "", failed, stood, first if judged else None, row.confidence,
        settled.read(row.settled),
    )  # fmt: skip


def _namings(since: float) -> sa.Select[Any]:
    """The acts decided since then, each with its incident's beginning, where that is still remembered."""
    joined = INTENTS.outerjoin(INCIDENTS, INCIDENTS.c.id == INTENTS.c.incident)
    query = sa.select(INTENTS, INCIDENTS.c.began).select_from(joined).where(INTENTS.c.at >= since)
    return query.order_by(INTENTS.c.at.desc(), INTENTS.c.incident, INTENTS.c.machine)


def _naming(row: Any) -> Naming:
    state = ActionState(row.state)
    came = Came.DISMISSED if state is ActionState.DISMISSED else Came.LEFT
    if state in TOOK:
        came = Came.GIVEN_UP if state is ActionState.FAILED and not row.marked else Came.TAKEN
    reason = state is ActionState.DISMISSED and row.message not in ("", f"by {row.who}")  # the latter: nobody gave one
    out = row.changed if state is ActionState.DONE else None
    return Naming(row.incident, row.machine, row.at, came, row.began, out, reason)


def _mention(row: Any) -> MachineMention:
    return MachineMention(row.machine, row.incident, row.at, MentionKind(row.mention), row.probability, row.among)


def _trials(since: float) -> sa.Select[Any]:
    """Of each machine in each campaign that was run to its end: how many tests it passed, and how many not."""
    passed = sa.func.sum(sa.case((TESTS.c.outcome == LaunchResult.PASS, 1), else_=0)).label("passed")
    joined = TESTS.join(CAMPAIGNS, CAMPAIGNS.c.id == TESTS.c.campaign)
    query = sa.select(
        TESTS.c.campaign, CAMPAIGNS.c.incident, CAMPAIGNS.c.began, TESTS.c.machine, passed, sa.func.count().label("all")
    ).select_from(joined)
    query = query.where(TESTS.c.at >= since, CAMPAIGNS.c.state == CampaignState.DONE)
    return query.group_by(TESTS.c.campaign, CAMPAIGNS.c.incident, CAMPAIGNS.c.began, TESTS.c.machine).order_by(
        CAMPAIGNS.c.began.desc(), TESTS.c.campaign, TESTS.c.machine
    )


def _trial(row: Any) -> MachineTestRecord:
    passed = int(row.passed)
    return MachineTestRecord(row.campaign, row.incident, row.machine, row.began, False, passed, int(row.all) - passed)


def _convicted(since: float) -> sa.Select[Any]:
    joined = CONVICTIONS.join(CAMPAIGNS, CAMPAIGNS.c.id == CONVICTIONS.c.campaign)
    columns = CONVICTIONS.c.campaign, CAMPAIGNS.c.incident, CAMPAIGNS.c.began, CONVICTIONS.c.machine
    query = sa.select(*columns).select_from(joined).where(CONVICTIONS.c.at >= since).distinct()
    return query.order_by(CAMPAIGNS.c.began.desc(), CONVICTIONS.c.campaign, CONVICTIONS.c.machine)


def _conviction(row: Any) -> MachineTestRecord:
    return MachineTestRecord(row.campaign, row.incident, row.machine, row.began, convicted=True)


def _together(
    trials: Sequence[MachineTestRecord], convicted: Sequence[MachineTestRecord]
) -> tuple[MachineTestRecord, ...]:
    """Each machine of each campaign once; one that was convicted is not said to have passed."""
    found = {(one.campaign, one.machine): one for one in (*trials, *convicted)}
    return tuple(found.values())
