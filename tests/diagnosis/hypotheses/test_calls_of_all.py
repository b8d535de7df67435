"""Barriers and start-up: calls that programs make for all ranks, wherever they stand and whatever groups a job has."""

import pytest

from hangdog_models.diagnosis.judge import diagnose, investigate
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.reasons import codes
from support.cases.stories import C10D, first, job, look, snapshot, trace, twice

ELSEWHERE = ["<module> train.py", "finish loop.py", f"barrier {C10D}"]


def test_a_barrier_is_of_all_though_those_at_it_are_a_group_of_their_own() -> None:
    """Nothing says that ranks 4 to 7 mean their tensor group: the others are not there, so it is not stuck."""
    verdict = diagnose(twice(look({"0-3,8-15": "item", "4-7": "barrier"})), job(tp=4, dp=4, per_machine=4))
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
    assert verdict.culprit is not None and verdict.culprit.ranks == (4, 5, 6, 7)


def test_a_side_that_is_one_whole_group_may_be_stuck_in_its_own_operation() -> None:
    """The other half has gone on to a call of all: code that parts them, or an all-reduce of the odd ranks that hangs."""
    odd = ",".join(str(rank) for rank in range(1, 16, 2))
    even = ",".join(str(rank) for rank in range(0, 16, 2))
    shape = job(tp=2, dp=8, per_machine=4)
    verdict = diagnose(twice(look({odd: "item", even: "barrier"})), shape)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.UNDETERMINED, tuple(range(1, 16, 2)), ())
    assert "whole-group-apart" in codes(verdict.suspects[0].because)
    other = diagnose(twice(look({odd: "item", even: "barrier"})), job(dp=16, per_machine=4))
    assert other.kind is Kind.SOFTWARE, "no group of the job is that half"


def test_who_is_at_a_barrier_is_on_one_side_whatever_line_it_came_from() -> None:
    here = [*look({"0-3": "stage", "4-6": "barrier"}), trace(7, ELSEWHERE)]
    verdict = diagnose(twice(here), job(pp=2, dp=4, per_machine=2))
    assert any("4-7" in line.text for line in verdict.because), verdict.because


def test_who_came_to_it_between_the_looks_is_not_stuck_there() -> None:
    """A recorded evaluation of all ranks: one was met in the sum behind it, the others in its last layers yet."""
    before, after = look({"0-7": "gather"}), look({"0-2,4-7": "gather", "3": "metrics"})
    came = diagnose(snapshot(before, before, after), job(dp=8, per_machine=2))
    assert came.kind is Kind.UNDETERMINED
    stays = diagnose(snapshot(after, after, after), job(dp=8, per_machine=2))
    assert stays.kind is Kind.SOFTWARE and first(stays) == (3,)


def test_nobody_is_alone_at_a_barrier_that_all_are_at() -> None:
    """Rank 63 came to it from another line; rank 0 is outside, so they wait for that one."""
    here = [*look({"0": "loader", "1-62": "barrier"}), trace(63, ELSEWHERE)]
    case = investigate(twice(here), job(pp=4, dp=16, per_machine=4))
    assert {one.ranks for one in case.hypotheses if one.kind is Kind.SOFTWARE} == {(0,)}


def test_a_store_that_lets_nobody_in_is_a_dependency_though_one_stack_failed_once() -> None:
    everybody = look({"0-7": "start"})
    verdict = diagnose(snapshot([*everybody[:7], trace(7, "timed out")], everybody), job(dp=8))
    assert (verdict.kind, verdict.evict.machines) == (Kind.DEPENDENCY, ())


def test_who_has_not_come_to_the_barrier_of_a_new_group_is_late_for_it() -> None:
    """Both are inside init_process_group (torch 1.8 to 2.13): it makes the communicator, and then meets at the store."""
    makes = ["<module> train.py", f"init_process_group {C10D}", f"_new_process_group_helper {C10D}"]
    meets = [*makes[:2], f"_store_based_barrier {C10D}"]

    def judged(*late: int) -> Verdict:
        return diagnose(twice([trace(rank, makes if rank in late else meets) for rank in range(16)]), job(dp=16))

    verdict = judged(5)
    assert verdict.culprit is not None and verdict.culprit.ranks == (5,)
    assert verdict.evict.machines == ()
    shares = [round(verdict.causes[cause], 2) for cause in (StallCause.MACHINE, StallCause.SOFTWARE, StallCause.SLOW)]
    assert shares == pytest.approx([0.42, 0.26, 0.05], abs=0.011)
    assert judged().kind is Kind.DEPENDENCY and judged(*range(16)).kind is Kind.DEPENDENCY
    assert judged(*range(6)).culprit is None, "too many to be late"


def test_waits_of_several_groups_are_followed_to_the_rank_that_left_the_loop() -> None:
    """Each of the others is in another call of a step, and each of these calls lacks rank 2, directly or through others."""
    here = look({"0": "stage", "1,3": "tensor", "2": "barrier"})
    verdict = diagnose(twice(here), job(tp=2, pp=2, per_machine=1))
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (2,), ())


def test_they_lead_to_a_rank_whose_own_call_tells_no_peer() -> None:
    """Rank 2 reduces once more than all others. What the first stage waits for may also have been sent and lost."""
    here = look({"0": "stage", "1,3": "tensor", "2": "metrics"})
    verdict = diagnose(twice(here), job(tp=2, pp=2, per_machine=1))
    assert (first(verdict), verdict.evict.machines) == ((2,), ())
    assert verdict.kind in (Kind.SOFTWARE, Kind.UNDETERMINED)
    untold = diagnose(twice(here), job(per_machine=1, world=4))
    assert (first(untold), untold.evict.machines) == ((2,), ())


def test_no_side_is_named_where_known_waits_lead_to_none_or_to_two() -> None:
    """Ranks 0 and 3 reduce at two places: rank 1 waits for the one, rank 2 for the other."""
    elsewhere = ["<module> train.py", "count train.py", f"all_reduce {C10D}"]
    here = [*look({"0": "metrics", "1-2": "tensor"}), trace(3, elsewhere)]
    assert first(diagnose(twice(here), job(tp=2, dp=2, per_machine=1))) == ()
