"""What to do now, best first, with the reason of each step."""

from collections.abc import Sequence

from hangdog_models.diagnosis.verdict.eviction import WORTH_EVICTING
from hangdog_models.diagnosis.verdict.who_and_why import DECIDES
from hangdog_models.verdict import Act, Culprit, Eviction, Kind, StallCause, Step, Suspect

#: How a reason begins that says what would decide; each is a step of its own.
COLLECT = "collect next: "
HEALTHY_PHASE = "a healthy job waits for that as well: look again if it lasts"


def next_steps(
    kind: Kind,
    confidence: float,
    evict: Eviction,
    suspects: Sequence[Suspect],
    culprit: Culprit | None,
    because: Sequence[str],
    *,
    seen: bool = True,
    crashed: bool = False,
) -> tuple[Step, ...]:
    """The steps that a verdict of this kind asks for; `because` are its reasons, among which is what would decide.

    `seen`: something of the ranks was captured. Where only a machine's hardware or log speaks, its test comes first.
    `crashed`: the job has ended, so nobody waits for it.
    """
    collect = [Step(Act.COLLECT, (), line.removeprefix(COLLECT)) for line in because if line.startswith(COLLECT)]
    whole = kind is Kind.GROUP and suspects  # its paths lead to all of them, whoever is awaited
    first = culprit.machines if culprit and not whole else suspects[0].machines if suspects else ()
    if evict.machines:
        step = Step(Act.EVICT, evict.machines, "the fault is inside")
        if kind is Kind.SLOW:
            return (step,)
        return (step, Step(Act.RESTART, (), "it has ended" if crashed else "it hangs until it is started again"))
    test = [Step(Act.TEST, first, "tests of devices and links convict a machine or clear it")] if first else []
    more = collect or [Step(Act.COLLECT, (), "more looks, some seconds apart")]
    again = Step(
        Act.RESTART, (), "if it comes back on the same machine, that machine is at fault; if elsewhere, the code is"
    )
    if kind in (Kind.SOFTWARE, Kind.DEPENDENCY) and confidence < DECIDES:  # who it is is known, why is not
        return (*collect, again, *test)
    if kind is Kind.SOFTWARE and culprit and culprit.causes.get(StallCause.MACHINE, 0.0) >= WORTH_EVICTING:
        return (Step(Act.FIX_CODE, (), "the stack of that rank shows where it stands"), again, *test, *collect)
    return {
        Kind.MACHINE: (*(collect + test if seen else test + collect), again),
        Kind.GROUP: (*collect, *(test if len(first) == 1 else _between(first))),
        Kind.SOFTWARE: (
            Step(Act.FIX_CODE, (), f"a restart on the same machines would {'fail' if crashed else 'hang'} again"),
            *collect,
        ),
        Kind.DEPENDENCY: (Step(Act.RESTORE_SERVICE, (), "the job goes on when it answers"), *collect),
        Kind.SLOW: tuple(more + test if seen else test + more),
        Kind.NONE: (Step(Act.WAIT, (), HEALTHY_PHASE if culprit else "the job is making progress"),),
        Kind.UNDETERMINED: (
            *collect,
            Step(
                Act.ASK_PEOPLE, (), f"they know whether {'somebody ended it' if crashed else 'it may take that long'}"
            ),
        ),
    }[kind]


def _between(machines: tuple[str, ...]) -> tuple[Step, ...]:
    return (Step(Act.TEST, machines, "tests in pairs tell which end of which path"),)
