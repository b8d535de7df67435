"""What happened to a supervised job, in order: the only memory of the recovery ladder. Times are Unix seconds."""

from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.recovery.trouble import Trouble


class RecoveryRung(StrEnum):
    """What may be done, in the order of the ladder. WAIT, SPARE and UPDATE are for a job without trouble.

    SPARE: a person is told of a spare that is not fit. The ladder never chooses it."""

    WAIT = "wait"
    SPARE = "spare"
    UPDATE = "update"
    EVICT = "evict"
    DIAGNOSE = "diagnose"
    REATTEMPT = "reattempt"
    ROLLBACK = "rollback"
    REPLAY = "replay"
    HUMAN = "human"


#: Rungs that merge pending changes of the code.
MERGES = frozenset({RecoveryRung.UPDATE, RecoveryRung.EVICT, RecoveryRung.REATTEMPT})
#: Rungs that stop the job and start it again.
RESTARTS = MERGES | {RecoveryRung.ROLLBACK}
#: Rungs whose result is a list of convicted machines.
TESTS = frozenset({RecoveryRung.DIAGNOSE, RecoveryRung.REPLAY})


@dataclass(frozen=True, slots=True)
class RecoveryStep:
    """What to do and why. `machines` are evicted. `changes` are merged, or rolled back by ROLLBACK. It begins after `wait_s`."""

    act: RecoveryRung
    reasons: tuple[str, ...]
    machines: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class OutageOpened:
    """Supervision began: the first time, or again after a person was called or the supervisor ended."""

    at: float
    run: str


@dataclass(frozen=True, slots=True)
class Began:
    """The job was started on these machines; its processes carry the token."""

    at: float
    machines: tuple[str, ...]
    token: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """Its first progress since it was started, as far as its log has step lines."""

    at: float


@dataclass(frozen=True, slots=True)
class Troubled:
    """Something is wrong with it. `since` is its last known progress."""

    at: float
    since: float
    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step begins: stored before anything is done."""

    at: float
    number: int
    step: RecoveryStep


@dataclass(frozen=True, slots=True)
class StepDone:
    """The result of a step. Not `ok`: it could not be carried out, or that is not known; it is not repeated."""

    at: float
    number: int
    ok: bool
    message: str = ""
    convicted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """Spares were tested for an eviction. Those that `passed` may take a place; those that `failed` are out."""

    at: float
    passed: tuple[str, ...]
    failed: tuple[str, ...]


class SpareOutcome(StrEnum):
    """The result of a test ahead. CONVICTED: the spare is out. DOUBTFUL: it did not pass. UNANSWERED: no test was held."""

    PASSED = "passed"
    CONVICTED = "convicted"
    DOUBTFUL = "doubtful"
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True)
class SpareTested:
    """A spare was tested by these levels while the job ran; `message` is the reason where it did not pass."""

    at: float
    machine: str
    levels: tuple[int, ...]
    outcome: SpareOutcome
    message: str = ""


@dataclass(frozen=True, slots=True)
class SpareWarmed:
    """The command that prepares a spare ended."""

    at: float
    machine: str
    command: str
    ok: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class Steady:
    """It has trained for long enough since it was started: the episode is over."""

    at: float


@dataclass(frozen=True, slots=True)
class MachinesChanged:
    """A change of the code waits to be merged."""

    at: float
    name: str
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The job reached its end."""

    at: float


Entry = (
    OutageOpened
    | Began
    | Progressed
    | Troubled
    | Stepped
    | StepDone
    | Tried
    | SpareTested
    | SpareWarmed
    | Steady
    | MachinesChanged
    | Finished
)
