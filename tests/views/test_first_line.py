"""The first line says who, how likely, why and what to do now, in words that fit; the steps say the rest once."""

from dataclasses import replace
from pathlib import Path

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
from support.cases.goldens import differing

MACHINE, GROUP, CODE, SLOW = StallCause.MACHINE, StallCause.GROUP, StallCause.SOFTWARE, StallCause.SLOW
LOOK = Step(Act.COLLECT, (), "a second look a few seconds later, to see what does not move (in a bundle: round-0/)")
DUMP = Step(Act.COLLECT, (), "the stack or dump of rank 2, and whether it is alive: others wait for it")
TEST = Step(Act.TEST, ("a",), "tests of devices and links convict a machine or clear it")
WAIT = Step(Act.WAIT, (), "the job is making progress")
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


ONE_OF_TWO = verdict(
    *(Kind.MACHINE, 0.97, culprit("0", ("a",), {MACHINE: 0.6})),
    Step(Act.EVICT, ("a", "b"), "the fault is inside"),
    evict=Eviction(("a", "b"), 0.96),
)
ALONE = verdict(Kind.GROUP, 0.66, culprit("2", ("a",), {GROUP: 0.66, CODE: 0.14}), DUMP)
EVERYBODY = Suspect(parse_ranks("0-2"), ("a", "b", "c"), 0.66, ())
STUCK = StuckGroup("dp", EVERYBODY.ranks, "in all_reduce 7, waits for rank 2")
#: Verdicts by what is special about each of them.
STORIES = {
    "a machine is likelier than code or a slow rank": verdict(
        Kind.MACHINE, 0.73, culprit("0", ("a",), {MACHINE: 0.73, CODE: 0.07, SLOW: 0.06}), LOOK, TEST
    ),
    "code": verdict(Kind.SOFTWARE, 0.99, culprit("3", ("a",), {CODE: 0.99}), CODE_STEP),
    "code or a machine, both alike": verdict(
        Kind.SOFTWARE, 0.48, culprit("1,6", ("a",), {MACHINE: 0.48, CODE: 0.48}), LOOK, TEST
    ),
    "two machines to test": verdict(
        Kind.MACHINE, 0.9, culprit("1,6", ("a", "b"), {MACHINE: 0.9}), replace(TEST, machines=("a", "b"))
    ),
    "ranks of unknown machines": verdict(Kind.MACHINE, 0.9, culprit("1,6", (), {MACHINE: 0.9}), LOOK),
    "slow": verdict(Kind.SLOW, 0.94, culprit("0-7", ("a",), {SLOW: 0.94}), TEST),
    "undetermined, and one stands out": verdict(
        Kind.UNDETERMINED, 0.16, culprit("2", ("a",), {CODE: 0.16, SLOW: 0.05}), DUMP
    ),
    "undetermined, and nobody stands out": verdict(Kind.UNDETERMINED, 0.0, None, LOOK),
    "a machine, and nobody knows which": verdict(Kind.MACHINE, 0.6, None, LOOK),
    "nothing is wrong": verdict(Kind.NONE, 0.9, None, WAIT),
    "one of two to evict": ONE_OF_TWO,
    "two to evict": replace(ONE_OF_TWO, culprit=culprit("0,2", ("a", "b"), {MACHINE: 0.96})),
    "one of two to evict, without steps": replace(ONE_OF_TWO, next=()),
    "one of a group": replace(ALONE, suspects=(EVERYBODY,), groups=(STUCK,)),
    "a whole group": replace(
        ALONE, culprit=culprit("0-2", ("a", "b", "c"), {GROUP: 0.66}), suspects=(EVERYBODY,), groups=(STUCK,)
    ),
    "several steps": verdict(
        Kind.MACHINE, 0.9, None, LOOK, TEST, Step(Act.RESTART, (), "it tells the machine from the code"), CODE_STEP
    ),
}


def test_the_first_line_and_the_steps_of_every_story_are_the_golden_ones() -> None:
    told = (
        "\n".join([f"# {name}", headline(made), *(f"- {step}" for step in steps(made))])
        for name, made in STORIES.items()
    )
    assert not differing(Path(__file__).parent / "golden" / "first_line.txt", "\n\n".join(told) + "\n")


def test_a_first_line_names_the_kind_who_how_sure_and_whom_to_test() -> None:
    line = headline(STORIES["a machine is likelier than code or a slow rank"])
    assert line.startswith("machine: rank 0 on a ") and "86%" in line and "73%" in line and line.endswith(" test a.")
    line = headline(STORIES["ranks of unknown machines"])
    assert line.startswith("machine: ranks 1, 6 ") and "90%" in line and line.endswith(" of ranks 1, 6.")
    assert headline(STORIES["slow"]).startswith("slow: ranks 0-7 on a ")
    assert "2 on a (21%)" in headline(STORIES["undetermined, and one stands out"])
    assert headline(STORIES["nothing is wrong"]).endswith(" Evict nobody.")


def test_an_eviction_says_how_sure_it_is_itself_and_whether_all_or_one_of_them_is_at_fault() -> None:
    one, two = headline(STORIES["one of two to evict"]), headline(STORIES["two to evict"])
    assert one.startswith("machine: one of a, b ") and two.startswith("machine: a, b ")
    for line in (one, two):
        assert "(96% sure)" in line and line.endswith(" Evict a, b.")
    (step,) = steps(STORIES["two to evict"])
    assert step.startswith("evict a, b: ") and "96%" in step
    assert list(steps(STORIES["one of two to evict, without steps"])) == [step]


def test_who_is_awaited_by_a_group_has_not_joined_it() -> None:
    line = headline(STORIES["one of a group"])
    assert line.startswith("group: rank 2 on a ") and "(80%)" in line and "(66%)" in line and "joined" not in line
    line = headline(STORIES["a whole group"])
    assert line.startswith("group: dp ranks 0-2 ") and "joined" in line


def test_each_step_is_one_line_and_waiting_is_none() -> None:
    assert not list(steps(STORIES["nothing is wrong"]))
    said = list(steps(STORIES["several steps"]))
    assert [line.partition(" ")[0] for line in said] == ["collect", "test", "restart", "look"]
    assert [LOOK.why in said[0], said[1] == f"test a: {TEST.why}", CODE_STEP.why in said[3]] == [True] * 3
