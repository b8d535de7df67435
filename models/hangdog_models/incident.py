"""One incident, from its first suspicion to its verdict, as the server remembers it and as people are told of it."""

from dataclasses import dataclass
from enum import StrEnum


class IncidentState(StrEnum):
    """How far an incident is; written before the step it names begins."""

    SUSPECTED = "suspected"
    CAPTURING = "capturing"
    RECORDED = "recorded"
    JUDGED = "judged"
    FAILED = "failed"


#: How the reason of an incident begins whose job is slower than it was.
SLOWED_WHY = "slower:"
#: How the reason of an incident begins that nobody asked for.
SUSPECTED_WHY = "suspected:"
#: How that of an incident begins that is a crash.
CRASHED_WHY = "crashed:"
#: How that of an incident begins that the checks of a machine opened.
CHECKED_WHY = "machine check:"
#: How that of an incident begins whose job logged wrong numbers.
NUMBERS_WHY = "wrong numbers:"
#: How those begin whose job may run on as if nothing were wrong.
RUNS_ON = (CHECKED_WHY, NUMBERS_WHY)
#: States that only a running server leads further; the next one takes them up.
UNFINISHED = (IncidentState.SUSPECTED, IncidentState.CAPTURING)
#: States without a verdict yet.
UNDER_WAY = (*UNFINISHED, IncidentState.RECORDED)
#: States that nothing leads further by itself: what retention may remove.
ENDED = (IncidentState.JUDGED, IncidentState.FAILED)


@dataclass(frozen=True, slots=True)
class EarlierVerdict:
    """What an earlier look at the same stall came to, at `at` (Unix seconds); `kind` is empty where there was no verdict.

    `look` is which look it was, 1 the first.
    """

    look: int
    at: float
    kind: str
    confidence: float


@dataclass(frozen=True, slots=True)
class SettledCause:
    """What people said that an incident turned out to be: `cause` is a StallCause, or a word of another version.

    `machines` were guilty; none: it was no machine, or nobody named one. `who` said so at `at` (Unix seconds), for this `reason`.
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
    """Whether people are done with an incident, and how."""

    OPEN = "open"
    RESOLVED = "resolved"
    DISMISSED = "dismissed"


class ResponseKind(StrEnum):
    """What people do about an incident."""

    ACKNOWLEDGED = "acknowledged"
    GIVEN_BACK = "given back"
    NOTED = "noted"
    RESOLVED = "resolved"
    DISMISSED = "dismissed"
    REOPENED = "reopened"


@dataclass(frozen=True, slots=True)
class ResponseEntry:
    """One thing that somebody did about an incident, the `number`th, at `at` (Unix seconds); `what` is a ResponseKind."""

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
    """Who has an incident, and whether people are done with it; the latest word of each.

    `who` decided upon the `state` at `at` (Unix seconds), for this `reason`; empty while nobody has. `acknowledged_by` has it
    since `acknowledged_at`; empty: nobody. `verdict` is what its verdict came to when somebody last took or closed it.
    `decisions` counts what changes any of that, the last at `changed`; `entries` counts the notes, too.
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
        """Whether people are done with it."""
        return self.state != ResponseState.OPEN

    def __str__(self) -> str:
        if self.closed:
            return f"{self.state} by {self.who}"
        return f"{self.acknowledged_by} has it" if self.acknowledged_by else ""


#: What nobody has done anything about.
UNANSWERED = IncidentResponse()


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident; times are Unix seconds, `kind` is its verdict's, `note` says why it failed.

    `verdict` is its verdict's JSON text: empty before there is one, and in lists. `pruned`: since when its captures are
    removed; 0: they are not. A server of another version may tell of a `state` that this one does not know.
    `earlier`: what the looks before the latest came to, the oldest first, of very many only some. `went_on_s`: for how long
    the job had stood in all when it was seen to go on; 0: it was not. `settled`: what people said that it turned out to be.
    `response`: what they do about it.
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
        """How often the job was looked at and judged within this one stall."""
        return self.earlier[-1].look + 1 if self.earlier else 1

    @property
    def went_on(self) -> str:
        """That the job went on, in words; empty where it was not seen to."""
        return f"went on after {self.went_on_s:.0f} s" if self.went_on_s else ""

    @property
    def conclusion(self) -> str:
        """What its verdict comes to: another one where people are to be told anew."""
        return " ".join((self.state, self.kind, *sorted(self.evict))).strip()
