"""Builds the verdict from the conclusion, with the clusters, groups and coverage that it rests on."""

from collections.abc import Mapping, Sequence

from hangdog_models.diagnosis.clustering.cluster_views import views
from hangdog_models.diagnosis.findings import first_exits, hardware, machine_check, wrong_numbers
from hangdog_models.diagnosis.findings.failing_paths import PATH
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.next_steps import after_check, after_numbers, compared, next_steps
from hangdog_models.ranks import Rank
from hangdog_models.stack import TRAINER
from hangdog_models.verdict import (
    Coverage,
    Culprit,
    Eviction,
    EvidenceReport,
    Kind,
    StallCause,
    Step,
    StuckGroup,
    Suspect,
    Verdict,
    VerdictReason,
)

#: Groups that a verdict shows; in a wide job thousands wait for one rank.
GROUPS_SHOWN = 8


def written(
    case: Case,
    kind: Kind,
    confidence: float,
    because: tuple[VerdictReason, ...],
    suspects: tuple[Suspect, ...],
    evict: Eviction,
    causes: Mapping[StallCause, float],
    culprit: Culprit | None,
    steps: tuple[Step, ...] = (),
) -> Verdict:
    """The full verdict: the arguments are the conclusion, the rest is taken from the case.

    `steps`: what was compared, if that is known already.
    """
    steps = steps or compared(case, kind, confidence, evict, suspects, culprit, causes, because)
    account, check = case.snapshot.account, machine_check.check_of(case.snapshot)
    numbers = wrong_numbers.summary(case.snapshot)
    against = hardware.kinds(case.snapshot.findings, case.topology) if culprit is not None else {}
    return Verdict(
        job_id=case.snapshot.job.id,
        world_size=case.topology.world_size,
        kind=kind,
        confidence=confidence,
        because=because,
        suspects=suspects,
        evict=evict,
        groups=() if kind is Kind.NONE else _groups(case, suspects),
        clusters=views(case.clusters),
        coverage=_coverage(case),
        evidence=EvidenceReport(account.files_read, account.ignored, account.unreadable, account.notes),
        rules=case.rules,
        culprit=culprit,
        causes=causes,
        next=after_check(check, evict, steps, runs=case.topology.world_size > 0)
        if check is not None
        else after_numbers(suspects, evict, steps)
        if numbers is not None or (kind is Kind.UNDETERMINED and wrong_numbers.crash_reports(case.snapshot))
        else next_steps(case, kind, evict, steps),
        compared=steps,
        crash=first_exits.crash_of(case.snapshot, case.topology),
        check=check,
        numbers=numbers,
        signs=tuple(
            sorted({code for machine in (culprit.machines if culprit else ()) for code in against.get(machine, ())})
        ),
    )


def _groups(case: Case, suspects: Sequence[Suspect]) -> tuple[StuckGroup, ...]:
    """The groups that wait for the first suspect, then those in which all ranks joined."""
    found: dict[tuple[str, tuple[Rank, ...]], str] = {}
    for rank in suspects[0].ranks if suspects else ():
        for hold in case.waits.holds_for(rank):
            members = tuple(sorted({*hold.inside, *hold.awaited}))
            lacking = ranks_of(hold.awaited)
            found.setdefault((str(hold.dim), members), f"in {hold.what}, waits for {lacking}")
    named = {suspect.ranks for suspect in suspects}
    for hypothesis in case.hypotheses:
        path = hypothesis.hold
        if path is not None and path.dim == PATH and path.inside in named:
            found.setdefault((PATH, path.inside), path.what)
    for hold in case.waits.holds:
        if hold.joined and hold.inside in named:
            found.setdefault((str(hold.dim), hold.inside), f"stuck together in {hold.what}")
    return tuple(StuckGroup(dim, ranks, why) for (dim, ranks), why in list(found.items())[:GROUPS_SHOWN])


def _coverage(case: Case) -> Coverage:
    seen = {rank for look in case.looks for rank, state in look.items() if state.frames}
    seen |= {record.rank for record in case.snapshot.counters} | {ring.rank for ring in case.snapshot.progress}
    failed: dict[str, str] = {}
    for round_ in case.snapshot.rounds:
        lacking = [trace for trace in round_.traces if trace.missing]
        for trace in sorted(lacking, key=lambda trace: (trace.rank, trace.role)):
            name = str(trace.rank) if trace.role == TRAINER else f"{trace.rank}.{trace.role}"
            failed[name] = str(trace.missing)
    world = range(case.topology.world_size)
    missing = tuple(Rank(rank) for rank in world if rank not in seen)
    return Coverage(len(world), len(world) - len(missing), missing, failed)
