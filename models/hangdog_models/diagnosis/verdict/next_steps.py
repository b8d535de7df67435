"""What to do now, the cheapest step first, with the reason of each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdog_models.diagnosis.findings import logged_ends
from hangdog_models.diagnosis.hypotheses.explanations import all_stopped
from hangdog_models.diagnosis.hypotheses.root_causes import LATER
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.decision import Outlook, at_stake, ordered
from hangdog_models.diagnosis.verdict.eviction import WORTH_EVICTING
from hangdog_models.diagnosis.verdict.who_and_why import DECIDES
from hangdog_models.verdict import (
    ISOLATES,
    Act,
    Culprit,
    Eviction,
    Kind,
    MachineCheck,
    StallCause,
    Step,
    Suspect,
    VerdictReason,
)

#: How a reason begins that says what would decide. Each is a step of its own.
COLLECT = "collect next: "
HEALTHY_PHASE = "a healthy job waits for that as well: look again if it lasts"
TEST = "tests of devices and links convict a machine or clear it"
PAIRS = "tests in pairs tell which end of which path"
AGAIN = "if it comes back on the same machine, that machine is at fault; if elsewhere, the code is"
INSIDE = "the fault is inside"
POLLS = "the stack of that rank shows what it looks for, time and again"
#: How to find the device of a wrong number: all devices run the same step of a small model, and their bits are
#: compared.
ALIGN = "bit-wise alignment (hangdog test run --incident ... --level 4) finds the device that computes otherwise, once the job has stopped"
CHANGED = "they know whether the data, the learning rate or the code changed; a checkpoint of before that step is sound"
#: Verdicts whose eviction has alternatives. For a machine that slows a moving job, no restart is worth it first.
_RIVALS = (Kind.MACHINE, Kind.GROUP)
#: Causes that tests of a machine find. A slow job's cause is one of these or work that takes its time.
_TESTED = (StallCause.MACHINE, StallCause.GROUP)


def next_steps(case: Case, kind: Kind, evict: Eviction, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Of all steps compared: the isolation and what follows from it, or else all steps but that."""
    if not evict.machines:
        return tuple(step for step in steps if step.do not in ISOLATES)
    first = next(step for step in steps if step.do in ISOLATES)
    if kind is Kind.SLOW:
        return (first,)
    then = "it has ended" if case.snapshot.exits else "it hangs until it is started again"
    whole = first.do is Act.ISOLATE_GROUP
    after = [Step(Act.TEST, first.machines, "most of them are sound, and come back")] if whole else []
    return (first, Step(Act.RESTART, (), then), *after)


def compared(
    case: Case,
    kind: Kind,
    confidence: float,
    evict: Eviction,
    suspects: Sequence[Suspect],
    culprit: Culprit | None,
    causes: Mapping[StallCause, float],
    because: Sequence[VerdictReason],
    act: Act = Act.EVICT,
) -> tuple[Step, ...]:
    """All steps that make sense for a verdict of this kind, each with its cost, the cheapest first.

    `because`: the verdict's reasons, some of which say what would decide. `evict` may be isolated, by `act`.
    """
    whole = kind is Kind.GROUP and suspects  # its paths involve all of them, whichever rank is awaited
    first = culprit.machines if culprit and not whole else suspects[0].machines if suspects else ()
    outlook = _outlook(case, kind, evict, suspects, culprit, causes, act)
    asked = (one.text.removeprefix(COLLECT) for one in because if one.text.startswith(COLLECT))
    collect = [Step(Act.COLLECT, (), text) for text in asked]
    pairs = kind is Kind.GROUP and len(first) != 1
    test = [Step(Act.TEST, first, PAIRS if pairs else TEST)] if first or pairs else []
    again = Step(Act.RESTART, (), AGAIN)
    if evict.machines:
        rivals = (*collect, *test, again) if kind in _RIVALS else ()
        return ordered((Step(act, evict.machines, INSIDE), *rivals), outlook)
    return ordered(_offers(case, kind, confidence, culprit, collect, test, again), outlook)


def _outlook(
    case: Case,
    kind: Kind,
    evict: Eviction,
    suspects: Sequence[Suspect],
    culprit: Culprit | None,
    causes: Mapping[StallCause, float],
    act: Act,
) -> Outlook:
    """What is at stake, with the probabilities of what would be tested and isolated."""
    if kind is Kind.GROUP and suspects:
        suspected = suspects[0].probability
    else:
        tested = (*_TESTED, StallCause.SLOW) if kind is Kind.SLOW else _TESTED
        suspected = sum(culprit.causes.get(cause, 0.0) for cause in tested) if culprit else 0.0
    return replace(
        at_stake(case.topology, causes, case.snapshot.job.stalled_s, case.options),
        suspected=suspected,
        polled=causes.get(StallCause.SLOW, 0.0) if _polls(case, culprit) else 0.0,
        isolated=evict.coverage,
        alike=kind is Kind.GROUP or act is Act.ISOLATE_GROUP,
        blind=not case.look and kind in (Kind.MACHINE, Kind.SLOW),
    )


def _offers(
    case: Case,
    kind: Kind,
    confidence: float,
    culprit: Culprit | None,
    collect: list[Step],
    test: list[Step],
    again: Step,
) -> tuple[Step, ...]:
    """The steps that may help against a cause: code is not evicted, and a machine is not rewritten."""
    crashed = logged_ends.ended(case.snapshot)  # so no rank waits for it
    if kind in (Kind.SOFTWARE, Kind.DEPENDENCY) and confidence < DECIDES:  # the culprit is known, the cause is not
        return (*collect, again, *test)
    if kind is Kind.SOFTWARE and culprit and culprit.causes.get(StallCause.MACHINE, 0.0) >= WORTH_EVICTING:
        return (Step(Act.FIX_CODE, (), "the stack of that rank shows where it stands"), again, *test, *collect)
    if kind is Kind.DEPENDENCY and all_stopped(case.look):
        return (Step(Act.ASK_PEOPLE, (), "they know who suspended it, and whether it may go on"),)
    stands = case.snapshot.job.stalled_s is not None
    more = collect or [
        Step(Act.COLLECT, (), LATER.text.removeprefix(COLLECT) if stands else "more looks, some seconds apart")
    ]
    at_work = [Step(Act.FIX_CODE, (), POLLS)] if _polls(case, culprit) else test
    return {
        Kind.MACHINE: (*collect, *test, again),
        Kind.GROUP: (*collect, *test),
        Kind.SOFTWARE: (
            Step(Act.FIX_CODE, (), f"a restart on the same machines would {'fail' if crashed else 'hang'} again"),
            *collect,
        ),
        Kind.DEPENDENCY: (Step(Act.RESTORE_SERVICE, (), "the job goes on when it answers"), *collect),
        Kind.SLOW: (*more, *at_work),
        Kind.NONE: (Step(Act.WAIT, (), HEALTHY_PHASE if culprit else "the job is making progress"),),
        Kind.UNDETERMINED: (
            *collect,
            Step(
                Act.ASK_PEOPLE, (), f"they know whether {'somebody ended it' if crashed else 'it may take that long'}"
            ),
        ),
    }[kind]


def _polls(case: Case, culprit: Culprit | None) -> bool:
    """Whether each rank that is named sleeps by its own timer, time and again: no device makes it do that."""
    ranks = culprit.ranks if culprit else ()
    return bool(ranks) and all(rank in case.look and case.look[rank].dozing for rank in ranks)


def after_check(check: MachineCheck, evict: Eviction, steps: Sequence[Step], *, runs: bool) -> tuple[Step, ...]:
    """The steps after a machine's own checks. `runs`: a job runs there, and is not known to be stalled."""
    if not evict.machines:
        return (Step(Act.TEST, (check.machine,), f"{TEST}, once its job has stopped" if runs else TEST),)
    again = [Step(Act.RESTART, (), "without that machine, before the fault ends it")] if runs else []
    return (next(step for step in steps if step.do in ISOLATES), *again)


def after_numbers(suspects: Sequence[Suspect], evict: Eviction, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps after wrong numbers of a job. They accuse no machine, so tests come first and none starts by itself."""
    if evict.machines:
        return (
            next(step for step in steps if step.do in ISOLATES),
            Step(Act.RESTART, (), "from a checkpoint of before"),
        )
    first = suspects[0].machines if suspects else ()
    return (Step(Act.TEST, first, ALIGN), Step(Act.ASK_PEOPLE, (), CHANGED))
