"""What every actor does: look at a machine, mark it as out of use, take that mark away again, and move its job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from hangdog_models.errors import HangdogError
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.reading.printable import printable

#: How a mark of ours begins wherever it is written: who reads it knows whom to ask, and we know what is ours.
OURS = "hangdog:"
#: Characters of a reason: Slurm and Kubernetes bear more, and a line of `sinfo` is read by people.
WORDS = 200


class Mark(StrEnum):
    """Whether a machine is out of use, and whose doing that is."""

    NONE = "none"
    OURS = "ours"
    ANOTHERS = "another's"
    UNKNOWN = "unknown"  # nothing is told of it: whoever is told of acts alone, by webhook, cannot be asked


@dataclass(frozen=True, slots=True)
class MachineMark:
    """How a machine stands; `reason` is in its owner's words, `incident` the one it is marked for where that is ours."""

    mark: Mark
    reason: str = ""
    incident: str = ""


@dataclass(frozen=True, slots=True)
class IsolationCase:
    """One machine that is taken for one incident of a job, whose that is, and why; `pods` are UIDs of those it has there."""

    incident: str
    machine: str
    job: str
    reason_text: str = ""
    owner: Owner = UNKNOWN
    pods: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What tells this act from all others, however often it is tried."""
        return f"{self.incident}/{self.machine}"

    @property
    def reason(self) -> str:
        """The mark in words, as one line."""
        return f"{OURS} {self.incident} {' '.join(printable(self.reason_text, WORDS).split())}".strip()


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """Where agents say that a job runs: whose it is, the UIDs of its pods by machine (none outside of pods), and what is accused."""

    owner: Owner
    pods: Mapping[str, tuple[str, ...]]
    accused: tuple[str, ...]

    @property
    def machines(self) -> tuple[str, ...]:
        """All that say they run it."""
        return tuple(sorted(self.pods))


class BackendFailed(HangdogError):
    """An act was not carried out. `again`: it may be later, by itself (the scheduler was away)."""

    def __init__(self, what: str, hint: str = "", again: bool = False, *, code: str = "") -> None:
        super().__init__(what, hint, code=code)
        self.again = again


@runtime_checkable
class Backend(Protocol):
    """Takes machines out of use. Every method raises BackendFailed, and nothing else, when it cannot do its work.

    `again_s`: a mark does not last by itself and is made again so often (seconds); 0: it lasts.
    """

    name: str
    again_s: float

    async def look(self, case: IsolationCase) -> MachineMark:
        """How the machine stands; changes nothing."""
        ...

    async def mark(self, case: IsolationCase) -> None:
        """Marks the machine as out of use; one that is marked by us stays so, one that another marked is left alone."""
        ...

    async def unmark(self, case: IsolationCase) -> None:
        """Takes our mark for this incident away; without one nothing is done, and another's is left alone."""
        ...

    async def close(self) -> None:
        """Lets go of what it holds open."""
        ...


@runtime_checkable
class Mover(Protocol):
    """An actor that can also have a job start again elsewhere."""

    async def run_of(self, case: IsolationCase) -> str:
        """Which run of the job is on the machine, as `move` wants it told; empty when none is. Kept before anything moves."""
        ...

    async def move(self, case: IsolationCase, run: str, machines: Sequence[str]) -> bool:
        """Has the job start again without these machines, unless that run is over; True once it is under way.

        False: not yet, ask again. Asked for twice it moves the job once: the run it is asked about is over then.
        """
        ...


@runtime_checkable
class Scheduler(Protocol):
    """An actor that knows which machines run which jobs, and so whether what agents say of it can be true."""

    async def contradicts(self, stated: JobPlacement) -> tuple[str, ...]:
        """What of a job's placement is not so, in words.

        Empty where nothing is known of it. Changes nothing; raises BackendFailed when nobody can be asked.
        """
        ...


@runtime_checkable
class RestartPreviewer(Protocol):
    """An actor that can say beforehand what its moving a job would lack, or cost."""

    async def preview_restart(self, cases: Sequence[IsolationCase]) -> str:
        """What is to be known before the job leaves these machines, in words; empty where it starts again at no cost.

        Changes nothing; raises BackendFailed, which says as much where it is none that passes by itself.
        """
        ...


@runtime_checkable
class PlaceReader(Protocol):
    """An actor that knows what a machine shares with others, such as a switch, a rack or an NVLink domain."""

    async def shares(self, machine: str) -> tuple[str, ...]:
        """Each as `label=value`; empty where nothing is known of it. Changes nothing; raises BackendFailed."""
        ...


def reason_of(text: str) -> MachineMark:
    """What the reason of a machine that is out of use says."""
    if not text.startswith(OURS):
        return MachineMark(Mark.ANOTHERS, text)
    incident = text.removeprefix(OURS).split()[:1]
    return MachineMark(Mark.OURS, text, incident[0] if incident else "")


def left_alone(who: str, machine: str, state: MachineMark) -> BackendFailed:
    """The refusal to touch what somebody else has marked."""
    reason = printable(state.reason, WORDS) or "no reason is given"
    return BackendFailed(
        f"{machine} is left alone: somebody else took it out of use in {who} ({reason})",
        "ask its owner",
        code="already-isolated",
    )
