"""One incident, from its first suspicion to its verdict, as the server keeps it and as people see it."""

from dataclasses import dataclass
from enum import StrEnum


class IncidentState(StrEnum):
    """How far an incident is; stored before the step that it names begins."""

    SUSPECTED = "suspected"
    CAPTURING = "capturing"
    RECORDED = "recorded"
    JUDGED = "judged"
    FAILED = "failed"


#: How an incident's reason begins if its job became slower.
SLOWED_WHY = "slower:"
#: How it begins if agents suspected a stall.
SUSPECTED_WHY = "suspected:"
#: How it begins if the job crashed.
CRASHED_WHY = "crashed:"
#: How it begins if the checks of a machine opened the incident.
CHECKED_WHY = "machine check:"
#: How it begins if the job logged wrong numbers.
NUMBERS_WHY = "wrong numbers:"
#: Reasons for which the job may run on as if nothing were wrong.
RUNS_ON = (CHECKED_WHY, NUMBERS_WHY)
#: States that only a running server advances; the next server resumes them.
UNFINISHED = (IncidentState.SUSPECTED, IncidentState.CAPTURING)
#: States without a verdict yet.
UNDER_WAY = (*UNFINISHED, IncidentState.RECORDED)
#: Final states: what retention may remove.
ENDED = (IncidentState.JUDGED, IncidentState.FAILED)


@dataclass(frozen=True, slots=True)
class EarlierVerdict:
    """The verdict on an earlier capture of the same stall, at `at` (Unix seconds); `kind` is empty if there was none.

    `look` is the number of that capture, from 1.
    """

    look: int
    at: float
    kind: str
    confidence: float


@dataclass(frozen=True, slots=True)
class SettledCause:
    """The cause that a person gave to an incident: a StallCause, or a word of another version.

    `machines` were guilty; empty: no machine was, or none was named. `who` said so at `at` (Unix seconds), with a `reason`.
    """

    cause: str
    machines: tuple[str, ...] = ()
    reason: str = ""
    who: str = ""
    at: float = 0.0

    def __str__(self) -> str:
        machines = f" ({', '.join(self.machines)})" if self.machines else ""
        return f"resolved by {self.who}: {self.cause}{machines}{f', {self.reason}' if self.reason else ''}"


class ResponseState(StrEnum):
    """Whether an incident is open, or how it was closed."""

    OPEN = "open"
    RESOLVED = "resolved"
    DISMISSED = "dismissed"


class ResponseKind(StrEnum):
    """What a person may do about an incident."""

    ACKNOWLEDGED = "acknowledged"
    GIVEN_BACK = "given back"
    NOTED = "noted"
    RESOLVED = "resolved"
    DISMISSED = "dismissed"
    REOPENED = "reopened"


@dataclass(frozen=True, slots=True)
class ResponseEntry:
    """One step of a person on an incident, the `number`th, at `at` (Unix seconds); `what` is a ResponseKind."""

    number: int
    what: str
    at: float
    who: str
    text: str = ""

    def __str__(self) -> str:
        words = {
            ResponseKind.ACKNOWLEDGED: "has it",
            ResponseKind.GIVEN_BACK: "gave it back",
            ResponseKind.NOTED: "notes",
        }
        did = words.get(ResponseKind(self.what), f"{self.what} it") if self.what in [*ResponseKind] else self.what
        return f"{self.who} {did}{f': {self.text}' if self.text else ''}"


@dataclass(frozen=True, slots=True)
class IncidentResponse:
    """Who has an incident, and whether it is closed; the latest decision of each.

    - `state`: set by `who` at `at` (Unix seconds) for this `reason`; empty: by nobody yet.
    - `acknowledged_by`: has it since `acknowledged_at`; empty: nobody.
    - `verdict`: the verdict's `conclusion` when a person last took or closed it.
    - `decisions`: how many changes there were, the last at `changed`; `entries` counts notes, too.
    """

    state: str = ResponseState.OPEN
    who: str = ""
    at: float = 0.0
    reason: str = ""
    acknowledged_by: str = ""
    acknowledged_at: float = 0.0
    verdict: str = ""
    decisions: int = 0
    changed: float = 0.0
    entries: int = 0

    @property
    def closed(self) -> bool:
        """Whether it is resolved or dismissed."""
        return self.state != ResponseState.OPEN

    def __str__(self) -> str:
        if self.closed:
            return f"{self.state} by {self.who}"
        return f"{self.acknowledged_by} has it" if self.acknowledged_by else ""


#: An incident on which no person has acted.
UNANSWERED = IncidentResponse()


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident; times are Unix seconds, `kind` is its verdict's, `note` says why it failed.

    - `state`: an IncidentState, or a word of a server of another version.
    - `verdict`: its JSON text; empty before there is one, and in lists.
    - `pruned`: when its captures were removed (Unix seconds); 0: they are there.
    - `earlier`: the verdicts before the latest, the oldest first; of very many only some.
    - `went_on_s`: for how long the job was stalled when it went on; 0: it was not seen to.
    - `settled`: the cause that a person gave; `response`: what people do about it.
    """

    id: str
    job: str
    began: float
    why: str = ""
    state: str = IncidentState.SUSPECTED
    changed: float = 0.0
    note: str = ""
    kind: str = ""
    confidence: float = 0.0
    evict: tuple[str, ...] = ()
    verdict: str = ""
    pruned: float = 0.0
    earlier: tuple[EarlierVerdict, ...] = ()
    went_on_s: float = 0.0
    settled: SettledCause | None = None
    response: IncidentResponse = UNANSWERED

    @property
    def looks(self) -> int:
        """How many captures of this one stall were judged."""
        return self.earlier[-1].look + 1 if self.earlier else 1

    @property
    def went_on(self) -> str:
        """That the job went on, in words; empty if it was not seen to."""
        return f"went on after {self.went_on_s:.0f} s" if self.went_on_s else ""

    @property
    def conclusion(self) -> str:
        """Its state, verdict and evictions in one string; if it changes, people are notified again."""
        return " ".join((self.state, self.kind, *sorted(self.evict))).strip()
