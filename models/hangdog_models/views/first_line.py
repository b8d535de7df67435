"""The first line of a verdict: the answer, and what to do now; and all its steps, one line each."""

from collections.abc import Iterator

from hangdog_models.verdict import ISOLATES, Act, Kind, Step, Verdict
from hangdog_models.views.answer_text import MACHINES, answer, percent, rank_text, some, sure, unplaced

#: The longest noun that half a line holds.
NOUN = 60
#: What is done, as people say it; of those with `{}` to which machines.
_DOING = {
    Act.WAIT: "wait",
    Act.RESTART: "restart the job",
    Act.TEST: "test {}",
    Act.EVICT: "evict {}",
    Act.ISOLATE_GROUP: "isolate {}",
    Act.FIX_CODE: "look at the code",
    Act.RESTORE_SERVICE: "look at that service",
    Act.ASK_PEOPLE: "ask the job's people",
}


def headline(verdict: Verdict) -> str:
    """The answer in one line: what it is, which machines, how sure, and what to do now."""
    certain = sure(verdict)
    return f"{verdict.kind}: {answer(verdict)}{f' ({certain} sure)' if certain else ''}. {order(verdict)}"


def order(verdict: Verdict) -> str:
    """What to do now: whom to evict, else the first step, and which test may be made in its place."""
    if verdict.evict.machines:
        whole = any(step.do is Act.ISOLATE_GROUP for step in verdict.next)
        return f"{'Isolate' if whole else 'Evict'} {some(verdict.evict.machines, MACHINES)}."
    if verdict.kind is Kind.MACHINE and (ranks := unplaced(verdict)):
        return f"Evict nobody yet: find the machine of {rank_text(ranks)}."
    tests = [step for step in verdict.next[1:] if step.do is Act.TEST and len(step.machines) <= MACHINES]
    steps = [step for step in (*verdict.next[:1], *tests[:1]) if step.do is not Act.WAIT]
    if not steps:
        return "Evict nobody."
    yet = " yet" if any(step.do is Act.TEST for step in steps) else ""
    keep = "Don't remove anything yet" if verdict.kind is Kind.UNDETERMINED else f"Evict nobody{yet}"
    return f"{keep}: {', or '.join(_half_line(step, verdict.kind) for step in steps)}."


def steps(verdict: Verdict) -> Iterator[str]:
    """Each step with its reason, best first; none where there is nothing to do."""
    evict = [Step(Act.EVICT, verdict.evict.machines, "the fault is inside")] if verdict.evict.machines else []
    for step in verdict.next or evict:
        if step.do is Act.COLLECT:
            yield f"collect {step.why}"
        elif step.do is not Act.WAIT:
            inside = f" with {percent(verdict.evict.coverage)} probability" if step.do in ISOLATES else ""
            yield f"{_doing(step, len(step.machines))}: {step.why}{inside}"


def _half_line(step: Step, kind: Kind) -> str:
    if step.do is Act.COLLECT:
        noun = step.why
        for mark in (", ", ": ", " ("):
            noun = noun.partition(mark)[0]
        return f"get {noun if 0 < len(noun) <= NOUN and noun.isprintable() else 'what is named below'}"
    pairs = " in pairs" if step.do is Act.TEST and kind is Kind.GROUP and len(step.machines) > 1 else ""
    return _doing(step, MACHINES) + pairs


def _doing(step: Step, most: int) -> str:
    return _DOING[step.do].replace("{}", some(step.machines, most) or "its machines")
