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
        return f"settled by {self.who}: {self.cause}{machines}{f', {self.reason}' if self.reason else ''}"


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident; times are Unix seconds, `kind` is its verdict's, `note` says why it failed.

    `verdict` is its verdict's JSON text: empty before there is one, and in lists. `pruned`: since when its captures are
    removed; 0: they are not. A server of another version may tell of a `state` that this one does not know.
    `earlier`: what the looks before the latest came to, the oldest first, of very many only some. `went_on_s`: for how long
    the job had stood in all when it was seen to go on; 0: it was not. `settled`: what people said that it turned out to be.
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

    @property
    def looks(self) -> int:
        """How often the job was looked at and judged within this one stall."""
        return self.earlier[-1].look + 1 if self.earlier else 1

    @property
    def went_on(self) -> str:
        """That the job went on, in words; empty where it was not seen to."""
        return f"went on after {self.went_on_s:.0f} s" if self.went_on_s else ""
