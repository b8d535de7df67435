"""`hangdog jobs` lists the jobs that run, and how they are."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from hangdog.list_options import list_document, list_options, say_extent
from hangdog.options import format_option, server_option
from hangdog.output.lines import add_row, table
from hangdog.output.terminal import console_for
from hangdog.output.times import local_time, utc
from hangdog_models.incident import UNDER_WAY, Incident
from hangdog_models.lists.list_kinds import JOBS
from hangdog_models.lists.list_page import ListEntry, ListPage, page_of
from hangdog_models.lists.list_query import ListQuery
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.printable import printable
from hangdog_models.views.answer_text import percent
from hangdog_models.views.job_state import JobCondition, JobState, severity
from hangdog_proto.client.incidents import Client, MachineLine
from hangdog_proto.client.server_address import ServerAddress

#: Incidents that are looked through for those of the jobs: what a server tells at once.
INCIDENTS = 1000
#: Characters shown of a job's name, and of what machines contradict each other about: both come from machines.
_NAME, _CONFLICT = 100, 400


#: How a job is of which the server does not tell: it is of an older version.
NOT_KNOWN = JobState(JobCondition.UNKNOWN, "is not known: its server does not tell")


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job on its machines, by name; `lost` are those whose agents fell silent. `world_size` 0: nobody told.

    `owner` is whose it is, as the kernel of its machines says; `conflict` what machines contradict each other about.
    `under_way` is its incident without a verdict, `judged` its latest one with a verdict, `state` how it is.
    """

    name: str
    machines: tuple[str, ...]
    lost: tuple[str, ...]
    ranks: tuple[Rank, ...]
    world_size: int
    topology: str
    under_way: Incident | None
    judged: Incident | None
    owner: Owner = UNKNOWN
    conflict: str = ""
    state: JobState = NOT_KNOWN


@click.command("jobs")
@list_options(JOBS)
@format_option
@server_option
def command(query: ListQuery, form: str, server: ServerAddress) -> None:
    """List the jobs that run, the worst first: machines, ranks, state, last verdict.

    A stalled job stays so after its verdict, until it goes on, ends, or its incident is closed.

    In JSON `state` is one of stuck, suspected, examined, lost, slower, unknown, moving, ended; `says` has the words. Jobs
    that have ended are in `hangdog incidents`.

    \b
    hangdog jobs --state stuck --state suspected
    hangdog jobs --format json | jq -r '.jobs[] | select(.state == "stuck") | .job'
    """
    with Client(server) as client:
        machines, states = client.machines_and_jobs()
        jobs = running_jobs(machines, client.incidents("", INCIDENTS), states)
    page = _page(jobs, query)
    if form == "json":
        document = {
            "schema": "hangdog.jobs/1",
            "jobs": [as_json(job) for job in page.rows],
            "list": list_document(page),
        }
        click.echo(json.dumps(document, indent=2))
    elif page.rows:
        show(page.rows, console_for(sys.stdout))
    elif not page.known:
        click.echo("no job is known; `hangdog machines` lists the agents that look for them")
        return
    say_extent(page, form)


def _page(jobs: Sequence[JobRow], query: ListQuery) -> ListPage[JobRow]:
    """The jobs that are asked for; the worst come first as they are given."""
    keys: dict[str, Callable[[JobRow], Any]] = {
        "worst": lambda job: 0,
        "name": lambda job: job.name,
        "machines": lambda job: -len(job.machines),
        "ranks": lambda job: -len(job.ranks),
    }
    ordered = sorted(jobs, key=keys[query.order[0]])
    entries = [ListEntry(job, f"{job.name}\n{job.state.text}".lower(), (str(job.state.condition),)) for job in ordered]
    return page_of(entries, query)


def running_jobs(
    machines: Iterable[MachineLine], incidents: Sequence[Incident], states: Mapping[str, JobState]
) -> tuple[JobRow, ...]:
    """The jobs that agents told of, the worst first; `incidents` are the latest, newest first."""
    on: dict[str, list[MachineLine]] = {}
    for machine in machines:
        for name in dict.fromkeys(local.job for local in machine.jobs):
            on.setdefault(name, []).append(machine)
    found = [
        _job(name, them, [one for one in incidents if one.job == name], states.get(name, NOT_KNOWN))
        for name, them in on.items()
    ]
    return tuple(sorted(found, key=lambda job: (severity(job.state), job.name)))


def _job(name: str, machines: Sequence[MachineLine], incidents: Sequence[Incident], state: JobState) -> JobRow:
    local = [one for machine in machines for one in machine.jobs if one.job == name]
    return JobRow(
        name,
        tuple(machine.name for machine in machines),
        tuple(machine.name for machine in machines if not machine.connected and not machine.stopped),
        tuple(sorted({rank for one in local for rank in one.ranks})),
        max(one.world_size for one in local),
        next((one.topology for one in local if one.topology), ""),
        next((one for one in incidents if one.state in UNDER_WAY), None),
        next((one for one in incidents if one.kind), None),
        next((one.owner for one in local if one.owner.known), UNKNOWN),
        next((one.conflict for one in local if one.conflict), ""),
        state,
    )


def show(jobs: Sequence[JobRow], console: Console) -> None:
    """Prints a line for each job, and below what stands against acting by itself."""
    rows = table("job", "machines", "ranks", "state", "incident", "last verdict")
    for job in jobs:
        lost = f" ({len(job.lost)} lost)" if job.lost else ""
        of = f" of {job.world_size}" if job.world_size else ""
        machines, ranks = f"{len(job.machines)}{lost}", f"{len(job.ranks)}{of}"
        add_row(rows, job.name, machines, ranks, job.state.text, job.state.incident or "-", _last(job))
    console.print(rows)
    for job in jobs:
        if job.conflict:
            text = (
                f"{printable(job.name, _NAME)}: machines contradict each other, so nothing is done for it by itself: "
            )
            console.print(Text(text + printable(job.conflict, _CONFLICT)))


def _last(job: JobRow) -> str:
    one = job.judged
    if one is None:
        return "-"
    evict = f", evict {', '.join(one.evict)}" if one.evict else ""
    named = f", {one.id}" if one.id != job.state.incident else ""
    return f"{one.kind} {percent(one.confidence)}{evict}{named}, {local_time(one.began)}"


def as_json(job: JobRow) -> dict[str, object]:
    """A job as JSON; `by` is the incident that says how it is, `incident` the one without a verdict, each null where none is."""
    last = job.judged
    return {
        "job": job.name,
        "owner": str(job.owner) if job.owner.known else None,
        "conflict": job.conflict or None,
        "state": str(job.state.condition),
        "says": job.state.text,
        "since": utc(job.state.since) if job.state.since else None,
        "by": job.state.incident or None,
        "machines": list(job.machines),
        "lost": list(job.lost),
        "ranks": format_ranks(job.ranks),
        "world_size": job.world_size or None,
        "topology": job.topology or None,
        "incident": {"id": job.under_way.id, "state": job.under_way.state} if job.under_way else None,
        "last": {
            "id": last.id,
            "began": utc(last.began),
            "verdict": last.kind,
            "confidence": round(last.confidence, 3),
            "evict": list(last.evict),
        }
        if last
        else None,
    }
