"""The figures of `bench/ettr`: which failures come when, and what each cost."""

from itertools import pairwise

import pytest

from ettr.failures import WHAT, WORLD, Failure, drawn
from ettr.outages import Kept, kept, table

KILLED, LOOP = Failure("killed", 1, 20), Failure("loop", 2, 40)


def test_a_seed_draws_each_failure_once_and_apart() -> None:
    found = drawn(1, 7200)
    assert found == drawn(1, 7200) != drawn(2, 7200)
    assert {one.what for one in found} == set(WHAT) and all(0 <= one.rank < WORLD for one in found)
    gaps = [after.step - before.step for before, after in pairwise(found)]
    assert min([found[0].step, *gaps, 7200 - found[-1].step]) >= 7200 / 11 * 0.6


def test_what_a_failure_cost_is_the_time_until_a_step_that_is_new() -> None:
    """Step 20 is the last one; then it resumes after step 10, and makes ten steps again."""
    steps = [(step, 0.5 * step) for step in range(1, 21)]
    steps += [(step, 30.0 + 0.5 * step) for step in range(11, 41)]
    found = kept(steps, {KILLED: 9.8, LOOP: 50.0})
    assert [one.seconds for one in found.lost] == [pytest.approx(40.5 - 9.8), None]
    assert found.wall_s == pytest.approx(50.0) and found.trained_s == pytest.approx(20.0)
    assert found.share == pytest.approx(0.4)


def test_a_run_without_a_step_kept_nothing() -> None:
    assert kept([], {}).share == 0.0


def test_the_table_says_what_was_not_reached() -> None:
    text = table({"hangdog": kept([(1, 0.0), (2, 0.5)], {KILLED: 0.4}), "torchrun": Kept(0.0, 0.0, ())}, [KILLED])
    (row,) = [line.strip("| ").split(" | ") for line in text.splitlines() if "not reached" in line]
    assert row[0].startswith("a rank is killed") and row[1:] == ["crash", "never trained on", "not reached"]
