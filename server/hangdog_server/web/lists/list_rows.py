"""The lines of each list as a table's cells: which columns there are, and what stands in them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup, escape

from hangdog_models.incident import Incident
from hangdog_models.lists.machine_now import MachineCondition, MachineNow
from hangdog_models.reading.printable import printable
from hangdog_models.views.answer_text import percent
from hangdog_server.cluster.job_states import KnownJob
from hangdog_server.store.actions import ActionRecord, describe
from hangdog_server.web.history import TONES
from hangdog_server.web.render import communicators_path, job_link, machine_links, machine_path, since, utc

#: Jobs that are named in a machine's line.
JOBS = 4


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its heading; `sort` is the order that it stands for, empty: none. `named`: phones show its heading, too."""

    label: str
    sort: str = ""
    number: bool = False
    named: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """A line: where its title leads, its cells in the order of the columns, the title's first; `tone` is how it looks."""

    link: str
    cells: tuple[str, ...]
    tone: str = ""
    flag: str = ""


Rows = Callable[[Sequence[object], float], tuple[TableRow, ...]]

INCIDENT_COLUMNS = (
    Column("job", "job"), Column("began", "began"), Column("state"), Column("verdict", "verdict"),
    Column("sure", "confidence", named=True), Column("evict", named=True), Column("who", named=True), Column("why"),
)  # fmt: skip
JOB_COLUMNS = (
    Column("job", "name"), Column("state", "worst"), Column("machines", "machines", True, True),
    Column("ranks", "ranks", True, True), Column("incident", named=True),
)  # fmt: skip
MACHINE_COLUMNS = (
    Column("machine", "name"), Column("agent"), Column("decided", named=True), Column("jobs"),
    Column("convicted", "convicted", True, True), Column("suspected", "suspected", True, True),
    Column("cleared", "", True, True), Column("weight", "weight", True, True), Column("last named", "last", named=True),
    Column("its checks say"),
)  # fmt: skip
ACTION_COLUMNS = (
    Column("machine", "machine"), Column("what", "state"), Column("job", "job"), Column("decided on", "at", named=True),
    Column("latest", "changed", named=True), Column("who", named=True), Column("why"),
)  # fmt: skip


def incident_row(one: Incident, now: float) -> TableRow:
    """An incident, by its job and its name."""
    state = "; ".join(filter(None, (one.went_on or one.state, str(one.response))))
    sure = percent(one.confidence) if one.kind and one.kind != "undetermined" else ""
    cells = (
        _two(one.job or "no job", one.id), _ago(one.began, now), _shown(state, 120), _shown(one.kind), sure,
        machine_links(one.evict), _shown(one.response.acknowledged_by), _shown(str(one.settled or "") or one.note or one.why, 200),
    )  # fmt: skip
    return TableRow(f"/incidents/{quote(one.id, safe='')}", cells)


def job_row(one: KnownJob, now: float) -> TableRow:
    """A job; its incident is what its line leads to."""
    state, held = one.state, f"since {utc(one.state.since)}" if one.state.since else ""
    link, theirs = (f"/{listed}?job={quote(one.name, safe='')}" for listed in ("incidents", "machines"))
    machines = Markup('<a href="{}">{:,}</a>').format(theirs, one.machines)
    incident = Markup('<a href="/incidents/{}">{}</a>').format(
        quote(state.incident, safe=""), _shown(state.incident, 40)
    )
    ranks = Markup('<a href="{}">{:,}</a>').format(communicators_path(one.name), one.ranks)
    cells = (
        _shown(one.name), _two(state.text, held, 300), machines, ranks, incident if state.incident else "",
    )  # fmt: skip
    return TableRow(link, cells, state.tone)


def machine_row(one: MachineNow, now: float, probation: Collection[str] = ()) -> TableRow:
    """A machine."""
    if one.silent_s is None:
        agent: str = Markup('<span class="quiet">not here</span>')
    else:
        silent = since(now - one.silent_s, now)
        word = next((state for state in one.states if state in _AGENT), "")
        agent = word if one.connected and word == MachineCondition.CONNECTED else Markup("{} {}").format(word, silent)
    cells = (
        _shown(one.name), agent, _shown(one.state, 80), _jobs(one.jobs), _count(one.convicted), _count(one.suspected), _count(one.cleared),
        f"{one.weight:.2f}" if one.weight else "", utc(one.last) if one.last else "",
        _shown("; ".join(one.findings), 300),
    )  # fmt: skip
    flag = "on probation" if one.name in probation else "suspected" if MachineCondition.SUSPECTED in one.states else ""
    lead = MachineCondition.SUSPECTED in one.states or one.convicted
    return TableRow(machine_path(one.name), cells, "lead" if lead else "", flag)


def action_row(one: ActionRecord, now: float) -> TableRow:
    """What was, is or would be done to a machine; it leads to where that is decided."""
    cells = (
        _shown(one.machine), _shown(describe(one), 300), _shown(one.job or "no job"), _ago(one.at, now), _ago(one.changed, now),
        _shown(one.who, 60), _shown(one.reason, 200),
    )  # fmt: skip
    return TableRow(f"/incidents/{quote(one.incident, safe='')}", cells, TONES.get(one.state, ""))


_AGENT = (MachineCondition.CONNECTED, MachineCondition.SILENT, MachineCondition.LOST, MachineCondition.STOPPED)


def _jobs(jobs: Sequence[str]) -> str:
    rest = f" and {len(jobs) - JOBS} more" if len(jobs) > JOBS else ""
    return Markup(", ").join(job_link(job, _shown(job)) for job in jobs[:JOBS]) + rest


def _shown(text: str, most: int = 100) -> str:
    return printable(str(text), most)


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _ago(moment: float, now: float) -> Markup:
    return Markup("{} ago").format(since(moment, now))


def _two(first: str, more: str, most: int = 100) -> str:
    if not more:
        return _shown(first, most)
    return Markup('{} <span class="quiet">{}</span>').format(escape(_shown(first, most)), _shown(more, 60))
