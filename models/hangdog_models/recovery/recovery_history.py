"""What happened to a supervised job: the only memory of the recovery ladder, in the order it happened. Times are Unix seconds."""

from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.recovery.trouble import Trouble


class RecoveryRung(StrEnum):
    """What may be done. The order is the ladder's; WAIT and UPDATE are for a job in no trouble."""

    WAIT = "wait"
    UPDATE = "update"
    EVICT = "evict"
    DIAGNOSE = "diagnose"
    REATTEMPT = "reattempt"
    ROLLBACK = "rollback"
    REPLAY = "replay"
    HUMAN = "human"


#: Acts that bring pending changes of the code in.
MERGES = frozenset({RecoveryRung.UPDATE, RecoveryRung.EVICT, RecoveryRung.REATTEMPT})
#: Acts that stop the job and start it anew.
RESTARTS = MERGES | {RecoveryRung.ROLLBACK}
#: Acts whose answer is a list of convicted machines.
TESTS = frozenset({RecoveryRung.DIAGNOSE, RecoveryRung.REPLAY})


@dataclass(frozen=True, slots=True)
class RecoveryStep:
    """What to do and why. `machines` go (evict); `changes` of the code come in, or with a rollback go out; after `wait_s`."""

    act: RecoveryRung
    reasons: tuple[str, ...]
    machines: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class OutageOpened:
    """Somebody began to supervise: the first time, or again after a person was called or the supervisor had ended."""

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
    """It got on for the first time since it was started, as far as its log tells of steps."""

    at: float


@dataclass(frozen=True, slots=True)
class Troubled:
    """Something is wrong with it. `since` is when it last got on, as far as that is known."""

    at: float
    since: float
    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step is carried out from now on: written before anything is done."""

    at: float
    number: int
    step: RecoveryStep


@dataclass(frozen=True, slots=True)
class StepDone:
    """What came of it. Not `ok`: it could not be carried out, or nobody knows whether it was; it is not done again."""

    at: float
    number: int
    ok: bool
    message: str = ""
    convicted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """Spares were tested, for an eviction: those that `passed` until now may take a place; those that `failed` are out."""

    at: float
    passed: tuple[str, ...]
    failed: tuple[str, ...]


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


Entry = OutageOpened | Began | Progressed | Troubled | Stepped | StepDone | Tried | Steady | MachinesChanged | Finished
