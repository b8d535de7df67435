"""The reasons of a verdict: the evidence for it, why no machine is evicted, and what to collect next."""

from collections.abc import Sequence
from dataclasses import replace
from math import floor

from hangdog_models.diagnosis.findings import logged_ends, ras_reports, wrong_numbers
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis
from hangdog_models.diagnosis.observe.activity import CHILD, NO_RULE, RankState
from hangdog_models.diagnosis.observe.rank_state_reader import WORKERS
from hangdog_models.diagnosis.observe.silence import merely_failed
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.diagnosis.verdict import eviction, isolation, log_summary
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.next_steps import COLLECT
from hangdog_models.diagnosis.verdict.who_and_why import DECIDES
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Activity, Eviction, Kind, Suspect, VerdictReason

#: Contradictions between stacks and counters that a verdict shows: the first ones show what is wrong with the evidence.
CONTRADICTIONS_SHOWN = 3
#: For a group that is sure enough and holds too many machines.
TOO_WIDE = VerdictReason(
    "kept-too-wide", "that is too wide to evict: test its machines pairwise (bisection) to narrow it first"
)
#: For a group with more than half of the job's machines, so that too few are left to compare with.
MOST_OF_THE_JOB = VerdictReason(
    "kept-too-wide",
    "nobody is evicted: the group holds most of the job's machines; test them pairwise (bisection) to narrow it first",
)
#: For a group inside of the only machine there is.
ONE_MACHINE = VerdictReason(
    "kept-only-machine", "nobody is evicted: the job has no other machine; test the devices and links of this one"
)
#: For a path of which one end is known, and either may be at fault.
ONE_END = VerdictReason(
    "kept-ends-of-paths",
    "nobody is evicted: that is one end of a path, and either end may be at fault; test it with its peers",
)
#: For paths where nothing shows the end that fails.
MANY_ENDS = VerdictReason(
    "kept-ends-of-paths",
    "nobody is evicted: most of these machines are sound; look at the switches between them, or test them in pairs",
)
#: For a machine that only others name.
HEARSAY = VerdictReason("kept-hearsay", "nobody is evicted: others name it, and nothing of its own does")
#: For a group whose machines are unknown.
NO_MACHINE = VerdictReason(
    "kept-machine-unknown", "nothing tells which machine it is: test them pairwise (bisection) to find it"
)


def because(
    case: Case, weighed: Sequence[tuple[Hypothesis, float]], kind: Kind, evict: Eviction, suspects: Sequence[Suspect]
) -> tuple[VerdictReason, ...]:
    """Why the verdict is this one, weightiest reason first; each sentence once."""
    if case.snapshot.numbers and not evict.machines:
        return wrong_numbers.reasons(case.snapshot, case.topology)
    if kind is Kind.UNDETERMINED:
        return tuple(dict.fromkeys(_open(case, weighed, suspects)))
    leads = [(h, p) for h, p in weighed if h.kind is kind]
    # names of machines must not matter: among equals the one with the lowest rank counts
    lines = list(min(leads, key=lambda entry: (-round(entry[1], 9), entry[0].ranks))[0].reasons) if leads else []
    lines += [one.reason for one in case.contradictions[:CONTRADICTIONS_SHOWN]]
    if kind in (Kind.MACHINE, Kind.GROUP) and not evict.machines:
        lines += _kept(case, weighed, kind, suspects)
    elif sum(p for _, p in leads) < DECIDES:  # the culprit is known, the cause is not
        lines += _collect_next(case, suspects)
    elif kind is Kind.SLOW and suspects and case.motion.known:
        lines += [_after(COLLECT, step) for step in _native_of(case, suspects[0].ranks)]
    if case.snapshot.numbers:
        lines += wrong_numbers.shown(case.snapshot, case.topology)
    return tuple(dict.fromkeys(lines))


def _open(case: Case, weighed: Sequence[tuple[Hypothesis, float]], suspects: Sequence[Suspect]) -> list[VerdictReason]:
    """What leaves the case open, what was seen all the same, and what would decide it."""
    first, likely = max(weighed, key=lambda entry: entry[1])
    open_case, suspicious = "the evidence does not decide: ", "the evidence does not decide; most suspicious: "
    reasons = [line for h, _ in weighed if h.kind is Kind.UNDETERMINED for line in h.reasons]
    if not _seen(case) and not case.snapshot.ras:
        # Without any stack their number says nothing: what the logs report does.
        tells = suspects and suspects[0].probability >= eviction.WORTH_EVICTING
        named = _after(suspicious, suspects[0].because[0]) if tells else None
        lead = named or log_summary.lead(case.snapshot, case.topology)
        return [lead, *_collect_next(case, suspects)]
    by_ras = () if _seen(case) else ras_reports.reasons(case.snapshot, case.topology, case.look)
    if by_ras and not suspects:
        return [*by_ras, *reasons, *_collect_next(case, suspects)]
    if suspects and set(suspects[0].ranks) & set(_mute(case, suspects)):
        lead = _after(suspicious, suspects[0].because[0])
    elif first.reasons and _names_nobody(first) and likely > DECIDES / 2:
        lead = _after(open_case, first.reasons[0])
        reasons = [line for line in reasons if line != first.reasons[0]]
    elif suspects:
        lead = _after(suspicious, suspects[0].because[0])
    else:
        lead = _nobody(case)
    lines = suspects[0].because if suspects else ()
    return [lead, *by_ras, *(line for line in reasons if line not in lines), *_collect_next(case, suspects)]


def _after(words: str, reason: VerdictReason) -> VerdictReason:
    """The same reason, introduced by these words."""
    return replace(reason, text=words + reason.text)


def _names_nobody(explanation: Hypothesis) -> bool:
    """Whether it accuses no machine: for a phase that may be healthy, its ranks do not matter."""
    return explanation.kind is Kind.UNDETERMINED or not (explanation.units or explanation.hold)


def _seen(case: Case) -> bool:
    return any(state.frames for state in case.look.values())


def _nobody(case: Case) -> VerdictReason:
    """Why no rank stands out."""
    if case.topology.world_size == 1:
        return VerdictReason("nobody-stands-out", "the job has one rank, and where it waits does not say why")
    if _seen(case) and case.waits.waiting:
        return VerdictReason("nobody-stands-out", "no rank stands out: all that were seen wait for others")
    if _seen(case):
        return VerdictReason("nobody-stands-out", "no rank stands out: nothing that was seen waits for another")
    text = "no rank stands out: NCCL RAS names none that is behind or does not answer"
    return VerdictReason("nobody-stands-out", text)


def _kept(
    case: Case, weighed: Sequence[tuple[Hypothesis, float]], kind: Kind, suspects: Sequence[Suspect]
) -> list[VerdictReason]:
    """Why no machine is evicted, and what would change that."""
    first = suspects[0] if suspects else None
    unsure = first is None or first.probability < case.options.coverage_target
    if first is not None and not first.machines:  # as certain as the culprit may be
        unplaced = [s for s in suspects if s is first or (s.probability > DECIDES and not s.machines)]
        whose = ranks_of(sorted({rank for suspect in unplaced for rank in suspect.ranks}))
        text = (
            f"nobody is evicted: no evidence tells the machine of {whose}; gpus_per_node or [machines] in job.toml does"
        )
        unknown = VerdictReason("kept-machine-unknown", text)
        return [unknown, *(_collect_next(case, suspects) if unsure else ())]
    if first is not None and not set(first.machines) & set(case.topology.machines):
        named = " or ".join(first.machines[:2]) if len(first.machines) < 3 else "any of these"
        text = f"nobody is evicted: nothing tells that {named} is a machine of the job; [machines] in job.toml does"
        return [VerdictReason("kept-not-of-job", text)]
    best = first.probability if first is not None else 0.0
    if first is not None and kind is Kind.MACHINE:
        blamed = isolation.blamed(case, weighed)
        wide = eviction.smallest(blamed, replace(case.options, budget_machines=len(case.topology.machines)))
        if wide.machines:
            takes, budget = len(wide.machines), case.options.budget_machines
            text = f"nobody is evicted: it takes {takes} machines, and the budget of one eviction is {budget}"
            return [VerdictReason("kept-over-budget", text)]
        if not unsure:  # it is broken, but others may be, too
            best = blamed.get(frozenset(first.machines), 0.0)
    if first is not None and kind is Kind.MACHINE and _only_named(weighed, first):
        whose = ranks_of(first.ranks) if first.ranks else ", ".join(first.machines)
        what = f"the stack and the log of {whose}, and whether it is alive"
        if first.ranks and all(rank in case.look and case.look[rank].frames for rank in first.ranks):
            what = f"what {', '.join(first.machines) or whose} itself says of its network (kernel log, link states)"
        text = f"{COLLECT}{what}: so far only others name it"
        return [HEARSAY, VerdictReason("collect-awaited-ranks", text)]
    lead = isolation.lead_group(weighed, kind)
    if lead is not None and isolation.one_end(lead, suspects):
        return [ONE_END, *(_collect_next(case, suspects) if unsure else ())]
    if lead is not None and isolation.many_ends(lead, suspects):
        return [MANY_ENDS]
    narrow = first is not None and 2 * len(first.machines) <= len(case.topology.machines)
    if kind is Kind.MACHINE or (narrow and unsure):
        return [_lacking(case, best), *_collect_next(case, suspects)]
    if first is None:
        return [NO_MACHINE]
    if not narrow:
        return [ONE_MACHINE if len(case.topology.machines) == 1 else MOST_OF_THE_JOB]
    return [TOO_WIDE, *(_collect_next(case, suspects) if not case.motion.known else ())]


def _only_named(weighed: Sequence[tuple[Hypothesis, float]], suspect: Suspect) -> bool:
    """Whether the evidence against a suspect is mostly what others report of it."""
    machines = set(suspect.machines)
    against = [(h, p) for h, p in weighed if h.kind is Kind.MACHINE and machines and machines <= set(h.units)]
    return bool(against) and max(against, key=lambda entry: entry[1])[0].hearsay


def _lacking(case: Case, probability: float) -> VerdictReason:
    """What an eviction lacks."""
    best = 100 * probability
    target = 100 * case.options.coverage_target
    # 94.96 is below 95, and must not be rounded up to it
    stated = best if round(best, 1) < target else floor(10 * best) / 10
    text = f"nobody is evicted: {stated:.1f}% is less than the {target:g}% that an eviction takes"
    return VerdictReason("kept-not-sure-enough", text)


def _mute(case: Case, suspects: Sequence[Suspect]) -> list[Rank]:
    """The ranks without evidence that others wait for, or that are suspected for that alone."""
    suspected = suspects[0].ranks if suspects else ()
    roots = (rank for rank in case.waits.roots if merely_failed(case.look[rank]))
    return sorted(rank for rank in roots if rank in suspected or case.waits.holds_for(rank))


def _hidden_in_c(case: Case) -> bool:
    """Whether nobody is seen to wait, and ranks are in calls that no rule knows and of which no native frame was read."""
    seen = [state for state in case.look.values() if state.frames]
    native = any(frame.native for state in seen for frame in state.frames)
    return (
        not case.waits.waiting
        and not native
        and any(state.rule == NO_RULE and not state.interpreting for state in seen)
    )


def _sleeps_in_c(state: RankState) -> bool:
    """Whether it sleeps in a call that no rule knows, and neither its kernel nor a native frame tells for what."""
    plain = state.activity is Activity.UNKNOWN and state.operation != CHILD and not state.dozing
    return plain and state.awaits is None and bool(state.frames) and not any(frame.native for frame in state.frames)


def _native_of(case: Case, ranks: Sequence[Rank]) -> list[VerdictReason]:
    """The native stacks of those of these ranks that stand in a call whose Python frames do not show what it does."""
    hidden = [rank for rank in ranks if rank in case.look and _stands_in_c(case.look[rank])]
    if not hidden:
        return []
    does = "sleeps in" if all(_sleeps_in_c(case.look[rank]) for rank in hidden) else "is in"
    text = f"native stacks of {ranks_of(hidden)} (hangdog capture --native all): C hides from Python what it {does}"
    return [VerdictReason("collect-native-stacks", text)]


def _stands_in_c(state: RankState) -> bool:
    """Whether it is in a call that no rule knows, and neither the interpreter nor a native frame tells what it does there."""
    runs = state.activity is Activity.COMPUTE and state.rule == NO_RULE and not state.interpreting
    return _sleeps_in_c(state) or (runs and bool(state.frames) and not any(frame.native for frame in state.frames))


def _workers_unseen(case: Case, ranks: Sequence[Rank]) -> list[Rank]:
    """Which of these ranks wait for their data loader, of whose workers no process was captured."""
    processes = case.snapshot.rounds[-1].traces if case.snapshot.rounds else ()
    seen = {trace.rank for trace in processes if trace.role.startswith(WORKERS)}
    return [
        rank
        for rank in ranks
        if rank in case.look and case.look[rank].activity is Activity.DATALOADER and rank not in seen
    ]


def _collect_next(case: Case, suspects: Sequence[Suspect]) -> list[VerdictReason]:
    """What would decide, best first: evidence of awaited ranks that have none, then in order of cost."""
    if case.snapshot.exits or case.snapshot.checked:  # their server has it all, or the job runs and is not captured
        return []
    if logged_ends.ended(case.snapshot):
        return [_after(COLLECT, step) for step in logged_ends.to_read(case.snapshot, case.topology)]
    steps = []
    world = [Rank(rank) for rank in range(case.topology.world_size)]
    absent = [rank for rank in world if rank not in case.look or not case.look[rank].frames]
    mute = _mute(case, suspects)
    if mute:
        they, them = ("it is", "it") if len(mute) == 1 else ("they are", "them")
        text = f"the stack or dump of {ranks_of(mute)}, and whether {they} alive: others wait for {them}"
        steps.append(VerdictReason("collect-awaited-ranks", text))
    if not mute and (of_silent := ras_reports.silent(case.snapshot, case.topology, case.look)) is not None:
        steps.append(of_silent)
    if len(absent) == len(world) and ras_reports.asked_again(case.snapshot):
        steps.append(ras_reports.AGAIN)
    if len(absent) == len(world):
        text = "stacks of all ranks, in two looks a few seconds apart: they show who waits for whom"
        steps.append(VerdictReason("collect-stacks", text))
    else:
        if not case.motion.known:
            text = "a second look a few seconds later, to see what does not move (in a bundle: round-0/, round-1/)"
            steps.append(VerdictReason("collect-looks", text))
        if absent and absent != mute:
            steps.append(VerdictReason("collect-stacks", f"stacks of {ranks_of(absent)}"))
    if unseen := _workers_unseen(case, suspects[0].ranks if suspects else ()):
        text = f"stacks of the data loader's workers of {ranks_of(unseen)} (hangdog capture takes them): they hold the batch"
        steps.append(VerdictReason("collect-loader-workers", text))
    if _hidden_in_c(case) and len(world) > 1:
        text = "native stacks (hangdog capture --native all): C hides waits from Python, as those of MPI"
        steps.append(VerdictReason("collect-native-stacks", text))
    else:
        steps += _native_of(case, suspects[0].ranks if suspects else ())
    if not case.snapshot.counters and not case.snapshot.progress and len(world) > 1:
        counts = "flight recorder dumps" if case.snapshot.ras else "flight recorder dumps or NCCL RAS"
        steps.append(VerdictReason("collect-counters", f"{counts}, which count who entered which collective"))
    return [_after(COLLECT, step) for step in steps]
