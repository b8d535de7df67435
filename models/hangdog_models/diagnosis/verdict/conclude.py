"""From weighed hypotheses to the verdict that is printed: its kind, its suspects, whom to evict and what to collect next."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor

from hangdog_models.diagnosis.findings.failing_paths import PATH
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis
from hangdog_models.diagnosis.hypotheses.stuck_groups import SEVERAL
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.diagnosis.verdict import eviction, log_summary, moving_jobs, who_and_why
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.who_and_why import DECIDES, WORTH_NAMING
from hangdog_models.diagnosis.verdict.write_verdict import written
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.rules.ruleset import Wait
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Missing, Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import (
    Activity,
    Eviction,
    Kind,
    Suspect,
    Verdict,
)

SHARPNESS = likelihood("sharpness")
WORTH_NAMING_FIRST = likelihood("worth_naming_first")
SLOW_DECIDES = likelihood("slow_decides")
ABSENT_SHARE = likelihood("absent_share")
#: A common cause on many machines lists the first of them only: naming everybody is no answer.
NAMED_AT_MOST = 16
#: So many looks at least before stacks call a rank slow: ByteRobust (SOSP 2025) takes five; in fewer it may be chance.
SLOW_LOOKS = 5
#: Contradictions between stacks and counters that a verdict tells: the first ones show what is wrong with the evidence.
CONTRADICTIONS_SHOWN = 3
#: So many machines of a group at most are evicted on one look, where no watchdog waited: a pair is the least that a link
#: takes, and of more it is cheaper to look again, a few seconds later.
ONE_LOOK_MOST = 2
#: What is said of a group that is sure enough and holds too many machines.
TOO_WIDE = "that is too wide to evict: test its machines pairwise (bisection) to narrow it first"
#: What is said of a path of which one end is known, and either may be at fault.
ONE_END = "nobody is evicted: that is one end of a path, and either end may be at fault; test it with its peers"
#: What is said of paths of which nothing tells the end that fails.
MANY_ENDS = (
    "nobody is evicted: most of these machines are sound; look at the switches between them, or test them in pairs"
)
#: What is said of a machine that only others name.
HEARSAY = (
    "nobody is evicted: others name it, and nothing of its own does; read its own log and its kernel's, or test it"
)
#: What is said of a group of which nothing tells the machines.
NO_MACHINE = "nothing tells which machine it is: test them pairwise (bisection) to find it"


def with_absent(look: Look, topology: Topology, snapshot: Snapshot) -> Look:
    """The look with the few ranks added that left no evidence at all: others may be waiting for just these.

    Where RAS counted everybody, who is not in the look is merely not captured.
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
    best = max(share, key=lambda kind: (share[kind], kind))
    kind = best if share[best] > DECIDES else Kind.UNDETERMINED
    if kind is Kind.SLOW and share[kind] < SLOW_DECIDES and 0 < len(case.looks) < SLOW_LOOKS:
        kind = Kind.UNDETERMINED  # late once is late by chance
    suspects = _suspects(case, weighed, kind)
    if kind is Kind.MACHINE and not (suspects and suspects[0].probability > DECIDES):
        kind = Kind.UNDETERMINED  # some machine, but no one of them more likely than not
        suspects = _suspects(case, weighed, kind)
    evict = _evict(case, weighed, kind, suspects)
    because = _because(case, weighed, kind, evict, suspects)
    # of an open case, what the best explanation reached: it was not enough
    confidence = (
        share[kind] if kind is not Kind.UNDETERMINED else max([0.0, *(s for k, s in share.items() if k is not kind)])
    )
    causes, culprit = who_and_why.causes(weighed), who_and_why.culprit(weighed, case.topology)
    return written(case, kind, min(1.0, confidence), because, suspects, evict, causes, culprit)


def probabilities(hypotheses: Sequence[Hypothesis]) -> list[tuple[Hypothesis, float]]:
    """The share of each explanation in all of them, sharpened as the benchmark of known incidents asks for."""
    powers = [hypothesis.odds**SHARPNESS for hypothesis in hypotheses]
    total = sum(powers)
    return [(hypothesis, power / total) for hypothesis, power in zip(hypotheses, powers, strict=True)]


def _suspects(case: Case, weighed: Sequence[tuple[Hypothesis, float]], kind: Kind) -> tuple[Suspect, ...]:
    """One entry for each machine (or group) that hypotheses of the verdict's kind name; of any kind when undetermined."""
    entries: dict[tuple[str, ...] | tuple[Rank, ...], list[tuple[Hypothesis, float]]] = {}
    for hypothesis, p in weighed:
        if hypothesis.kind is not kind and kind is not Kind.UNDETERMINED:
            continue
        together = hypothesis.hold is not None and hypothesis.hold.dim == PATH
        for unit in hypothesis.units[:NAMED_AT_MOST] if p >= WORTH_NAMING_FIRST and not together else ():
            entries.setdefault((unit,), []).append((hypothesis, p))
        if hypothesis.hold is not None:
            entries.setdefault(hypothesis.ranks, []).append((hypothesis, p))
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
    """Whether a unit is a machine that only its name in a log tells of, and no rank without a machine."""
    return unit in hypothesis.units and not hypothesis.ranks


def _evict(
    case: Case, weighed: Sequence[tuple[Hypothesis, float]], kind: Kind, suspects: Sequence[Suspect]
) -> Eviction:
    if kind is Kind.MACHINE:
        return eviction.smallest(_blamed(case, weighed), case.options)
    lead = _lead(weighed, kind)
    if lead is not None and lead.dim == SEVERAL:
        return Eviction()  # they have nothing in common: whatever it is, most of these machines are sound
    if lead is not None and (_one_end(lead, suspects) or _many_ends(lead, suspects)):
        return Eviction()
    if lead is not None and _too_soon(case, lead, suspects):
        return Eviction()
    if kind is Kind.GROUP and suspects and 2 * len(suspects[0].machines) <= len(case.topology.machines):
        return eviction.smallest({frozenset(s.machines): s.probability for s in suspects if s.machines}, case.options)
    return Eviction()


def _lead(weighed: Sequence[tuple[Hypothesis, float]], kind: Kind) -> GroupWait | None:
    """The likeliest group, of those that explanations of a kind name."""
    holds = [(p, hypothesis.hold) for hypothesis, p in weighed if hypothesis.kind is kind and hypothesis.hold]
    return max(holds, key=lambda one: one[0])[1] if holds else None


def _one_end(hold: GroupWait, suspects: Sequence[Suspect]) -> bool:
    """Whether what is known of a path is one of its ends: who tells of it is the one that suffers."""
    return hold.dim == PATH and bool(suspects) and len(suspects[0].machines) < 2


def _many_ends(hold: GroupWait, suspects: Sequence[Suspect]) -> bool:
    """Whether paths fail that have no end in common: most of these machines are sound."""
    return hold.dim == PATH and bool(suspects) and len(suspects[0].machines) > ONE_LOOK_MOST


def _too_soon(case: Case, hold: GroupWait, suspects: Sequence[Suspect]) -> bool:
    """Whether a group is too wide for the one look there is."""
    wide = bool(suspects) and len(suspects[0].machines) > ONE_LOOK_MOST
    return wide and case.motion.rounds < 2 and not hold.lasting


def _blamed(case: Case, weighed: Sequence[tuple[Hypothesis, float]]) -> Mapping[frozenset[str], float]:
    """How probable each set of machines is to hold all that is broken."""
    explanations: dict[frozenset[str], float] = {}
    for hypothesis, p in weighed:
        units = frozenset(hypothesis.units)
        if hypothesis.kind is Kind.MACHINE and not hypothesis.hearsay and units <= set(case.topology.machines):
            explanations[units] = explanations.get(units, 0.0) + p
    return explanations


def _because(
    case: Case, weighed: Sequence[tuple[Hypothesis, float]], kind: Kind, evict: Eviction, suspects: Sequence[Suspect]
) -> tuple[str, ...]:
    leads = [(h, p) for h, p in weighed if h.kind is kind]
    lines: list[str] = []
    if kind is Kind.UNDETERMINED:
        first, likely = max(weighed, key=lambda entry: entry[1])
        if not any(state.frames for state in case.look.values()) and not case.snapshot.ras:
            # Without any stack the number of them is no answer: what the logs tell is.
            tells = suspects and suspects[0].probability >= eviction.WORTH_EVICTING
            open_case = "the evidence does not decide; most suspicious: "
            lines.append(
                open_case + suspects[0].because[0] if tells else log_summary.lead(case.snapshot, case.topology)
            )
            return (*lines, *_collect_next(case))
        if first.reasons and not first.units and not first.hold and likely > DECIDES / 2:
            lines.append("the evidence does not decide; likeliest: " + first.reasons[0])
        elif suspects:
            lines.append("the evidence does not decide; most suspicious: " + suspects[0].because[0])
        else:
            lines.append("no rank stands out: all that were seen wait for others")
        lines += [line for h, p in leads for line in h.reasons]
        return (*lines, *_collect_next(case))
    if leads:
        lines += max(leads, key=lambda entry: entry[1])[0].reasons
    lines += [one.message for one in case.contradictions[:CONTRADICTIONS_SHOWN]]
    if kind in (Kind.MACHINE, Kind.GROUP) and not evict.machines:
        lines += _kept(case, weighed, kind, suspects)
    if kind is Kind.SOFTWARE:
        lines.append("a restart on the same machines would hang again: evict nobody, look at the code at these frames")
    return tuple(lines)


def _kept(
    case: Case, weighed: Sequence[tuple[Hypothesis, float]], kind: Kind, suspects: Sequence[Suspect]
) -> list[str]:
    """Why nobody is evicted, and what would change that."""
    first = suspects[0] if suspects else None
    unsure = first is None or first.probability < case.options.coverage_target
    if first is not None and not first.machines:  # as certain as the culprit may be
        unplaced = [s for s in suspects if s is first or (s.probability > DECIDES and not s.machines)]
        whose = ranks_of(sorted({rank for suspect in unplaced for rank in suspect.ranks}))
        tells = f"no evidence tells the machine of {whose}; gpus_per_node or [machines] in job.toml does"
        return [f"nobody is evicted: {tells}", *(_collect_next(case) if unsure else ())]
    if first is not None and kind is Kind.MACHINE and not set(first.machines) & set(case.topology.machines):
        return [
            f"nobody is evicted: nothing tells that {first.machines[0]} is a machine of the job; [machines] in job.toml does"
        ]
    best = first.probability if first is not None else 0.0
    if first is not None and kind is Kind.MACHINE:
        blamed = _blamed(case, weighed)
        wide = eviction.smallest(blamed, replace(case.options, budget_machines=len(case.topology.machines)))
        if wide.machines:
            takes, budget = len(wide.machines), case.options.budget_machines
            return [f"nobody is evicted: it takes {takes} machines, and the budget of one eviction is {budget}"]
        if not unsure:  # it is broken, but others may be, too
            best = blamed.get(frozenset(first.machines), 0.0)
    if first is not None and kind is Kind.MACHINE and _only_named(weighed, first):
        return [HEARSAY]
    lead = _lead(weighed, kind)
    if lead is not None and _one_end(lead, suspects) and not unsure:
        return [ONE_END]
    if lead is not None and _many_ends(lead, suspects):
        return [MANY_ENDS]
    narrow = first is not None and 2 * len(first.machines) <= len(case.topology.machines)
    if kind is Kind.MACHINE or (narrow and unsure):
        return [_lacking(case, best), *_collect_next(case)]
    if first is None:
        return [NO_MACHINE]
    return [TOO_WIDE, *(_collect_next(case) if narrow and case.motion.rounds < 2 else ())]


def _only_named(weighed: Sequence[tuple[Hypothesis, float]], suspect: Suspect) -> bool:
    """Whether what speaks against a suspect is mostly what others say of it."""
    machines = set(suspect.machines)
    against = [(h, p) for h, p in weighed if h.kind is Kind.MACHINE and machines and machines <= set(h.units)]
    return bool(against) and max(against, key=lambda entry: entry[1])[0].hearsay


def _lacking(case: Case, probability: float) -> str:
    """What an eviction lacks."""
    best = 100 * probability
    target = 100 * case.options.coverage_target
    # 94.96 is below 95, and must read as if it were
    stated = best if round(best, 1) < target else floor(10 * best) / 10
    return f"nobody is evicted: {stated:.1f}% is less than the {target:g}% that an eviction takes"


def _collect_next(case: Case) -> list[str]:
    """What would decide, in the order of what it costs."""
    steps = []
    absent = [
        Rank(rank)
        for rank in range(case.topology.world_size)
        if rank not in case.look or not case.look[Rank(rank)].frames
    ]
    if case.motion.rounds < 2:
        steps.append(
            "collect next: a second look a few seconds later, to see what does not move (in a bundle: round-0/, round-1/)"
        )
    if absent:
        steps.append(f"collect next: stacks of {ranks_of(absent)}")
    if not case.snapshot.counters:
        steps.append("collect next: flight recorder dumps or NCCL RAS, which count who entered which collective")
    return steps
