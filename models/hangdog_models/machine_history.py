"""What is remembered of one machine: what verdicts said of it, what it was tested for, what it was convicted of."""

from dataclasses import dataclass
from enum import StrEnum


class MentionKind(StrEnum):
    """What the latest verdict upon an incident, or a campaign, says of a machine; `cleared`: an earlier one had named it.

    `taken back`: people said that it was not at fault.
    """

    SUSPECTED = "suspected"
    CONVICTED = "convicted"
    CLEARED = "cleared"
    TAKEN_BACK = "taken back"


@dataclass(frozen=True, slots=True)
class VerdictMention:
    """At `at` (Unix seconds) a verdict of this `kind` named the machine; `mention` is a MentionKind, or a word of another version.

    `probability` is the hypothesis's, which names `among` machines; 0 of one that is cleared, and what was said of one taken back.
    """

    machine: str
    incident: str
    job: str
    at: float
    mention: str
    probability: float
    among: int
    kind: str


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """A machine's incidents by its mention in them, the sum of its shares of probability, and when it was last named.

    `cleared` counts what people took back, too, which weighs nothing.
    """

    machine: str
    convicted: int = 0
    suspected: int = 0
    cleared: int = 0
    weight: float = 0.0
    last: float = 0.0


@dataclass(frozen=True, slots=True)
class MachineTest:
    """One test of one machine at `at` (Unix seconds), together with `others`."""

    machine: str
    at: float
    campaign: str
    level: int
    test: str
    outcome: str
    repetitions: int
    says: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conviction:
    """A machine, or a part that was in it then, was convicted by a campaign; `part` is empty for the machine as a whole."""

    machine: str
    part: str
    at: float
    campaign: str


@dataclass(frozen=True, slots=True)
class MachineTests:
    """What is known of a machine: its tests, newest first, the parts in it, its convictions and those of these parts.

    `probation`: Unix time until which it is more suspicious than others; 0: it is on none.
    """

    tests: tuple[MachineTest, ...]
    parts: tuple[str, ...]
    convictions: tuple[Conviction, ...]
    probation: float
