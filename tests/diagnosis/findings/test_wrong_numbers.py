"""What a job's own numbers accuse: nobody to be evicted, the rank that was wrong first modestly, and tests come next."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.exits import Exit
from hangdog_models.findings import Finding, Impact
from hangdog_models.numbers.wrong_number import Quantity, WrongNumber, WrongNumbers
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot, merged
from hangdog_models.stack import Missing, ProcessTrace, Reason
from hangdog_models.topology import Layout, build
from hangdog_models.verdict import Act, JobCrash, Kind, StallCause, Verdict, from_json, to_json
from hangdog_models.views.first_line import headline
from support.cases.reasons import codes, words_of
from support.cases.stories import first, job, look, twice

WORLD = 8
NAN = WrongNumber(Rank(5), Quantity.GRAD_NORM, math.nan, 1.25, 100.0, 40, "step 40 loss 2.1 grad_norm nan")
#: The others are wrong a step later, for the gradients were reduced.
OTHERS = tuple(replace(NAN, rank=Rank(rank), step=41, at_s=101.0) for rank in range(WORLD) if rank != NAN.rank)
LOST = Finding("NVML", "GPU lost", Impact.CONVICTS, "the driver has lost it", "m1", device="0000:1b:00.0", age_s=1.0)


def snapshot_of(numbers: Sequence[WrongNumber], *findings: Finding) -> Snapshot:
    return Snapshot(Job("j"), (Round(0, ()),), findings=findings, numbers=tuple(numbers))


def judged(numbers: Sequence[WrongNumber], *findings: Finding) -> Verdict:
    machines = {"m0": tuple(map(Rank, range(4))), "m1": tuple(map(Rank, range(4, WORLD)))}
    topology, _ = build(Layout(world_size=WORLD, machines=machines), Rank(WORLD - 1))
    return diagnose(snapshot_of(numbers, *findings), topology)


def share(verdict: Verdict, kind: str) -> float:
    return {str(cause): p for cause, p in verdict.causes.items()}[kind]


def test_the_rank_that_was_wrong_first_is_suspected_modestly_and_nobody_is_evicted() -> None:
    verdict = judged((NAN, *OTHERS))
    assert verdict.kind is Kind.UNDETERMINED and not verdict.evict.machines
    first = verdict.suspects[0]
    assert first.ranks == (5,) and first.machines == ("m1",) and 0.2 < share(verdict, "machine") < 0.5
    assert verdict.culprit is not None and verdict.culprit.probability < 0.5
    assert re.match(r"rank 5 .*\b40\b.*\branks 0-4,6-7 ", words_of(verdict.because, "wrong-first"))
    assert verdict.numbers == WrongNumbers("gradient norm", "NaN", 1.25, 40, Rank(5))
    assert re.match(r"undetermined: .*gradient norm.* NaN .*\b40\b.*\brank 5 on m1\b", headline(verdict))


def test_its_code_or_data_may_be_the_reason_as_well() -> None:
    assert 0.05 < share(judged((NAN, *OTHERS)), "software") < share(judged((NAN, *OTHERS)), "machine")


def test_tests_that_compare_bits_come_next_and_then_people() -> None:
    for numbers, machines in (((NAN, *OTHERS), ("m1",)), ((NAN,), ())):
        steps = judged(numbers).next
        assert [step.do for step in steps] == [Act.TEST, Act.ASK_PEOPLE] and steps[0].machines == machines
        assert "alignment" in steps[0].why and "checkpoint" in steps[1].why


@pytest.mark.parametrize(
    "numbers",
    [
        (NAN,),  # nobody else logs
        (replace(NAN, rank=None),),  # a log of several ranks
        (NAN, replace(NAN, rank=Rank(0))),  # at once: the norm of the reduced gradients
        (NAN, replace(OTHERS[0], quantity=Quantity.LOSS)),  # another quantity is another moment of the step
        (replace(NAN, step=None), *OTHERS),  # its log counts no steps
    ],
)
def test_nobody_stands_out_where_no_other_rank_was_sound(numbers: tuple[WrongNumber, ...]) -> None:
    verdict = judged(numbers)
    assert verdict.kind is Kind.UNDETERMINED and not verdict.suspects and verdict.culprit is None
    assert verdict.numbers is not None and verdict.numbers.rank is None
    assert verdict.next[0].do is Act.TEST and not verdict.next[0].machines
    assert not re.search(r"\bm[01]\b|rank", headline(verdict)), "it names nobody"


def test_ranks_that_are_sound_all_along_tell_who_it_is() -> None:
    verdict = judged((replace(NAN, sound=(Rank(4), Rank(6))),))
    assert verdict.numbers is not None and verdict.numbers.rank == 5


def test_a_finding_that_convicts_the_machine_still_does() -> None:
    verdict = judged((NAN, *OTHERS), LOST)
    assert verdict.kind is Kind.MACHINE and verdict.evict.machines == ("m1",)
    assert [step.do for step in verdict.next] == [Act.EVICT, Act.RESTART]
    assert re.match(r"machine: .*gradient norm.* NaN .*\b40\b.*\bm1\b", headline(verdict))
    assert codes(verdict.because)[:2] == ("hardware-broken", "wrong-number")
    assert verdict.because[0].text.startswith("NVML of m1") and "NaN" in verdict.because[1].text


def test_a_spike_is_told_with_what_is_usual() -> None:
    spike = replace(NAN, quantity=Quantity.LOSS, value=31.5, median=2.25)
    told = judged((spike,)).because[0]
    assert told.code == "wrong-number" and re.match(r"rank 5 on m1\b.* loss .*\b31\.5\b.*\b40\b.*\b2\.25\b", told.text)


def test_the_order_of_what_came_does_not_matter_and_the_json_holds_all() -> None:
    verdict = judged((NAN, *OTHERS))
    assert judged(tuple(reversed((NAN, *OTHERS)))) == verdict
    assert from_json(to_json(verdict)).numbers == verdict.numbers
    parts = [snapshot_of((one,)) for one in (NAN, *OTHERS)]
    assert merged(parts).numbers == merged(reversed(parts)).numbers and len(merged(parts).numbers) == WORLD


#: Megatron's own check, before the gradients are reduced.
REFUSED = Finding("log", "wrong numbers", Impact.NUMBERS, "NaN in its own gradient", "m1", Rank(5), ranks=(Rank(5),))


def crashed(*findings: Finding) -> Verdict:
    machines = {"m0": tuple(map(Rank, range(4))), "m1": tuple(map(Rank, range(4, WORLD)))}
    topology, _ = build(Layout(world_size=WORLD, machines=machines), Rank(WORLD - 1))
    exits = tuple(Exit(Rank(rank), 1 if rank == 5 else -15, 10.0 if rank == 5 else 11.0) for rank in range(WORLD))
    return diagnose(Snapshot(Job("j"), (Round(0, ()),), findings=findings, exits=exits), topology)


def test_a_rank_that_ended_for_its_wrong_numbers_is_tested_and_its_code_not_blamed() -> None:
    verdict = crashed(REFUSED)
    assert verdict.kind is Kind.UNDETERMINED and not verdict.evict.machines
    assert verdict.crash == JobCrash(Rank(5), "m1", "with wrong numbers")
    assert headline(verdict).startswith("undetermined: rank 5 on m1 ")
    assert verdict.next[0].do is Act.TEST and verdict.next[0].machines == ("m1",) and "alignment" in verdict.next[0].why
    assert 0.05 < share(verdict, "software") < share(verdict, "machine") < 0.5


def test_a_convicted_device_of_that_machine_is_evicted_all_the_same() -> None:
    assert crashed(REFUSED, replace(LOST, age_s=None)).evict.machines == ("m1",)


def test_where_several_ranks_end_for_wrong_numbers_none_is_suspected() -> None:
    verdict = crashed(REFUSED, replace(REFUSED, rank=Rank(0), ranks=(Rank(0),), machine="m0"))
    assert verdict.kind is Kind.UNDETERMINED and not verdict.suspects and not verdict.evict.machines
    assert verdict.next[0].do is Act.TEST and not verdict.next[0].machines


@pytest.mark.parametrize("named", [{"rank": Rank(5), "ranks": ()}, {"rank": None, "machine": ""}])
def test_a_rank_that_is_gone_for_its_wrong_numbers_convicts_no_machine(named: dict[str, Any]) -> None:
    """Others hang because of it; its end alone speaks of the code or of the machine."""
    gone = ProcessTrace(Rank(5), missing=Missing(Reason.EXITED, "it ended"))
    hang = twice([*look({"0-4,6-7": "backward"}), gone])
    eight = job(dp=WORLD, per_machine=2)
    alone = diagnose(hang, eight)
    assert (first(alone), alone.evict.machines) == ((5,), ()) and alone.causes[StallCause.MACHINE] > 0.1
    assert not diagnose(replace(hang, findings=(replace(REFUSED, **named),)), eight).evict.machines
