"""Finds in the store what has changed that people want to know: one subject, the state it has reached, and how to say so.

Nothing here remembers what was told: the same store gives the same news, on whichever server and after whichever crash.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from urllib.parse import quote

import sqlalchemy as sa

from hangdog_models.counts import counted, named
from hangdog_models.incident import (
    CHECKED_WHY,
    CRASHED_WHY,
    ENDED,
    NUMBERS_WHY,
    RUNS_ON,
    SUSPECTED_WHY,
    Incident,
    IncidentState,
)
from hangdog_models.verdict import Kind, from_json
from hangdog_models.views.answer_text import answer, sure
from hangdog_models.views.first_line import order
from hangdog_server.actions import policy
from hangdog_server.cluster.stalls import SELDOM_S, may_change
from hangdog_server.etag import digest
from hangdog_server.notifications.message import Message, message
from hangdog_server.notifications.notify_config import Subjects
from hangdog_server.store import actions, store
from hangdog_server.store import campaigns as records
from hangdog_server.store.actions import UNDER_WAY, ActionRecord, ActionState, describe
from hangdog_server.store.campaigns import Campaign

#: A standstill that lasts is told of again each day (of UTC): it is begun anew then. Seconds.
DAY_S = 24 * 3600.0
#: What stands where the name of a job does, of a machine that runs none.
NO_JOB = "no job"
#: How far back incidents are looked at, to know which belong to one standstill: to the first one of the day in which something
#: may still be news, whatever the time now. Seconds.
BACK_S = DAY_S + 2 * 3600.0
#: Incidents that are looked at; the newest.
MOST = 1000
#: A job that still stands is looked at again within `SELDOM_S`; a look takes some seconds more. Seconds.
SLACK_S = 60.0


@dataclass(frozen=True, slots=True)
class Change:
    """A subject has reached a state, called `mark`, at `at` (Unix seconds). `after`: only where that subject was told of.

    `incident` is the one to whose verdict the words are left; else they are `title` and `lines`. `path` is the page.
    """

    subject: str
    about: Subjects
    mark: str
    at: float
    path: str
    title: str = ""
    lines: tuple[str, ...] = ()
    after: str = ""
    incident: Incident | None = None


def read(connection: sa.Connection, now: float, since: float) -> tuple[tuple[Change, ...], tuple[Incident, ...]]:
    """What changed since then (Unix seconds), and of each job that was seen to stand still its latest incident, once ended.

    That has the name of the first one of its standstill, under which it was told of.
    """
    incidents = store.changed(connection, now - BACK_S, MOST)
    chains = chained(incidents)
    acts, campaigns = actions.changed(connection, since), records.convicting(connection, since)
    found = [
        *_looked(chains),
        *_answered(chains),
        *_acted(acts),
        *map(_convicted, campaigns),
        *_breaker(*policy.breaker(connection)),
    ]
    latest = {chain[0].job: chain for chain in chains if not chain[0].why.startswith(RUNS_ON)}
    stood = [replace(chain[-1], id=chain[0].id) for chain in latest.values() if _suspected(chain[-1])]
    return tuple(one for one in found if one.at >= since), tuple(one for one in stood if one.state in ENDED)


def unwritten(incident: Incident) -> tuple[Change, ...]:
    """What is told of an incident that the store could not take."""
    return tuple(_looked([(incident,)]))


def chained(incidents: Iterable[Incident]) -> list[tuple[Incident, ...]]:
    """The incidents by standstill, the oldest first, and so of each.

    One is one incident, however often it is looked at, but where the store took nothing, or a server ended, in between.
    """
    chains: list[list[Incident]] = []
    open_: dict[str, list[Incident]] = {}
    for one in sorted(incidents, key=lambda one: (one.began, one.id)):
        chain = open_.get(one.job)
        if chain is None or not _again(one, chain[-1]):
            chain = []
            chains.append(chain)
            open_[one.job] = chain
        chain.append(one)
    return [tuple(chain) for chain in chains]


def recovered(incident: Incident) -> Change:
    """A job that stood still goes on."""
    title = f"{incident.job} shows no sign of a standstill any more"
    stood = f"It stood still for {incident.went_on_s:.0f} s" if incident.went_on_s else "It stood still"
    lines = (f"{stood}; the verdict was {incident.kind or 'none'}.",)
    return Change(
        f"{incident.id} recovered", Subjects.RECOVERED, "recovered", incident.changed, _page(incident.id), title, lines,
        after=incident.id,
    )  # fmt: skip


def worded(changes: Change, verdict: str, link: str) -> Message:
    """The message; `verdict` is the text of the incident's, where the words are left to it, `link` where pages are."""
    title, lines = changes.title, changes.lines
    if changes.incident is not None:
        title, lines = _judged(changes.incident, verdict)
    return message(title, lines, f"{link}{changes.path}" if link else "")


def _again(one: Incident, before: Incident) -> bool:
    """Whether an incident looks anew at what the one before left open."""
    undecided = before.state is IncidentState.FAILED or (
        before.state is IncidentState.JUDGED
        and may_change(before.kind, before.confidence)
        and not before.evict
        and not before.went_on_s
    )
    soon = one.began - before.changed <= SELDOM_S + SLACK_S and one.began // DAY_S == before.began // DAY_S
    return undecided and soon and _suspected(one) and _suspected(before)


def _suspected(incident: Incident) -> bool:
    return incident.why.startswith(SUSPECTED_WHY)


def _looked(chains: Iterable[Sequence[Incident]]) -> Iterator[Change]:
    for chain in chains:
        first, ended = chain[0], [one for one in chain if one.state in ENDED]
        if not ended:
            title, asking = _opened(first)
            lines = (first.why, f"{asking}: hangdog show {first.id}")
            yield Change(first.id, Subjects.OPENED, "opened", first.began, _page(first.id), title, lines)
            continue
        newest = ended[-1]
        seen = newest.response.acknowledged_by or newest.response.closed
        if seen and newest.response.verdict == newest.conclusion:  # somebody has it, or is done with it, as it stands
            continue
        mark = digest(str(newest.state), newest.kind, sorted(newest.evict))
        if (
            not seen and newest.earlier and newest.changed // DAY_S != newest.began // DAY_S
        ):  # it lasts, and is told of once more
            mark = f"{mark} {newest.changed // DAY_S:.0f}"
        yield Change(first.id, Subjects.JUDGED, mark, newest.changed, _page(newest.id), incident=newest)


def _answered(chains: Iterable[Sequence[Incident]]) -> Iterator[Change]:
    """Who has an incident, and whether people are done with it: for those who were told of it."""
    for chain in chains:
        first, newest = chain[0], chain[-1]
        response = newest.response
        if not response.decisions:
            continue
        words = str(response) or (f"reopened by {response.who}" if response.who else "nobody has it any more")
        why = str(newest.settled) if newest.settled is not None else response.reason
        lines = (why, f"hangdog show {newest.id}")
        yield Change(
            f"{first.id} response", Subjects.RESPONSE, f"{response.decisions}", response.changed, _page(newest.id),
            f"{newest.job or NO_JOB}: {words}", lines, after=first.id,
        )  # fmt: skip


def _opened(first: Incident) -> tuple[str, str]:
    """What began, and what is done about it."""
    if first.why.startswith(CHECKED_WHY):
        return first.why, "It is being judged"
    if first.why.startswith(CRASHED_WHY):
        return f"{first.job} crashed", "Its machines tell how"
    if first.why.startswith(NUMBERS_WHY):
        return f"{first.job} logs wrong numbers", "Its machines tell which"
    return (
        f"{first.job} {'seems to stand still' if _suspected(first) else 'is looked at'}",
        "Its machines are being asked",
    )


def _judged(incident: Incident, text: str) -> tuple[str, tuple[str, ...]]:
    """The verdict in a title and three lines."""
    about = incident.job or NO_JOB
    if incident.state is IncidentState.FAILED:
        return f"{about}: there is no verdict", (incident.note, f"hangdog show {incident.id}")
    try:
        verdict = from_json(json.loads(text))
    except (ValueError, KeyError, TypeError):  # of another version of ours
        return f"{about}: {incident.kind}", (f"hangdog show {incident.id}",)
    certain = sure(verdict) if verdict.kind is not Kind.NONE else ""
    because = (*map(str, verdict.because), f"hangdog show {incident.id}")
    return f"{about}: {answer(verdict)}{f' ({certain} sure)' if certain else ''}", (
        f"{verdict.kind}: {order(verdict)}",
        *because,
    )


def _acted(rows: Iterable[ActionRecord]) -> Iterator[Change]:
    """What came of acts, an incident's once they have all come to rest; what would be done in a dry run is no news."""
    ordered = sorted(rows, key=lambda row: (row.incident, row.machine))
    for incident, group in groupby(ordered, key=lambda row: row.incident):
        mine = list(group)
        if any(row.state in UNDER_WAY for row in mine) or all(row.state is ActionState.DRY_RUN for row in mine):
            continue
        waits = [row for row in mine if row.state is ActionState.WAITING]
        mark = digest([(row.machine, str(row.state)) for row in mine])
        at, names = max(row.changed for row in mine), named({row.machine for row in waits or mine})
        job = mine[0].job or NO_JOB
        if waits:
            title = f"{job}: isolate {names}?"
            lines = [
                waits[0].reason,
                *filter(None, [waits[0].message]),
                f"hangdog approve {incident}, or hangdog dismiss {incident} --because '...'",
            ]
        else:
            title = f"{job}: {names} {describe(mine[0])}" if len(mine) == 1 else f"{job}: {_counted(mine)}"
            lines = [f"{row.machine} {describe(row)}" for row in mine]
        about = Subjects.APPROVAL if waits else Subjects.ACTED
        yield Change(f"{incident} acts", about, mark, at, _page(incident), title, tuple(lines))


def _counted(rows: Sequence[ActionRecord]) -> str:
    states = [str(row.state) for row in rows]
    return ", ".join(f"{counted(states.count(state), 'machine')} {state}" for state in dict.fromkeys(states))


def _convicted(campaign: Campaign) -> Change:
    title = f"tests convict {named(campaign.convicted)}"
    why = f": {campaign.why}" if campaign.why else ""
    lines = (f"Campaign {campaign.id}, asked for by {campaign.who}{why}", f"hangdog machines {campaign.convicted[0]}")
    machine = f"/machines/{quote(campaign.convicted[0], safe='')}"
    path = _page(campaign.incident) if campaign.incident else machine
    mark = digest(sorted(campaign.convicted))
    return Change(f"campaign {campaign.id}", Subjects.CONVICTED, mark, campaign.changed, path, title, lines)


def _breaker(why: str, since: float) -> Iterator[Change]:
    """The breaker opened, or was closed after that; before it ever did there is nothing to tell."""
    if since and why:
        lines = why, "Look at what is asked for first; then: hangdog actions --close-breaker"
        yield Change(
            "breaker", Subjects.BREAKER, f"open {since}", since, "/", "nothing more is done to machines", lines
        )
    elif since:
        closed = "The breaker was closed; hangdog audit says by whom."
        yield Change(
            "breaker",
            Subjects.BREAKER,
            "closed",
            since,
            "/",
            "machines are acted upon again",
            (closed,),
            after="breaker",
        )


def _page(incident: str) -> str:
    return f"/incidents/{quote(incident, safe='')}"
