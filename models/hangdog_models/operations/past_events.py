"""What happened, as the store of a server tells it. Moments are Unix seconds, and None where nothing tells them."""

from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.incident import SettledCause
from hangdog_models.machine_history import MentionKind
from hangdog_models.operations.session_histories import SessionHistory


@dataclass(frozen=True, slots=True)
class PastIncident:
    """One incident. `kind` is that of its verdict, empty while there is none; then `failed` tells whether there will be one.

    `stood` is when the job got on last, as its agents said when they suspected it; `judged` when the verdict was stored.
    `confidence` is the verdict's, `settled` what people said that it turned out to be.
    """

    id: str
    began: float
    kind: str = ""
    failed: bool = False
    stood: float | None = None
    judged: float | None = None
    confidence: float = 0.0
    settled: SettledCause | None = None


class Came(StrEnum):
    """What came of a machine that a verdict would evict."""

    TAKEN = "taken"  # out of use, or released since
    GIVEN_UP = "given up"  # it was to be taken, and could not be
    DISMISSED = "dismissed"  # a person left it where it is
    LEFT = "left"  # refused by a bound, only worked out, or not decided yet


@dataclass(frozen=True, slots=True)
class Naming:
    """A machine that the verdict upon an incident would evict, decided at `at`, and what came of it.

    `began` is when the incident did, `out` when the machine was out of use. `reason`: a person who dismissed it said why.
    """

    incident: str
    machine: str
    at: float
    came: Came
    began: float | None = None
    out: float | None = None
    reason: bool = False


@dataclass(frozen=True, slots=True)
class MachineTestRecord:
    """What one campaign of tests, which was run to its end, says of one machine. `incident` is empty where it was for none.

    `began` is when the campaign did; `passed` counts the tests that the machine passed, `others` those that it did not.
    """

    campaign: str
    incident: str
    machine: str
    began: float
    convicted: bool
    passed: int = 0
    others: int = 0


@dataclass(frozen=True, slots=True)
class MachineMention:
    """A machine's standing in one incident or campaign, by a hypothesis of this probability that names `among` machines."""

    machine: str
    incident: str
    at: float
    kind: MentionKind
    probability: float
    among: int = 1


@dataclass(frozen=True, slots=True)
class PastEvents:
    """All that is known of a stretch of time. `cut` says what of it was too much to be read; empty: nothing was."""

    incidents: tuple[PastIncident, ...] = ()
    namings: tuple[Naming, ...] = ()
    trials: tuple[MachineTestRecord, ...] = ()
    mentions: tuple[MachineMention, ...] = ()
    cut: tuple[str, ...] = ()
    sessions: tuple[SessionHistory, ...] = ()
