"""What to do now, best first, with the reason of each step."""

from collections.abc import Sequence

from hangdog_models.verdict import Act, Culprit, Eviction, Kind, Step, Suspect

#: How a reason begins that says what would decide; each is a step of its own.
COLLECT = "collect next: "


def next_steps(
    kind: Kind, evict: Eviction, suspects: Sequence[Suspect], culprit: Culprit | None, because: Sequence[str]
) -> tuple[Step, ...]:
    """The steps that a verdict of this kind asks for; `because` are its reasons, among which is what would decide."""
    collect = [Step(Act.COLLECT, (), line.removeprefix(COLLECT)) for line in because if line.startswith(COLLECT)]
    first = suspects[0].machines if suspects else culprit.machines if culprit else ()
    if evict.machines:
        step = Step(Act.EVICT, evict.machines, f"the fault is in there with {evict.coverage:.3g}")
        if kind is Kind.SLOW:
            return (step,)
        return (step, Step(Act.RESTART, (), "the job hangs until it is started again"))
    test = [Step(Act.TEST, first, "a test of its devices and links convicts or clears it")] if first else []
    again = Step(
        Act.RESTART, (), "if it comes back on the same machine, that machine is at fault; if elsewhere, the code is"
    )
    return {
        Kind.MACHINE: (*collect, again, *test),
        Kind.GROUP: (
            *collect,
            *(Step(Act.TEST, step.machines, "tests in pairs tell which end of which path") for step in test),
        ),
        Kind.SOFTWARE: (Step(Act.FIX_CODE, (), "a restart on the same machines may hang again"), *collect),
        Kind.DEPENDENCY: (Step(Act.RESTORE_SERVICE, (), "the job goes on when it answers"), *collect),
        Kind.SLOW: (*(collect or [Step(Act.COLLECT, (), "more looks, some seconds apart")]), *test),
        Kind.NONE: (Step(Act.WAIT, (), "the job is making progress"),),
        Kind.UNDETERMINED: (*collect, Step(Act.ASK_PEOPLE, (), "who wrote it knows whether it may take that long")),
    }[kind]
