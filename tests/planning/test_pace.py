"""Who is too slow: beside its like, outside of their spread, or below a floor; two alone never tell."""

import math

import pytest

from hangdog_models.planning.pace import too_slow


@pytest.mark.parametrize("rate", [1.0, 0.96, 2.0])
def test_one_like_the_others_is_not(rate: float) -> None:
    assert too_slow(rate, [1.0, 1.01, 0.99]) == ""


def test_one_below_them_is_told_by_how_much() -> None:
    told = too_slow(0.8, [1.0, 1.01, 0.99])
    assert told.startswith("20% ") and " 3 " in told and told.endswith("(median 1)")


def test_what_lies_within_their_own_spread_is_not_slow() -> None:
    assert too_slow(0.8, [0.7, 1.0, 1.3, 0.8]) == ""


def test_one_other_is_no_cohort() -> None:
    assert too_slow(0.1, [1.0]) == too_slow(0.1, []) == ""


def test_a_floor_counts_without_any_others_and_what_was_not_measured_is_below_it() -> None:
    told = too_slow(0.9, [], floor=1.0)
    assert told.endswith(" floor of 1") and too_slow(math.nan, [], floor=1.0) == told
    assert too_slow(1.0, [], floor=1.0) == ""
