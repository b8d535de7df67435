"""The answers of the HTTP API. The OpenAPI document is made from these types, so document and answers cannot differ.

All times are Unix seconds. A type is named in the document as here, without `Answer`.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct
from starlette.responses import Response

from hangdog_models.actions.caps import Mode
from hangdog_models.incident import EarlierVerdict, Incident, IncidentState, ResponseEntry, ResponseState, SettledCause
from hangdog_models.lists.list_page import ListPage
from hangdog_models.lists.machine_now import MachineNow
from hangdog_models.machine_history import Conviction, MachineTest, VerdictMention
from hangdog_models.past_incidents import SimilarIncidents
from hangdog_models.progress.communicator_window import CommunicatorState, JobCommunicator
from hangdog_models.ranks import format_ranks
from hangdog_models.verdict import Kind
from hangdog_models.views import communicator_text
from hangdog_models.views.job_state import Headline, JobCondition
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster.communicators import JobCommunicators
from hangdog_server.cluster.job_states import KnownJob
from hangdog_server.store.actions import ActionState
from hangdog_server.store.campaigns import CampaignState
from hangdog_server.web.history import MachineLife
from hangdog_server.web.overview import Present, SuspectView


def one_of(*values: str) -> Meta:
    """Says what a text may be. It is no enum for Python: a server of another version may have stored another one."""
    return Meta(extra_json_schema={"enum": list(map(str, values))})


Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class ResponseAnswer(Struct, frozen=True):
    """Who has an incident, and whether it is closed: set by `who` at `at`. Empty and 0: not yet."""

    state: Annotated[str, one_of(*ResponseState)]
    who: str
    at: float
    reason: str
    acknowledged_by: str
    acknowledged_at: float
    decisions: int
    entries: int


class IncidentLine(Struct, frozen=True):
    """An incident in a list; `verdict` is empty before there is one.

    `earlier`: the verdicts on earlier captures of the same stall. `went_on_s`: for how long the job was stalled when it
    went on, 0 if it was not seen to. `settled`: the cause that a person gave.
    """

    id: str
    job: str
    state: Annotated[str, one_of(*IncidentState)]
    began: float
    changed: float
    why: str
    note: str
    verdict: Annotated[str, one_of("", *Kind)]
    confidence: Share
    evict: tuple[str, ...]
    earlier: tuple[EarlierVerdict, ...]
    went_on_s: float
    settled: SettledCause | None
    response: ResponseAnswer


class IncidentAnswer(IncidentLine, frozen=True):
    """One incident: its line, its verdict as stored (null before there is one), what people did, and similar incidents."""

    judgement: Raw | None
    entries: tuple[ResponseEntry, ...]
    seen_before: SimilarIncidents


class JobAnswer(Struct, frozen=True):
    """A job and its state; `message` is the text of the page and of `hangdog jobs`."""

    name: str
    machines: int
    ranks: int
    status: Annotated[str, one_of(*JobCondition)]
    message: str
    tone: Annotated[str, one_of("good", "warn", "bad", "")]
    incident: str
    since: float


class NowAnswer(Struct, frozen=True):
    """The first page."""

    headline: Headline
    jobs: tuple[JobAnswer, ...]
    incidents: tuple[IncidentLine, ...]
    suspects: tuple[SuspectView, ...]


class ActionAnswer(Struct, frozen=True):
    """One action on a machine for an incident."""

    incident: str
    machine: str
    job: str
    state: Annotated[str, one_of(*ActionState)]
    marked: bool
    at: float
    changed: float
    who: str
    reason: str
    message: str


class ActionsAnswer(Struct, frozen=True):
    """Actions as `hangdog actions` lists them, the backends (`actors`), and why the breaker is open (empty: it is closed)."""

    mode: Annotated[str, Meta(description=f"{', '.join(Mode)}; and the file that stops it, if there is one.")]
    actors: tuple[str, ...]
    breaker: str
    actions: tuple[ActionAnswer, ...]


class ListExtentAnswer(Struct, frozen=True):
    """How much of a list an answer contains: `found` lines match, of `known` ones; `counts` are by state."""

    summary: str
    found: int
    known: int
    page: int
    pages: int
    limit: int
    sort: str
    counts: Mapping[str, Annotated[int, Meta(ge=0)]]


class IncidentsAnswer(Struct, frozen=True):
    incidents: tuple[IncidentLine, ...]
    list: ListExtentAnswer


class JobsAnswer(Struct, frozen=True):
    jobs: tuple[JobAnswer, ...]
    list: ListExtentAnswer


class MachinesAnswer(Struct, frozen=True):
    machines: tuple[MachineNow, ...]
    list: ListExtentAnswer


class ActionPageAnswer(ActionsAnswer, frozen=True):
    list: ListExtentAnswer


class LifeAnswer(Struct, frozen=True):
    """A machine's tests and convictions, newest first, and what verdicts said of it; `probation`: its end, 0 if it is on none."""

    name: str
    probation: float
    parts: tuple[str, ...]
    tests: tuple[MachineTest, ...]
    convictions: tuple[Conviction, ...]
    ledger: tuple[VerdictMention, ...]


class StragglerAnswer(Struct, frozen=True):
    """The ranks of one machine that are behind in a communicator."""

    machine: str
    ranks: str


class CommunicatorAnswer(Struct, frozen=True):
    """A communicator over all machines that tell of it; `number` is hexadecimal.

    `seen` of its `size` ranks are known. `lowest` and `highest`: how many collectives they have entered; null while it moves, or
    where that cannot be compared. `behind` names the ranks at the lowest one, of the first machines; `behind_ranks` counts all.
    `age_s`, `operation`, `oldest`: the oldest operation in flight, and the machine that has it; null and empty where none is.
    `completed_only`: of some ranks nothing is known of operations in flight.
    """

    number: str
    name: str
    size: int
    seen: int
    machines: int
    state: Annotated[str, one_of(*CommunicatorState)]
    message: str
    rate: float
    lowest: int | None
    highest: int | None
    behind: tuple[StragglerAnswer, ...]
    behind_ranks: int
    idle_s: float
    age_s: float | None
    operation: str
    oldest: str
    completed_only: bool


class CommunicatorsAnswer(Struct, frozen=True):
    """The communicators of a job, those first in which a rank waits; `found` in all.

    `left_out` are those of single machines that found no room.
    """

    job: str
    found: int
    left_out: int
    communicators: tuple[CommunicatorAnswer, ...]


class StartedAnswer(Struct, frozen=True):
    campaign: str


class EndedAnswer(Struct, frozen=True):
    campaign: str
    state: Annotated[str, one_of(*CampaignState)]


class ErrorAnswer(Struct, frozen=True):
    """What went wrong, what to do, and a code that stays the same if the words change."""

    error: str
    hint: str
    code: str


def json(answer: Struct, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer as JSON."""
    return Response(msgspec.json.encode(answer), status, headers, "application/json")


def incident_line(incident: Incident) -> IncidentLine:
    """An incident's line."""
    return IncidentLine(**_line(incident))


def incident_whole(incident: Incident, entries: Iterable[ResponseEntry], similar: SimilarIncidents) -> IncidentAnswer:
    """One incident with everything."""
    verdict = Raw(incident.verdict.encode()) if incident.verdict else None
    return IncidentAnswer(**_line(incident), judgement=verdict, entries=tuple(entries), seen_before=similar)


def present(now: Present) -> NowAnswer:
    """The first page."""
    return NowAnswer(now.headline, tuple(map(job, now.jobs)), tuple(map(incident_line, now.incidents)), now.suspects)


def job(one: KnownJob) -> JobAnswer:
    """A job."""
    state = one.state
    return JobAnswer(
        one.name, one.machines, one.ranks, state.condition, state.text, state.tone, state.incident, state.since
    )


def actions(listed: pb.ActionList) -> ActionsAnswer:
    """All actions of a list."""
    return ActionsAnswer(**_actions(listed))


def action_page(listed: pb.ActionList, page: ListPage[Any]) -> ActionPageAnswer:
    """One page of a list of actions."""
    return ActionPageAnswer(**_actions(listed), list=extent(page))


def extent(listed: ListPage[Any]) -> ListExtentAnswer:
    """How much of a list a page of it is."""
    query = listed.query
    order = query.sort or query.kind.sorts[0]
    return ListExtentAnswer(
        listed.summary, listed.found, listed.known, query.page, listed.pages, query.limit, order, listed.counts
    )


def life(name: str, kept: MachineLife) -> LifeAnswer:
    """What is kept of a machine."""
    past = kept.past
    return LifeAnswer(name, past.probation, past.parts, past.tests, past.convictions, kept.ledger)


def communicators(job: str, found: JobCommunicators, most: int) -> CommunicatorsAnswer:
    """The communicators of a job, so many at most."""
    shown = tuple(map(_communicator, found.communicators[:most]))
    return CommunicatorsAnswer(job, len(found.communicators), found.left_out, shown)


def _communicator(one: JobCommunicator) -> CommunicatorAnswer:
    own: dict[str, Any] = {name: getattr(one, name, None) for name in CommunicatorAnswer.__struct_fields__}
    behind = tuple(StragglerAnswer(each.machine, format_ranks(each.ranks)) for each in one.behind)
    number, message = communicator_text.number(one.communicator), communicator_text.message(one)
    return CommunicatorAnswer(**{**own, "number": number, "message": message, "behind": behind})


def _line(incident: Incident) -> dict[str, Any]:
    own = {name: getattr(incident, name, None) for name in IncidentLine.__struct_fields__}
    return own | {"verdict": incident.kind, "response": _picked(ResponseAnswer, incident.response)}


def _actions(listed: pb.ActionList) -> dict[str, Any]:
    done = tuple(_picked(ActionAnswer, one) for one in listed.actions)
    return {"mode": listed.mode, "actors": tuple(listed.actors), "breaker": listed.breaker, "actions": done}


def _picked(kind: type[Struct], one: object) -> Any:
    return kind(*(getattr(one, name) for name in kind.__struct_fields__))
