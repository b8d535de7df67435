"""Explanations that logs and hardware give by themselves: a broken device, a program's own error, a path, a service."""

from collections.abc import Mapping, Sequence

from hangdog_models.diagnosis.hypothesis import Factor, Hypothesis, odds
from hangdog_models.diagnosis.waits import Hold
from hangdog_models.findings import Bearing, Finding
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind

#: Odds of an explanation that evidence of this bearing gives alone, on the scale of odds.py. A verdict of hardware is one:
#: the driver's own catalogue says drain or reset. A program that names its own error is believed as much.
ALONE: Mapping[Bearing, float] = {
    Bearing.CONVICTS: 200.0,
    Bearing.RESET: 100.0,
    Bearing.SUSPECTS: 1.0,
    Bearing.SLOWS: 30.0,
    Bearing.PATH: 12.0,
    Bearing.PROGRAM: 60.0,
    Bearing.SERVICE: 12.0,
}
#: Odds that all of several convicted machines are broken, over one of them alone.
TOGETHER = 50.0
_KIND = {
    Bearing.CONVICTS: Kind.MACHINE,
    Bearing.RESET: Kind.MACHINE,
    Bearing.SUSPECTS: Kind.MACHINE,
    Bearing.SLOWS: Kind.SLOW,
    Bearing.PATH: Kind.GROUP,
    Bearing.PROGRAM: Kind.SOFTWARE,
    Bearing.SERVICE: Kind.DEPENDENCY,
}


def blame_reported(findings: Sequence[Finding], topology: Topology) -> list[Hypothesis]:
    """One explanation for each machine and kind: the strongest finding counts, repeats do not multiply it."""
    best: dict[tuple[Kind, str], list[Finding]] = {}
    for finding in findings:
        if finding.bearing in _KIND:
            best.setdefault((_KIND[finding.bearing], _unit(finding, topology)), []).append(finding)
    found = []
    for (kind, unit), said in best.items():
        said.sort(key=lambda finding: -ALONE[finding.bearing])
        lead = said[0]
        ranks = _ranks(lead, unit, topology)
        because = tuple(dict.fromkeys(_sentence(finding, unit) for finding in said[:3]))
        units = (unit,) if unit else tuple(dict.fromkeys(topology.machine(r) or f"rank {r}" for r in ranks))
        hold = Hold("path", ranks, (), lead.what) if kind is Kind.GROUP and len(ranks) > 1 else None
        found.append(
            Hypothesis(
                kind,
                odds(f"{lead.source}: {lead.code} {lead.bearing}", ALONE[lead.bearing]),
                ranks,
                units,
                because,
                hold,
            )
        )
    return [*found, *_together([one for one in found if one.kind is Kind.MACHINE and one.odds >= ALONE[Bearing.RESET]])]


def _together(convicted: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Each convicted by evidence of its own: that all of them are broken is likelier than that only one is."""
    if len(convicted) < 2:
        return []
    units = tuple(dict.fromkeys(unit for one in convicted for unit in one.units))
    because = tuple(line for one in convicted for line in one.because[:1])
    ranks = tuple(rank for one in convicted for rank in one.ranks)
    strongest = max(convicted, key=lambda one: one.odds)
    return [
        Hypothesis(
            Kind.MACHINE, (*strongest.factors, Factor("each convicted by itself", TOGETHER)), ranks, units, because
        )
    ]


def _unit(finding: Finding, topology: Topology) -> str:
    if finding.ranks and finding.bearing is Bearing.PROGRAM:
        return ""  # it names the odd ranks itself, which may be elsewhere
    if finding.machine:
        return finding.machine
    if finding.rank is not None:
        return topology.machine(finding.rank) or f"rank {finding.rank}"
    return ""


def _ranks(finding: Finding, unit: str, topology: Topology) -> tuple[Rank, ...]:
    if finding.ranks:
        return finding.ranks
    if finding.rank is not None:
        return (finding.rank,)
    return tuple(topology.machines.get(unit, ()))


def _sentence(finding: Finding, unit: str) -> str:
    where = f"{unit}" + (f", {finding.device}" if finding.device else "") if unit else finding.source
    often = f" ({finding.times} times)" if finding.times > 1 else ""
    return f"{where}: {finding.code}: {finding.what}{often}"
