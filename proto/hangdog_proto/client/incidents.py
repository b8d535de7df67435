"""How the command line reaches a server: each request a method, each answer a noun, each failure one of our errors."""

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from hangdog_models.errors import OurFault
from hangdog_models.findings import Finding
from hangdog_models.incident import (
    UNANSWERED,
    EarlierVerdict,
    Incident,
    IncidentResponse,
    ResponseEntry,
    SettledCause,
)
from hangdog_models.machine_history import MachineRecord, VerdictMention
from hangdog_models.operations import report_json
from hangdog_models.operations.report import OperationsReport
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.past_incidents import SimilarIncident, SimilarIncidents
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Verdict, from_json
from hangdog_models.views.job_state import JobCondition, JobState
from hangdog_models.views.timeline import Event, EventKind, IncidentTimeline
from hangdog_proto.client.lazy_channel import LazyChannel
from hangdog_proto.codec import findings as found
from hangdog_proto.codec import owners
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.generated.hangdog_pb2_grpc import IncidentsStub

#: Sorts of events; one of another version of ours is left out.
KINDS = frozenset(map(str, EventKind))
#: Seconds an answer may take that no capture stands behind.
ANSWER_S = 10.0
#: Seconds that a report may take: the store answers within 20 s, or says that it failed.
REPORT_S = 30.0


@dataclass(frozen=True, slots=True)
class ProgressStep:
    """One line of an incident's progress; `verdict` stands in the last one."""

    incident: str
    state: str
    text: str
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job as the agent of one machine announces it; `world_size` 0 when unknown.

    `owner` is whose it is by the kernel's word; `conflict` what machines contradict each other about, empty when nothing.
    """

    job: str
    ranks: tuple[Rank, ...]
    world_size: int
    topology: str
    owner: Owner = UNKNOWN
    conflict: str = ""


@dataclass(frozen=True, slots=True)
class MachineLine:
    """A machine whose agent is, or lately was, connected; silent for `silent_s` seconds; `stopped` when that was in order.

    `findings` are what its checks found, by their agent's last word. `serial` is the serial number of the certificate that
    its agent shows, empty without one, which ends in `certificate_left_s` seconds. `decided` is what was decided about it.
    `states` are MachineConditions, where a page of the list was asked for.
    """

    name: str
    version: str
    connected: bool
    silent_s: float
    jobs: tuple[JobLine, ...]
    findings: tuple[Finding, ...] = ()
    stopped: bool = False
    serial: str = ""
    certificate_left_s: float = 0.0
    certificate_ends_soon: bool = False
    decided: str = ""
    states: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionLine:
    """A machine that a verdict would isolate, and how far that is; times in Unix seconds, `marked` while our mark stands."""

    incident: str
    machine: str
    job: str
    state: str
    at: float
    changed: float
    reason: str
    message: str
    who: str
    marked: bool


@dataclass(frozen=True, slots=True)
class Actions:
    """What is done to machines: how far the server goes by itself, by whom, and why its breaker is open (empty: closed)."""

    lines: tuple[ActionLine, ...]
    mode: str
    actors: tuple[str, ...]
    breaker: str


@dataclass(frozen=True, slots=True)
class IncidentRecord:
    """One incident: its line, its verdict where there is one, what people did about it, earlier ones of its kind, and what
    happened when.
    """

    line: Incident
    verdict: Verdict | None
    entries: tuple[ResponseEntry, ...]
    similar: SimilarIncidents
    timeline: IncidentTimeline


@dataclass(frozen=True, slots=True)
class StoredIncident:
    """All that is kept of an incident: its line, its verdict, what was asked and announced, and its captures.

    A capture is the machine, the number it is kept under, and the serialized message.
    """

    line: Incident
    verdict: Verdict | None
    asked: dict[str, Any]
    captures: tuple[tuple[str, int, bytes], ...]


class Client(LazyChannel):
    """A channel to a server, given by its `HOST:PORT` alone or with all it takes to reach it.

    Every method raises HangdogError when it fails; making it raises WrongUse where the way would not be safe.
    """

    @property
    def _incidents(self) -> IncidentsStub:
        return IncidentsStub(self._channel)

    def snapshot(
        self,
        job: str = "",
        rounds: int = 0,
        interval_s: float = 0.0,
        job_toml: str = "",
        why: str = "",
        light: bool = False,
    ) -> Generator[ProgressStep, None, None]:
        """Asks for an incident now and follows it; the last step holds the verdict. 0 and empty: the server's choice.

        `light` asks for looks at a job that is slow, as few as suffice, which stop nobody.
        Close the generator, or leave it, to stop following; the incident goes on.
        """
        request = pb.SnapshotRequest(
            job=job, rounds=rounds, interval_s=interval_s, job_toml=job_toml, why=why, light=light
        )
        with self._errors():
            call = self._incidents.Snapshot(request)
            try:
                for progress in call:
                    yield ProgressStep(
                        progress.incident, progress.state, progress.text, _verdict(progress.verdict_json)
                    )
            finally:
                call.cancel()  # type: ignore[no-untyped-call]  # grpc-stubs leave it without types

    def incidents(self, job: str = "", limit: int = 0) -> tuple[Incident, ...]:
        """The latest incidents, newest first."""
        with self._errors():
            answer = self._incidents.List(pb.ListRequest(job=job, limit=limit), timeout=ANSWER_S)
        return tuple(incident_line(summary) for summary in answer.incidents)

    def incident(self, name: str) -> tuple[Incident, Verdict | None]:
        """One incident, by its name or a prefix that only it has, and its verdict where there is one."""
        record = self.record(name)
        return record.line, record.verdict

    def record(self, name: str) -> IncidentRecord:
        """As `incident`, with what people did about it and what it is like."""
        with self._errors():
            answer = self._incidents.Get(pb.GetRequest(id=name), timeout=ANSWER_S)
        entries = tuple(ResponseEntry(one.number, one.what, one.at, one.who, one.text) for one in answer.entries)
        similar = tuple(SimilarIncident(one.id, one.job, one.began, one.machine, one.came_to) for one in answer.similar)
        return IncidentRecord(
            incident_line(answer.summary), _verdict(answer.verdict_json), entries,
            SimilarIncidents(answer.similar_count, similar), _timeline(answer.timeline),
        )  # fmt: skip

    def machines(self) -> tuple[MachineLine, ...]:
        """The machines whose agents are, or lately were, connected, by name."""
        return self.machines_and_jobs()[0]

    def machines_and_jobs(self) -> tuple[tuple[MachineLine, ...], dict[str, JobState]]:
        """The machines, and how each job is that the server knows, by name, the worst first."""
        with self._errors():
            answer = self._incidents.Machines(pb.MachinesRequest(), timeout=ANSWER_S)
        machines = tuple(map(machine_line, answer.machines))
        return machines, {one.job: _state(one) for one in answer.jobs}

    def serving(self, service: str = "") -> bool:
        """Whether the server says that it serves: all of it, or one service by its full name."""
        # grpc.health.v1 by hand: one field each way, and agents' images need no package for it
        name = service.encode()
        with self._errors():
            ask = self._channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
            answer = ask(bytes((10, len(name))) + name if name else b"", timeout=ANSWER_S)
        return bool(answer == b"\x08\x01")

    def ledger(self, machine: str, within_s: float = 0.0, limit: int = 0) -> tuple[VerdictMention, ...]:
        """What verdicts said of a machine within so many seconds (0: ever), newest first."""
        request = pb.MentionsRequest(machine=machine, within_s=within_s, limit=limit)
        with self._errors():
            answer = self._incidents.Mentions(request, timeout=ANSWER_S)
        return tuple(
            VerdictMention(
                entry.machine, entry.incident, entry.job, entry.at, entry.mention, entry.probability, entry.among,
                entry.verdict,
            )
            for entry in answer.entries
        )  # fmt: skip

    def most_suspected(self, within_s: float = 0.0, limit: int = 0) -> tuple[MachineRecord, ...]:
        """The machines that verdicts named within so many seconds (0: ever), the most suspected first."""
        request = pb.MentionsRequest(within_s=within_s, limit=limit)
        with self._errors():
            answer = self._incidents.Mentions(request, timeout=ANSWER_S)
        return tuple(
            MachineRecord(one.machine, one.convicted, one.suspected, one.cleared, one.weight, one.last)
            for one in answer.machines
        )

    def report(self, within_s: float = 0.0) -> OperationsReport:
        """What operation was like within so many seconds (0: ever)."""
        with self._errors():
            answer = self._incidents.Report(pb.ReportRequest(within_s=within_s), timeout=REPORT_S)
        try:
            return report_json.from_json(json.loads(answer.report_json))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise OurFault(
                f"the server's report cannot be read: {error}",
                "is the server another version of hangdog?",
                code="unreadable-answer",
            ) from error

    def actions(self, incident: str = "", limit: int = 0) -> Actions:
        """What was, is and would be done to machines, newest first; of one incident, or of all."""
        with self._errors():
            return actions_of(
                self._incidents.Actions(pb.ActionsRequest(incident=incident, limit=limit), timeout=ANSWER_S)
            )

    def act(self, what: str, incident: str = "", machine: str = "", reason: str = "") -> Actions:
        """Decides: `approve` or `dismiss` an incident's acts, `release` a machine, `close-breaker`; what is changed by it."""
        request = pb.ActRequest(what=what, incident=incident, machine=machine, reason=reason)
        with self._errors():
            return actions_of(self._incidents.Act(request, timeout=ANSWER_S))

    def respond(
        self,
        name: str,
        what: str,
        text: str = "",
        cause: str = "",
        machines: Sequence[str] = (),
        shown: int | None = None,
        key: str = "",
    ) -> Incident:
        """Does something about an incident: `ack`, `take-over`, `give-back`, `note`, `resolve` or `reopen`; its line.

        `shown`: how many decisions whoever asks saw; `key` is the same where the same is sent twice.
        """
        request = pb.RespondRequest(id=name, what=what, text=text, cause=cause, machines=machines, shown=shown, key=key)
        with self._errors():
            return incident_line(self._incidents.Respond(request, timeout=ANSWER_S))

    def stored(self, name: str) -> StoredIncident:
        """All that is kept of one incident, by its name or a prefix that only it has."""
        head: pb.BundleHead | None = None
        captures: list[tuple[str, int, bytes]] = []
        with self._errors():
            for part in self._incidents.Bundle(pb.BundleRequest(id=name)):
                if part.HasField("head"):
                    head = part.head
                elif part.HasField("capture"):
                    captures.append((part.capture.machine, part.capture.round, part.capture.packed))
        if head is None or len(captures) != head.captures:
            gone = f"{len(captures)} of {head.captures if head else 'all'} captures of incident {name} arrived"
            raise OurFault(gone, "the server may have removed some meanwhile; try again", code="incomplete-answer")
        try:
            asked = json.loads(head.asked_json)
        except ValueError as error:
            raise OurFault(
                f"the server's record of it cannot be read: {error}",
                "is the server another version of hangdog?",
                code="unreadable-answer",
            ) from error
        return StoredIncident(incident_line(head.summary), _verdict(head.verdict_json), asked, tuple(captures))


def actions_of(answer: pb.ActionList) -> Actions:
    """Acts as the server sends them."""
    lines = tuple(
        ActionLine(
            one.incident,
            one.machine,
            one.job,
            one.state,
            one.at,
            one.changed,
            one.reason,
            one.message,
            one.who,
            one.marked,
        )
        for one in answer.actions
    )
    return Actions(lines, answer.mode, tuple(answer.actors), answer.breaker)


def machine_line(machine: pb.Machine) -> MachineLine:
    """A machine as the server sends it."""
    return MachineLine(
        machine.name, machine.version, machine.connected, machine.silent_s, tuple(map(_job, machine.jobs)),
        found.unpack(machine.findings, machine.name), machine.stopped, machine.certificate_serial, machine.certificate_left_s,
        machine.certificate_ends_soon, machine.decided, tuple(machine.states),
    )  # fmt: skip


def incident_line(summary: pb.IncidentSummary) -> Incident:
    """An incident's line as the server sends it."""
    return Incident(
        id=summary.id,
        job=summary.job,
        began=summary.began,
        state=summary.state,
        kind=summary.verdict,
        confidence=summary.confidence,
        evict=tuple(summary.evict),
        why=summary.why,
        note=summary.note,
        earlier=tuple(EarlierVerdict(one.look, one.at, one.verdict, one.confidence) for one in summary.earlier),
        went_on_s=summary.went_on_s,
        settled=_settled(summary.settled) if summary.HasField("settled") else None,
        response=_response(summary.response) if summary.HasField("response") else UNANSWERED,
    )


def _settled(settled: pb.SettledCause) -> SettledCause:
    return SettledCause(settled.cause, tuple(settled.machines), settled.reason, settled.who, settled.at)


def _timeline(line: pb.IncidentTimeline) -> IncidentTimeline:
    since = line.since if line.HasField("since") else None
    until = line.until if line.HasField("until") else None
    events = tuple(Event(one.at, EventKind(one.kind), one.text) for one in line.events if one.kind in KINDS)
    return IncidentTimeline(events, since, until, line.ranks)


def _response(stated: pb.Response) -> IncidentResponse:
    return IncidentResponse(
        stated.state, stated.who, stated.at, stated.reason, stated.acknowledged_by, stated.acknowledged_at,
        decisions=stated.decisions, entries=stated.entries,
    )  # fmt: skip


def _verdict(document: str) -> Verdict | None:
    if not document:
        return None
    try:
        return from_json(json.loads(document))
    except (KeyError, TypeError, ValueError) as error:
        raise OurFault(
            f"the server's verdict cannot be read: {error}",
            "is the server another version of hangdog?",
            code="unreadable-answer",
        ) from error


def _state(stated: pb.JobState) -> JobState:
    try:
        condition = JobCondition(stated.condition)
    except ValueError:  # a newer server's word
        condition = JobCondition.UNKNOWN
    return JobState(condition, stated.text, stated.incident, stated.since)


def _job(local: pb.LocalJob) -> JobLine:
    ranks, owner = tuple(Rank(rank) for rank in local.ranks), owners.unpack(local)
    return JobLine(local.job, ranks, local.world_size, local.topology, owner, local.conflict)
