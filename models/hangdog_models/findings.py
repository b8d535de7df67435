"""What logs and hardware report: one finding is one event on one machine, with its impact on that machine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from hangdog_models.ranks import Rank


class Impact(StrEnum):
    """What a finding means. Only the first three are against the machine it was made on."""

    CONVICTS = "convicts"  # broken, whatever the stacks say: GPU lost, uncontained memory error, fatal NVLink
    RESET = "needs a reset"  # a device stopped working; after a reset it may be sound
    SUSPECTS = "makes suspect"  # moves the odds
    SLOWS = "slows"  # power brake, heat, a narrowed link: it works, but late
    PATH = "blames a path"  # the connection between two ends, either of which may be sound
    UNACKNOWLEDGED = "stays unacknowledged"  # trainers' data, however often it is resent: no program causes that
    PROGRAM = "blames the program"  # the application's own error, a mismatched collective
    NUMBERS = "tells of wrong numbers"  # its arithmetic gave NaN: bad data, code and a faulty device look alike
    SERVICE = "blames a service"  # storage or a name service that many share
    VICTIM = "suffers"  # it logs most, but waited for another
    TELLS_NOTHING = "tells nothing"  # known noise, listed so that it raises no questions


#: Sources that report on all machines of a cluster, in the job or not.
SLURM, KUBERNETES = "Slurm", "Kubernetes"
CLUSTER_WIDE = (SLURM, KUBERNETES)
#: NCCL's own checks. They name ranks and hosts themselves, in any log.
NCCL_DIAGNOSTICS = "NCCL diagnostics"


@dataclass(frozen=True, slots=True)
class Finding:
    """One event. `code` is the field's name for it (`Xid 79`), `what` one sentence for people.

    - `machine`, `rank`: where it belongs, by its place in the bundle; empty or None if unknown.
    - `device`: a PCI address or an index.
    - `ranks`: those it names as the odd ones; for a victim, those it did not hear from.
    - `peers`: the addresses it names as the other end.
    - `at_s`: Unix time; `uptime_s`: seconds since the machine's boot; None: unknown.
    - `times`: repeats in a row.
    - `age_s`: seconds since an agent found it, by a monotonic clock.
    - `before_s`: least seconds between it and the stall, as far as other evidence is dated.
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
    """How far a log reaches, by the same clocks as a `Finding`; None: that clock is not in it."""

    source: str
    machine: str
    at_s: float | None = None
    uptime_s: float | None = None


def aged(findings: Iterable[Finding], seconds: float) -> tuple[Finding, ...]:
    """Findings so many seconds after an agent reported them; those without an age are unchanged."""
    later = max(0.0, seconds)
    return tuple(one if one.age_s is None else replace(one, age_s=one.age_s + later) for one in findings)


def owners_of(claimed: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    """The machine of each address, of machines with those that each calls its own; what two machines claim is nobody's."""
    found: dict[str, set[str]] = {}
    for machine, addresses in claimed:
        for address in addresses:
            found.setdefault(address, set()).add(machine)
    return {address: machines.pop() for address, machines in found.items() if len(machines) == 1}


def with_ends(findings: Iterable[Finding], owners: Mapping[str, str]) -> tuple[Finding, ...]:
    """Findings, with the machine at the other end of unacknowledged data where its address is known; see `owners_of`."""
    return tuple(
        replace(one, peers=(owners[one.device],))
        if one.impact is Impact.UNACKNOWLEDGED and owners.get(one.device, one.machine) != one.machine
        else one
        for one in findings
    )
