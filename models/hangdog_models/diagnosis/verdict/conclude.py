"""From weighed hypotheses to the verdict that is printed: its kind, its suspects, what to evict and why."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

from hangdog_models.diagnosis.findings.failing_paths import PATH
from hangdog_models.diagnosis.hypotheses.hypothesis import SHARPNESS, Hypothesis
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.prices import IsolationPolicy
from hangdog_models.diagnosis.verdict import isolation, moving_jobs, who_and_why, whole_group
from hangdog_models.diagnosis.verdict.because import because
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.next_steps import compared
from hangdog_models.diagnosis.verdict.who_and_why import DECIDES, WORTH_NAMING
from hangdog_models.diagnosis.verdict.write_verdict import written
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.rules.ruleset import Wait
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Missing, Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import (
    Act,
    Activity,
    Culprit,
    Eviction,
    Kind,
    StallCause,
    Step,
    Suspect,
    Verdict,
    VerdictReason,
)

WORTH_NAMING_FIRST = likelihood("worth_naming_first")
ABSENT_SHARE = likelihood("absent_share")
#: If another step is cheaper than an eviction that is sure enough.
DEARER = VerdictReason(
    "kept-dearer", "nobody is evicted yet: the first step below costs less (`--explain` shows the costs)"
)
#: If a group is isolated as a whole.
WHOLE_GROUP = VerdictReason(
    "whole-group-isolated",
    "a whole group is isolated: fewer machines are not sure enough, and waiting for evidence costs more (policy rapid)",
)
#: A common cause on many machines lists only the first of them.
NAMED_AT_MOST = 16


#: A machine, or the ranks of a group.
_Key: TypeAlias = tuple[str, ...] | tuple[Rank, ...]


def with_absent(look: Look, topology: Topology, snapshot: Snapshot) -> Look:
    """The round, with the few ranks added that left no evidence at all: others may be waiting for just these.

    If RAS counted all ranks, the others are merely not captured.
    """
    if snapshot.ras:
        return look
    absent = [Rank(rank) for rank in range(topology.world_size) if rank not in look]
    if not look or not absent or len(absent) > ABSENT_SHARE * topology.world_size:
        return look
    gone = Missing(Reason.NO_EVIDENCE, "")
    return {**look, **dict.fromkeys(absent, RankState(Activity.MISSING, Wait.NONE, rule="absent", missing=gone))}


def conclude(case: Case) -> Verdict:
    """Weighs the hypotheses against each other and writes the verdict."""
    sound = moving_jobs.judge(case)
    if sound is not None:
        return sound
    weighed = probabilities(case.hypotheses)
    share = {kind: sum(p for hypothesis, p in weighed if hypothesis.kind is kind) for kind in Kind}
    causes, culprit = who_and_why.causes(weighed), who_and_why.culprit(weighed, case.topology)
    best = max((kind for kind in Kind if kind is not Kind.UNDETERMINED), key=lambda kind: (share[kind], kind))
    # the culprit may be known and the cause open: then the likeliest cause is shown
    known = culprit is not None and culprit.probability >= DECIDES and _tells_why(causes)
    kind = best if share[best] >= DECIDES or known else Kind.UNDETERMINED
    # a cause behind most of the job blames no machine; it is left out if a culprit is known
    blaming = [(one, p) for one, p in weighed if culprit is None or not who_and_why.names_most(one, case.topology)]
    suspects = _suspects(case, blaming, kind)
    confidence = min(1.0, share[best])  # for an open case, what the best hypothesis reached
    evict, reasons, steps = _isolated(case, weighed, kind, confidence, suspects, culprit, causes)
    return written(case, kind, confidence, reasons, suspects, evict, causes, culprit, steps)


def _isolated(
    case: Case,
    weighed: Sequence[tuple[Hypothesis, float]],
    kind: Kind,
    confidence: float,
    suspects: Sequence[Suspect],
    culprit: Culprit | None,
    causes: Mapping[StallCause, float],
) -> tuple[Eviction, tuple[VerdictReason, ...], tuple[Step, ...]]:
    """The machines to isolate, the verdict's reasons, and the steps compared.

    The posterior decides which machines may be isolated. The costs decide whether that is the best step.
    """
    evict, act = isolation.decide(case, weighed, kind, suspects), Act.EVICT
    reasons = because(case, weighed, kind, evict, suspects)
    rivals: tuple[VerdictReason, ...] = ()
    if not evict.machines and case.options.policy is IsolationPolicy.RAPID and kind in (Kind.MACHINE, Kind.GROUP):
        evict, act, rivals = whole_group.around(case, weighed, suspects), Act.ISOLATE_GROUP, reasons
    if not evict.machines:
        return evict, reasons, ()
    steps = compared(case, kind, confidence, evict, suspects, culprit, causes, rivals, act)
    if steps[0].do is not act:
        return Eviction(), reasons if act is Act.ISOLATE_GROUP else (*reasons, DEARER), steps
    if act is Act.ISOLATE_GROUP:
        reasons = (*because(case, weighed, kind, evict, suspects), WHOLE_GROUP)
    return evict, reasons, steps


def _tells_why(causes: Mapping[StallCause, float]) -> bool:
    """Whether a known cause is likelier than an unknown one."""
    known = (p for cause, p in causes.items() if cause is not StallCause.UNKNOWN)
    return max(known, default=0.0) > causes.get(StallCause.UNKNOWN, 0.0)


def probabilities(hypotheses: Sequence[Hypothesis]) -> list[tuple[Hypothesis, float]]:
    """The share of each hypothesis in the sum of all, sharpened as the benchmark of known incidents requires."""
    powers = [hypothesis.odds**SHARPNESS * prod(hypothesis.shares) for hypothesis in hypotheses]
    total = sum(powers)
    return [(hypothesis, power / total) for hypothesis, power in zip(hypotheses, powers, strict=True)]


def _suspects(case: Case, weighed: Sequence[tuple[Hypothesis, float]], kind: Kind) -> tuple[Suspect, ...]:
    """One entry for each machine (or group) that hypotheses of the verdict's kind name.

    If the verdict is undetermined, each entry is of the likeliest kind that blames it.
    """
    causes: dict[_Key, dict[Kind, list[tuple[Hypothesis, float]]]] = {}
    for hypothesis, p in weighed:
        # a healthy phase accuses no machine; its rank is the culprit
        if hypothesis.kind in (Kind.UNDETERMINED, Kind.NONE) or kind not in (hypothesis.kind, Kind.UNDETERMINED):
            continue
        together = hypothesis.hold is not None and hypothesis.hold.dim == PATH
        keys: list[_Key] = [hypothesis.ranks] if hypothesis.hold is not None else []
        units = hypothesis.units[:NAMED_AT_MOST] if p >= WORTH_NAMING_FIRST and not together else ()
        # a path whose ranks are unknown is one suspect with two ends
        keys += [units] if units and hypothesis.kind is Kind.GROUP and not keys else [(unit,) for unit in units]
        for key in keys:
            causes.setdefault(key, {}).setdefault(hypothesis.kind, []).append((hypothesis, p))
    entries = {
        key: max(found.values(), key=lambda members: (sum(p for _, p in members), members[0][0].kind))
        for key, found in causes.items()
    }
    on: dict[str, list[Rank]] = {}
    for rank in dict.fromkeys(rank for hypothesis, _ in weighed if hypothesis.units for rank in hypothesis.ranks):
        on.setdefault(case.topology.machine(rank) or f"rank {rank}", []).append(rank)
    most = max(entries, key=lambda key: sum(p for _, p in entries[key]), default=None)
    suspects = []
    for key, members in entries.items():
        probability = min(1.0, sum(p for _, p in members))
        lead = max(members, key=lambda entry: (len(entry[0].units) == 1, entry[1]))[0]
        blamed = set(lead.ranks)
        ranks = lead.ranks if lead.hold else tuple(rank for rank in on.get(str(key[0]), ()) if rank in blamed)
        if probability >= WORTH_NAMING or (key == most and probability >= WORTH_NAMING_FIRST):
            machines = case.topology.machines_of(ranks) or tuple(str(unit) for unit in key if _is_host(unit, lead))
            suspects.append(Suspect(ranks, machines, probability, lead.reasons))
    return tuple(sorted(suspects, key=lambda suspect: (-suspect.probability, suspect.ranks)))


def _is_host(unit: object, hypothesis: Hypothesis) -> bool:
    """Whether a unit is a machine that only its name in a log shows, and not a rank without a machine."""
    return unit in hypothesis.units and not hypothesis.ranks
