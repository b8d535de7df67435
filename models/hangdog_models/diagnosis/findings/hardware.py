"""What logs and hardware report of each machine: a factor on the odds that it is the cause, and a sentence with the
reason.

Only findings against their machine count. One fault prints many lines and shows in several tools, so repeats do not
multiply: the strongest finding sets the factor. What most machines share is no machine's fault.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.findings.event_dates import weight
from hangdog_models.diagnosis.findings.finding_reasons import reason_of
from hangdog_models.findings import CLUSTER_WIDE, Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.rules.policy import OLD_S, STALE_S
from hangdog_models.topology import Topology
from hangdog_models.verdict import VerdictReason

CONVICTING = likelihood("convicting")
RESETTING = likelihood("resetting")
SUSPICIOUS = likelihood("suspicious")
SIGN_OF_WEAR = likelihood("sign_of_wear")
SLOWING = likelihood("slowing")
SLOWING_OF_SLOW = likelihood("slowing_of_slow")
CONFIRMED_BY_TOOL = likelihood("confirmed_by_tool")
COMMON_FAULT_MACHINES = likelihood("common_fault_machines")

#: Codes that are only a sign of wear unless they do more than make suspect.
_WEAK = frozenset({"Xid 63", "Xid 156", "row remap pending", "page retirement pending", "driver mismatch", "no driver"})
_WEAK |= {f"Xid {number}" for number in range(144, 151)}
#: From weak to strong; other impacts are not against a machine.
_STRENGTH = {Impact.SLOWS: 1, Impact.SUSPECTS: 2, Impact.RESET: 3, Impact.CONVICTS: 4}
_STRONG = (Impact.RESET, Impact.CONVICTS)

#: Source, code, and whether it is a strong one: what two machines must have in common to have the same finding.
_Sort = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class MachineEvidence:
    """Why a machine is suspected by its hardware: the findings that count, strongest first.

    - `factor`: multiplies the odds that the machine stops the job.
    - `slow_factor`: multiplies the odds that it slows the job down.
    - `weight`: what is left of them if all of it had passed before the stall.
    """

    machine: str
    findings: tuple[Finding, ...]
    impact: Impact
    factor: float
    slow_factor: float
    reason: VerdictReason
    weight: float


def weigh(findings: Sequence[Finding], topology: Topology) -> Mapping[str, MachineEvidence]:
    """The machines with findings against them, by name; empty where there is none."""
    placed = _fresh(_placed(findings, topology))
    common = set(_common(placed, topology))
    of: dict[str, list[Finding]] = {}
    for machine, finding in placed:
        if _sort(finding) not in common:
            of.setdefault(machine, []).append(finding)
    return {machine: _evidence(machine, of[machine]) for machine in sorted(of)}


def kinds(findings: Sequence[Finding], topology: Topology) -> Mapping[str, tuple[str, ...]]:
    """The codes against each machine, such as `Xid 79`."""
    if not findings:
        return {}
    weighed = weigh(findings, topology)
    return {machine: tuple(sorted({one.code for one in of.findings})) for machine, of in weighed.items()}


def shared(findings: Sequence[Finding], topology: Topology) -> tuple[str, ...]:
    """What most machines show alike, a sentence each: it was ruled out as any machine's fault."""
    placed = _fresh(_placed(findings, topology))
    total = f" of {len(topology.machines)}" if topology.machines else ""
    return tuple(
        f"{code} ({source}) stands on {count}{total} machines: no machine's own fault"
        for (source, code, _), count in sorted(_common(placed, topology).items())
    )


def _placed(findings: Iterable[Finding], topology: Topology) -> list[tuple[str, Finding]]:
    """Findings against machines, with the machine they belong to.

    Without a known machine they are ignored, but for a device that failed: its rank stands for the machine.
    """
    placed = []
    for finding in findings:
        machine = finding.machine
        if not machine and finding.rank is not None:
            machine = topology.machine(finding.rank) or _unplaced(finding, finding.rank, topology)
        if machine and finding.impact in _STRENGTH:
            placed.append((machine, finding))
    return placed


def _unplaced(finding: Finding, rank: Rank, topology: Topology) -> str:
    """What stands for the machine of a rank of the job, where nothing tells it and its device failed."""
    return f"rank {rank}" if finding.impact in _STRONG and rank < topology.world_size else ""


def _fresh(placed: Sequence[tuple[str, Finding]]) -> list[tuple[str, Finding]]:
    """The findings without old ones: an hour older than the newest of the same clock.

    A strong one becomes old only by a newer strong one, or after a day. A GPU lost in the night is not sound again
    because another one reports a corrected row at noon.
    """
    newest: dict[object, float] = {}
    for machine, finding in placed:
        clock, moment = _clock(machine, finding)
        for kind in ((clock, True), (clock, False)) if finding.impact in _STRONG else ((clock, False),):
            newest[kind] = max(newest.get(kind, moment), moment)
    kept = []
    for machine, finding in placed:
        clock, moment = _clock(machine, finding)
        strong = finding.impact in _STRONG
        if newest[clock, strong] - moment <= OLD_S and newest[clock, False] - moment <= (STALE_S if strong else OLD_S):
            kept.append((machine, finding))
    return kept


def _clock(machine: str, finding: Finding) -> tuple[object, float]:
    """The clock that timed a finding, and the time. Dates compare among machines, seconds since boot only on one.

    Ages compare best: a machine's date may be an hour wrong.
    """
    if finding.age_s is not None:
        return (finding.source, "age"), -finding.age_s
    if finding.at_s is not None:
        return finding.source, finding.at_s
    if finding.uptime_s is not None:
        return (finding.source, machine), finding.uptime_s
    return None, 0.0  # not timed: it is never old, and nothing is old beside it


def _common(placed: Iterable[tuple[str, Finding]], topology: Topology) -> dict[_Sort, int]:
    """What all or most machines of the job show, with their number. A fatal event is distinct from a harmless one.

    Where nothing tells the job's machines, many that a scheduler lists alike are the cluster's, and no one of them is accused.
    """
    on: dict[_Sort, set[str]] = {}
    for machine, finding in placed:
        if machine in topology.machines or (not topology.machines and finding.source in CLUSTER_WIDE):
            on.setdefault(_sort(finding), set()).add(machine)
    total = len(topology.machines)
    return {
        sort: len(machines)
        for sort, machines in on.items()
        if len(machines) > 1
        and 2 * len(machines) > total
        and (not (sort[2] or not total) or len(machines) == total or len(machines) >= COMMON_FAULT_MACHINES)
    }


def _sort(finding: Finding) -> _Sort:
    return finding.source, finding.code, finding.impact in _STRONG


def _evidence(machine: str, findings: Iterable[Finding]) -> MachineEvidence:
    ordered = sorted(findings, key=lambda f: (-_factor(f), -_STRENGTH[f.impact], f.source, f.code, f.device, f.what))
    first = ordered[0]
    factor = _factor(first)
    if any(finding.source != first.source for finding in ordered):
        factor *= CONFIRMED_BY_TOOL
    slowing = max((weight(finding) for finding in ordered if finding.impact is Impact.SLOWS), default=0.0)
    slow = 1 + (SLOWING_OF_SLOW - 1) * slowing
    impact = max((finding.impact for finding in ordered), key=_STRENGTH.__getitem__)
    left = max(map(weight, ordered))
    return MachineEvidence(machine, tuple(ordered), impact, factor, slow, _because(machine, ordered), left)


def _factor(finding: Finding) -> float:
    if finding.impact is Impact.SUSPECTS:
        fresh = SIGN_OF_WEAR if finding.code in _WEAK else SUSPICIOUS
    else:
        fresh = {Impact.CONVICTS: CONVICTING, Impact.RESET: RESETTING}.get(finding.impact, SLOWING)
    return 1 + (fresh - 1) * weight(finding)


def _because(machine: str, ordered: Sequence[Finding]) -> VerdictReason:
    """One reason: the strongest finding in its own words, how often, and the codes of the others."""
    first = ordered[0]
    text = f"{first.source} of {machine}: {first.what}"
    if first.times > 1:
        text += f", {first.times} times"
    alike = {f.device for f in ordered if (f.source, f.code) == (first.source, first.code)} - {first.device}
    if alike:
        text += f", and the same on {len(alike)} more"
    others = list(dict.fromkeys(f.code for f in ordered if (f.source, f.code) != (first.source, first.code)))
    if others:
        text += f"; also {', '.join(others[:4])}" + (f" and {len(others) - 4} more" if len(others) > 4 else "")
    return reason_of(first, text)
