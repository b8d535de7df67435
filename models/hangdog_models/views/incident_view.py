"""Everything a page shows of a case beside its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.stack import TRAINER
from hangdog_models.verdict import Verdict
from hangdog_models.views import (
    grid,
    group_progress,
    rounds_view,
    stack_tree,
    unique_stacks,
    waits_view,
)
from hangdog_models.views.pictures import waiting_funnel

#: Findings shown: those that speak against a machine first.
FINDINGS = 60
_IMPACTS = tuple(Impact)


@dataclass(frozen=True, slots=True)
class IncidentView:
    """The parts of the page. `pids` are those of the suspected ranks' trainers; `findings_in_all` counts the unshown, too."""

    grid: grid.Grid
    tree: tuple[stack_tree.Node, ...]
    kinds: unique_stacks.Kinds
    surroundings: tuple[waits_view.Surroundings, ...]
    funnel: waiting_funnel.Funnel
    progress: group_progress.JobProgress
    looks: tuple[rounds_view.LookView, ...]
    findings: tuple[Finding, ...]
    findings_in_all: int
    machines: Mapping[str, tuple[Rank, ...]]
    pids: Mapping[Rank, int]


def of(case: Case, verdict: Verdict) -> IncidentView:
    """What is shown of the case that was judged so."""
    snapshot, topology = case.snapshot, case.topology
    raw = unique_stacks.of(snapshot.rounds)
    suspected = {rank for suspect in verdict.suspects for rank in suspect.ranks}
    findings = sorted(snapshot.findings, key=lambda one: (_IMPACTS.index(one.impact), one.machine, one.code, one.what))
    return IncidentView(
        grid=grid.laid_out(topology, (cluster.ranks for cluster in verdict.clusters)),
        tree=stack_tree.merged(raw.trainers()),
        kinds=raw,
        surroundings=waits_view.around(case, verdict.suspects),
        funnel=waiting_funnel.funnel(case, verdict.suspects),
        progress=group_progress.of(case),
        looks=rounds_view.of(case.looks, snapshot.interval_s),
        findings=tuple(findings[:FINDINGS]),
        findings_in_all=len(findings),
        machines=topology.machines,
        pids={
            trace.rank: trace.pid
            for round_ in snapshot.rounds
            for trace in round_.traces
            if trace.rank in suspected and trace.role == TRAINER and trace.pid is not None
        },
    )
