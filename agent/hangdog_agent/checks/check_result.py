"""What a check found: on which part of the machine, of which class, in words, with evidence and a name for counting it once."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.printable import printable

#: Texts of evidence for one result and the length of each: a reader wants the line, not the log.
_TEXTS, _LONGEST = 8, 300
#: Codes of what still works and is to be repaired when the job stops next; diagnosis calls them signs of wear.
_AT_NEXT_STOP = frozenset({"row remap pending", "page retirement pending", "Xid 63", "Xid 156"})


class CheckVerdict(StrEnum):
    """What a result asks for. Its finding has the finer word for diagnosis, the bearing."""

    CONVICT = "convict"  # evict at once, whatever the stacks say
    SUSPECT = "suspect"  # look closer, test at the next stop
    RESET = "reset"  # a device wants a reset: now, or at the next stop where it is only pending
    TELEMETRY = "telemetry"  # note it


class CheckKind(StrEnum):
    """The parts of a machine that results are about."""

    GPU = "gpu"
    SWITCH = "nvswitch"
    PORT = "port"
    SLOT = "slot"
    MOUNT = "mount"
    DISK = "disk"
    MEMORY = "memory"
    PEER = "peer"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the machine, or a peer of it; `pci` is canonical.

    A GPU's `name` is its index, a port's `mlx5_0/1`, a mount's its folder, a peer's its address.
    """

    sort: CheckKind
    name: str = ""
    uuid: str = ""
    serial: str = ""
    pci: str = ""

    @property
    def key(self) -> str:
        """What stays the same while indices move: the serial number where there is one."""
        return f"{self.sort}/{self.serial or self.uuid or self.pci or self.name}"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing found by `check`. `identity` is equal for the same thing, also after a restart of the agent.

    A `lasting` result is a state and is found again in each look while it lasts; the others are events. `at` is when it was
    found, of `time.monotonic`: the machine's date may be set meanwhile.
    """

    check: str
    component: Component
    kind: CheckVerdict
    finding: Finding
    identity: str
    evidence: tuple[str, ...] = ()
    lasting: bool = True
    at: float | None = None

    @property
    def code(self) -> str:
        return self.finding.code

    @property
    def words(self) -> str:
        return self.finding.what

    def on(self, machine: str, now: float) -> Finding:
        """The finding as diagnosis weighs it at `now` (of `time.monotonic`), made on `machine`."""
        age_s = max(0.0, now - self.at) if self.at is not None else None
        return replace(self.finding, machine=machine, age_s=age_s)


@dataclass(frozen=True, slots=True)
class Moment:
    """When a look is taken: `now` of `time.monotonic`, `at_s` Unix time; `boot` names the machine's present start."""

    now: float
    at_s: float
    boot: str


class Check(Protocol):
    """One check of the machine. Only one thread uses it at a time; none of its calls may raise."""

    name: str
    every_s: float

    def supported(self) -> str:
        """Why there is nothing to look at on this machine; empty when there is."""

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        """All states that hold now and all events since the look before."""

    def close(self) -> None:
        """Lets go of what it holds; called once, also while a look goes on in another thread."""


def kind_of(impact: Impact, code: str = "") -> CheckVerdict:
    """The class that follows from a bearing."""
    if impact is Impact.CONVICTS:
        return CheckVerdict.CONVICT
    if impact is Impact.RESET or code in _AT_NEXT_STOP:
        return CheckVerdict.RESET
    return CheckVerdict.SUSPECT if impact in (Impact.SUSPECTS, Impact.SLOWS) else CheckVerdict.TELEMETRY


def state(
    check: str,
    source: str,
    component: Component,
    stated: tuple[str, Impact, str],
    moment: Moment,
    evidence: Iterable[str] = (),
    mark: str = "",
    lasting: bool = True,
) -> CheckResult:
    """A result from a code, a bearing and a sentence; `mark` tells apart what else would be the same thing."""
    code, impact, words = stated
    device = component.pci or component.name
    finding = Finding(source, code, impact, printable(words), device=device, at_s=moment.at_s)
    kind = kind_of(impact, code)  # part of the identity: a suspect that becomes a convict is news
    identity = "/".join(filter(None, (moment.boot, check, component.key, code, kind, mark)))
    return CheckResult(check, component, kind, finding, identity, texts(evidence), lasting, moment.now)


def texts(evidence: Iterable[str]) -> tuple[str, ...]:
    """Evidence, bounded and safe to show."""
    kept = tuple(printable(text, _LONGEST) for text, _ in zip(evidence, range(_TEXTS), strict=False))
    return tuple(text for text in kept if text)
