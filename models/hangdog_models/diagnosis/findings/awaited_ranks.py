"""Ranks that logs await by name: a rank that waits in vain is a victim, and the one that all await is named."""

from collections.abc import Sequence

from hangdog_models.counts import counted
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import by_cause, likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, VerdictReason

#: Odds of each cause of a rank that logs await by name, where there are no stacks.
AWAITED_BY_NAME = by_cause("awaited_by_name")
_KINDS = {"machine": Kind.MACHINE, "software": Kind.SOFTWARE}
AWAITED_AT_A_BARRIER = by_cause("awaited_at_a_barrier")
AWAITED_AT_MOST = likelihood("awaited_at_most")
#: Codes of reports by a coordinator or an analysis: the process that prints them need not wait, and may be one it names.
_OVERSEEN = frozenset({"stall inspector", "flight recorder analysis", "JAX coordination"})
#: Codes that say that a rank did not come, and nothing of why: it may be busy, ended, or on a machine that is gone.
CAUSE_OPEN = frozenset({"monitored barrier", "XLA rendezvous", *_OVERSEEN})


def explain(findings: Sequence[Finding], topology: Topology) -> list[Hypothesis]:
    """The ranks that are awaited by name and do not themselves wait in vain for others, with their causes."""
    reports = [finding for finding in findings if finding.impact is Impact.VICTIM and finding.ranks]
    waiting = {
        finding.rank
        for finding in findings
        if finding.impact is Impact.VICTIM and finding.rank is not None and finding.code not in _OVERSEEN
    }
    awaited: dict[Rank, list[Finding]] = {}
    for finding in reports:
        for rank in finding.ranks:
            if (rank != finding.rank or finding.code in _OVERSEEN) and rank not in waiting:
                awaited.setdefault(rank, []).append(finding)
    if not awaited or len(awaited) > max(1, AWAITED_AT_MOST * _ranks_of_job(findings, topology)):
        return []
    reporters = {rank: {finding.rank for finding in one} for rank, one in awaited.items()}
    most = max(map(len, reporters.values()))
    named = [rank for rank in sorted(awaited) if len(reporters[rank]) == most]
    lead = awaited[named[0]][0]
    by = {finding.rank for finding in awaited[named[0]] if finding.rank is not None}
    who = ranks_of(sorted(by)) if 0 < len(by) <= 4 else counted(len(by), "rank") if by else "the logs"
    text = lead.what if lead.code in lead.what else f"{lead.code}: {lead.what}"
    reason = VerdictReason("awaited-in-vain", f"{who} waited in vain for {ranks_of(named)}: {text}")
    units = tuple(dict.fromkeys(topology.machine(rank) or f"rank {rank}" for rank in named))
    causes = AWAITED_AT_A_BARRIER if lead.code in CAUSE_OPEN else AWAITED_BY_NAME
    why = f"the logs await {ranks_of(named)} by name"
    return [
        Hypothesis(_KINDS[cause], (Factor(why, odds),), tuple(named), units, (reason,), hearsay=True)
        for cause, odds in causes.items()
    ]


def _ranks_of_job(findings: Sequence[Finding], topology: Topology) -> int:
    """How many ranks the job has; where nothing tells, as many as its logs name at the least."""
    named = [rank for finding in findings for rank in finding.ranks]
    spoke = [finding.rank for finding in findings if finding.rank is not None]
    return topology.world_size or 1 + max((*named, *spoke), default=-1)
