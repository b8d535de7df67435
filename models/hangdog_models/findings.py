"""What logs and hardware say by themselves: one finding is one event on one machine, with what it means for the machine."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from hangdog_models.ranks import Rank


class Impact(StrEnum):
    """What a finding says. Only the first three speak against the machine it was made on."""

    CONVICTS = "convicts"  # broken, whatever the stacks say: GPU lost, uncontained memory error, fatal NVLink
    RESET = "needs a reset"  # a device there stopped working; after a reset it may be sound
    SUSPECTS = "makes suspect"  # moves the odds
    SLOWS = "slows"  # power brake, heat, a narrowed link: it works, but late
    PATH = "blames a path"  # the connection between two ends, either of which may be sound
    UNACKNOWLEDGED = "stays unacknowledged"  # what trainers sent, however often it is sent again: no program does that
    PROGRAM = "blames the program"  # the application's own error, a mismatched collective
    NUMBERS = "tells of wrong numbers"  # its own arithmetic gave NaN: data, code and a device that computes wrongly do that alike
    SERVICE = "blames a service"  # storage or a name service that many share
    VICTIM = "suffers"  # the loud one: it waited for somebody else
    TELLS_NOTHING = "tells nothing"  # known noise, named so that nobody wonders


#: Sources that tell of all machines of a cluster, in the job or not.
SLURM, KUBERNETES = "Slurm", "Kubernetes"
CLUSTER_WIDE = (SLURM, KUBERNETES)
#: NCCL's own checks, which name ranks and hosts themselves, whoever printed them.
NCCL_DIAGNOSTICS = "NCCL diagnostics"


@dataclass(frozen=True, slots=True)
class Finding:
    """One event. `code` is the field's name for it (`Xid 79`), `what` one sentence for people.

    It belongs to `rank` or to `machine` or to neither (empty, None): the place in the bundle tells. `device` is a PCI
    address or an index. `ranks` are those it names as the odd ones itself (of a sufferer: whom it did not hear), `peers` the addresses it names as the other
    end. `at_s` is Unix time, `uptime_s` seconds since the machine's start; None: not told. `times`: so often in a row.
    `age_s`: seconds since it was found, when an agent told it, by a clock that nobody sets. `before_s`: so many seconds at
    least it came before the job stood still, as far as other evidence is dated.
    """

    source: str
    code: str
    impact: Impact
    what: str
    machine: str = ""
    rank: Rank | None = None
    device: str = ""
    ranks: tuple[Rank, ...] = ()
    peers: tuple[str, ...] = ()
    at_s: float | None = None
    uptime_s: float | None = None
    times: int = 1
    age_s: float | None = None
    before_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Until when a log goes, by the clocks that a `Finding` has, too; None: that clock is not in it."""

    source: str
    machine: str
    at_s: float | None = None
    uptime_s: float | None = None


def aged(findings: Iterable[Finding], seconds: float) -> tuple[Finding, ...]:
    """Findings as they are so many seconds after an agent told them; those without an age stay as they are."""
    later = max(0.0, seconds)
    return tuple(one if one.age_s is None else replace(one, age_s=one.age_s + later) for one in findings)
