"""The first line says who, how likely, why and what to do now, in words that fit; the steps say the rest once."""

from dataclasses import replace

import pytest

from hangdog_models.ranks import parse_ranks
from hangdog_models.verdict import (
    Act,
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
)
from hangdog_models.views.first_line import headline, steps

MACHINE, GROUP, CODE, SLOW = StallCause.MACHINE, StallCause.GROUP, StallCause.SOFTWARE, StallCause.SLOW
LOOK = Step(Act.COLLECT, (), "a second look a few seconds later, to see what does not move (in a bundle: round-0/)")
DUMP = Step(Act.COLLECT, (), "the stack or dump of rank 2, and whether it is alive: others wait for it")
TEST = Step(Act.TEST, ("a",), "tests of devices and links convict a machine or clear it")
CODE_STEP = Step(Act.FIX_CODE, (), "a restart on the same machines would hang again")


def culprit(ranks: str, machines: tuple[str, ...], causes: dict[StallCause, float]) -> Culprit:
    return Culprit(parse_ranks(ranks), machines, sum(causes.values()), (), causes)


def verdict(
    kind: Kind, confidence: float, found: Culprit | None, *todo: Step, evict: Eviction | None = None
) -> Verdict:
    suspects = (Suspect(found.ranks, found.machines, confidence, ()),) if found else ()
    return Verdict(
        job_id="j",
        world_size=8,
        kind=kind,
        confidence=confidence,
        because=(),
        suspects=suspects,
        evict=evict or Eviction(),
        groups=(),
        clusters=(),
        coverage=Coverage(8, 8, (), {}),
        evidence=EvidenceReport(),
        rules="torch@2026-11",
        culprit=found,
        next=todo,
    )


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (
            verdict(Kind.MACHINE, 0.73, culprit("0", ("a",), {MACHINE: 0.73, CODE: 0.07, SLOW: 0.06}), LOOK, TEST),
            (
                "machine: rank 0 on a holds the job up (86%), likely because of its machine (73%). "
                "Evict nobody yet: get a second look a few seconds later, or test a."
            ),
        ),
        (
            verdict(Kind.SOFTWARE, 0.99, culprit("3", ("a",), {CODE: 0.99}), CODE_STEP),
            "software: rank 3 on a holds the job up, because of its code (99%). Evict nobody: look at the code.",
        ),
        (
            verdict(Kind.SOFTWARE, 0.48, culprit("1,6", ("a",), {MACHINE: 0.48, CODE: 0.48}), LOOK, TEST),
            (
                "software: ranks 1, 6 on a hold the job up (96%), likely because of their code (48%) or their machine (48%). "
                "Evict nobody yet: get a second look a few seconds later, or test a."
            ),
        ),
        (
            verdict(Kind.MACHINE, 0.9, culprit("1,6", ("a", "b"), {MACHINE: 0.9}), replace(TEST, machines=("a", "b"))),
            "machine: ranks 1, 6 on a, b hold the job up, because of their machines (90%). Evict nobody yet: test a, b.",
        ),
        (
            verdict(Kind.MACHINE, 0.9, culprit("1,6", (), {MACHINE: 0.9}), LOOK),
            (
                "machine: ranks 1, 6 hold the job up, because of their machines (90%). "
                "Evict nobody yet: find the machine of ranks 1, 6."
            ),
        ),
        (
            verdict(Kind.SLOW, 0.94, culprit("0-7", ("a",), {SLOW: 0.94}), TEST),
            "slow: ranks 0-7 on a hold the job back (94%). Evict nobody yet: test a.",
        ),
        (
            verdict(Kind.UNDETERMINED, 0.16, culprit("2", ("a",), {CODE: 0.16, SLOW: 0.05}), DUMP),
            (
                "undetermined: cause unknown; likeliest is rank 2 on a (21%). "
                "Don't remove anything yet: get the stack or dump of rank 2."
            ),
        ),
        (
            verdict(Kind.UNDETERMINED, 0.0, None, LOOK),
            (
                "undetermined: cause unknown, and nobody stands out. "
                "Don't remove anything yet: get a second look a few seconds later."
            ),
        ),
        (
            verdict(Kind.MACHINE, 0.6, None, LOOK),
            "machine: a machine holds the job up (60% sure). Evict nobody: get a second look a few seconds later.",
        ),
        (
            verdict(Kind.NONE, 0.9, None, Step(Act.WAIT, (), "the job is making progress")),
            "none: the job is making progress (90% sure). Evict nobody.",
        ),
    ],
)
def test_a_first_line_in_words(made: Verdict, line: str) -> None:
    assert headline(made) == line


def test_an_eviction_says_how_sure_it_is_itself_and_whether_all_or_one_of_them_is_at_fault() -> None:
    both = Step(Act.EVICT, ("a", "b"), "the fault is inside")
    one = verdict(Kind.MACHINE, 0.97, culprit("0", ("a",), {MACHINE: 0.6}), both, evict=Eviction(("a", "b"), 0.96))
    assert headline(one) == "machine: one of a, b holds the job up (96% sure). Evict a, b."
    two = replace(one, culprit=culprit("0,2", ("a", "b"), {MACHINE: 0.96}))
    assert headline(two) == "machine: a, b hold the job up (96% sure). Evict a, b."
    assert list(steps(two)) == ["evict a, b: the fault is inside with 96% probability"]


def test_who_is_awaited_by_a_group_has_not_joined_it() -> None:
    alone = verdict(Kind.GROUP, 0.66, culprit("2", ("a",), {GROUP: 0.66, CODE: 0.14}), DUMP)
    everybody = Suspect(parse_ranks("0-2"), ("a", "b", "c"), 0.66, ())
    group = StuckGroup("dp", everybody.ranks, "in all_reduce 7, waits for rank 2")
    line = headline(replace(alone, suspects=(everybody,), groups=(group,)))
    assert line.startswith(
        "group: rank 2 on a holds the job up (80%), likely because of a path or device of its group (66%)"
    )
    assert "joined" not in line
    whole = culprit("0-2", ("a", "b", "c"), {GROUP: 0.66})
    assert "dp ranks 0-2 all joined" in headline(replace(alone, culprit=whole, suspects=(everybody,), groups=(group,)))


def test_each_step_is_one_line_and_waiting_is_none() -> None:
    wait = verdict(Kind.NONE, 0.9, None, Step(Act.WAIT, (), "the job is making progress"))
    assert not list(steps(wait))
    todo = (LOOK, TEST, Step(Act.RESTART, (), "it tells the machine from the code"), CODE_STEP)
    assert list(steps(verdict(Kind.MACHINE, 0.9, None, *todo))) == [
        f"collect {LOOK.why}",
        f"test a: {TEST.why}",
        "restart the job: it tells the machine from the code",
        f"look at the code: {CODE_STEP.why}",
    ]
