"""What logs and hardware report by themselves: it moves the odds of the hypotheses so far, and adds some of its own."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hangdog_models.diagnosis.findings import awaited_ranks, failing_paths, hardware, job_hosts, tcp_retransmits
from hangdog_models.diagnosis.findings.event_dates import weight
from hangdog_models.diagnosis.findings.failing_paths import PATH
from hangdog_models.diagnosis.findings.finding_reasons import reason_of
from hangdog_models.diagnosis.findings.hardware import MachineEvidence
from hangdog_models.diagnosis.findings.library_errors import REFUSED
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis, odds
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import by_cause, likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, VerdictReason

HARDWARE_ALONE = likelihood("hardware_alone")
HARDWARE_ALONE_SLOW = likelihood("hardware_alone_slow")
CONVICTED_TOGETHER = likelihood("convicted_together")
REPORTED_WHERE_RANKS_WAIT = likelihood("reported_where_ranks_wait")
#: What a log alone explains, and its odds then.
LOGGED_ALONE: Mapping[str, float] = by_cause("logged_alone")
LINK_DOWN_ALONE = likelihood("link_down_alone")
LINK_CAME_BACK = likelihood("link_came_back")
#: A link that is down breaks a path, whichever end or cable is at fault. One that came back may have broken it.
_DOWN, _CAME_BACK = "link down", "link flap"
ALONE: Mapping[Impact, Kind] = {
    Impact.PROGRAM: Kind.SOFTWARE,
    Impact.PATH: Kind.GROUP,
    Impact.SERVICE: Kind.DEPENDENCY,
}
#: Faults of the job's launch or its libraries: the rank or machine whose log reports it is not to blame.
OF_THE_LAUNCH = ("store barrier, too many", "IB request refused")
_STRONG = (Impact.CONVICTS, Impact.RESET)


def weighed(
    found: Sequence[Hypothesis],
    findings: Sequence[Finding],
    topology: Topology,
    *,
    seen: bool = True,
    waiting: Collection[str] = (),
) -> tuple[Hypothesis, ...]:
    """The hypotheses with what hardware reports of their machines, and those of logs and hardware alone.

    `seen`: there are stacks. They show better than a log which rank is awaited. `waiting`: machines of which each rank was
    seen to wait, while one elsewhere does not. What ended or slowed a process there did it to another one.
    """
    if not findings:
        return tuple(found)
    findings = job_hosts.of_the_job(sorted(findings, key=_canonical), topology)
    accused, findings = failing_paths.explain(findings, topology)
    found = [*found, *accused, *(() if seen else awaited_ranks.explain(findings, topology))]
    evidence = hardware.weigh(findings, topology)
    moved = [_moved(hypothesis, evidence) for hypothesis in found]
    known = {hypothesis.units for hypothesis in found if hypothesis.kind is Kind.MACHINE}
    own = [_machine(one, topology) for name, one in evidence.items() if (name,) not in known]
    slow = [_elsewhere(_slow(one, topology), waiting) for one in evidence.values() if one.slow_factor > 1]
    convicted = [one for one in evidence.values() if one.impact in _STRONG]
    logged = [_elsewhere(one, waiting) if one.kind is Kind.SOFTWARE else one for one in _logged(findings, topology)]
    all_of_them = (*moved, *own, *slow, *_together(convicted, topology), *logged)
    return tcp_retransmits.weighed(all_of_them, findings)


def _canonical(finding: Finding) -> tuple[object, ...]:
    """An order that does not depend on how the findings came: by place, then time, then content."""
    rank = -1 if finding.rank is None else finding.rank
    return (finding.machine, rank, finding.at_s or 0.0, finding.uptime_s or 0.0, finding.code, repr(finding))


def _moved(hypothesis: Hypothesis, evidence: Mapping[str, MachineEvidence]) -> Hypothesis:
    if hypothesis.kind is not Kind.MACHINE or len(hypothesis.units) != 1 or hypothesis.units[0] not in evidence:
        return hypothesis
    one = evidence[hypothesis.units[0]]
    moved = hypothesis.moved(Factor(one.reason.text, one.factor)).with_reasons(one.reason)
    return replace(moved, hearsay=moved.hearsay and one.impact not in _STRONG)


def _machine(one: MachineEvidence, topology: Topology) -> Hypothesis:
    factors = (
        Factor("nothing else speaks against it", HARDWARE_ALONE),
        Factor(one.reason.text, one.factor),
        *_passed(one.weight),
    )
    return Hypothesis(Kind.MACHINE, factors, _on(one, topology), (one.machine,), (one.reason,))


def _slow(one: MachineEvidence, topology: Topology) -> Hypothesis:
    alone = Factor("nothing else speaks against it", HARDWARE_ALONE_SLOW)
    factors = (alone, Factor(one.reason.text, one.slow_factor), *_passed(one.weight))
    return Hypothesis(Kind.SLOW, factors, _on(one, topology), (one.machine,), (one.reason,))


def _elsewhere(hypothesis: Hypothesis, waiting: Collection[str]) -> Hypothesis:
    """The hypothesis, less likely where it is about machines whose ranks all wait for a rank elsewhere."""
    if not hypothesis.units or not all(unit in waiting for unit in hypothesis.units):
        return hypothesis
    why = "no rank of the job runs there, or each was seen, and none is whom that happened to"
    return hypothesis.moved(Factor(why, REPORTED_WHERE_RANKS_WAIT))


def _passed(left: float) -> tuple[Factor, ...]:
    return (Factor("it had passed long before the job stood still", left),) if left < 1 else ()


def _together(convicted: Sequence[MachineEvidence], topology: Topology) -> list[Hypothesis]:
    """Machines that each have evidence of their own: that all are broken is likelier than that only one is."""
    if len(convicted) < 2:
        return []
    strongest = max(convicted, key=lambda one: one.factor)
    factors = (*_machine(strongest, topology).factors, Factor("each is convicted by itself", CONVICTED_TOGETHER))
    ranks = tuple(sorted({rank for one in convicted for rank in _on(one, topology)}))
    units = tuple(one.machine for one in convicted)
    return [Hypothesis(Kind.MACHINE, factors, ranks, units, tuple(one.reason for one in convicted))]


def _on(one: MachineEvidence, topology: Topology) -> tuple[Rank, ...]:
    """The ranks of a machine that its findings name, else all; a rank of another machine does not count."""
    ranks = {finding.rank for finding in one.findings if finding.rank is not None}
    named = tuple(sorted(rank for rank in ranks if topology.machine(rank) in (one.machine, None)))
    return named or tuple(topology.machines.get(one.machine, ()))


def _logged(findings: Sequence[Finding], topology: Topology) -> list[Hypothesis]:
    """One hypothesis for each kind and place: the weightiest finding states it, and repeats do not multiply."""
    groups: dict[tuple[Kind, tuple[str, ...]], list[Finding]] = {}
    for finding in findings:
        kind = _explained_by(finding)
        if kind is not None and finding.code not in REFUSED:
            units = () if finding.code in OF_THE_LAUNCH else _units(finding, topology)
            groups.setdefault((kind, tuple(sorted(units)) if kind is Kind.GROUP else units), []).append(finding)
    found = []
    for (kind, units), stated in groups.items():
        lead = max(stated, key=weight)
        ranks = lead.ranks or ((lead.rank,) if lead.rank is not None else ())
        ranks = (
            ()
            if lead.code in OF_THE_LAUNCH
            else ranks or tuple(rank for unit in units for rank in topology.machines.get(unit, ()))
        )
        because = tuple(dict.fromkeys(_reason(finding, units) for finding in stated[:3]))
        hold = GroupWait(PATH, ranks, (), lead.what) if kind is Kind.GROUP and len(ranks) > 1 else None
        alone = {_DOWN: LINK_DOWN_ALONE, _CAME_BACK: LINK_CAME_BACK}.get(lead.code, LOGGED_ALONE[kind])
        factors = (*odds(f"{lead.source}: {lead.code} {lead.impact}", alone), *_passed(weight(lead)))
        found.append(Hypothesis(kind, factors, ranks, units, because, hold))
    return found


def _explained_by(finding: Finding) -> Kind | None:
    """What a finding explains by itself; None for one that only speaks for or against a machine."""
    if finding.code == _DOWN and finding.impact is Impact.SUSPECTS:
        return Kind.GROUP
    return ALONE.get(finding.impact)


def _units(finding: Finding, topology: Topology) -> tuple[str, ...]:
    """Where it is: by the ranks that the finding names, else by its own rank or machine."""
    ranks = finding.ranks or ((finding.rank,) if finding.rank is not None else ())
    if ranks:
        return tuple(dict.fromkeys(topology.machine(rank) or f"rank {rank}" for rank in ranks))
    known = tuple(peer for peer in finding.peers if peer in topology.machines)
    # a path has two ends: whose address the other one has nothing may tell
    ends = (finding.machine, *(known or (finding.peers[:1] if finding.impact is Impact.PATH else ())))
    return tuple(end for end in dict.fromkeys(ends) if end)


def _reason(finding: Finding, units: Sequence[str]) -> VerdictReason:
    often = f" ({finding.times} times)" if finding.times > 1 else ""
    whose = f"rank {finding.rank}" if finding.rank is not None else finding.machine or (units[0] if units else "")
    return reason_of(
        finding, f"{finding.source}{' of ' + whose if whose else ''}: {finding.code}: {finding.what}{often}"
    )
