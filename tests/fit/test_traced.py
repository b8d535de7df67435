"""Numbers that remember what they were made of: what they say moves them is what does."""

import copy
from collections.abc import Callable
from math import exp, log, prod

import pytest

from fit.traced import Traced, moved_by, traced
from hangdog_models.rules.likelihoods import by_cause, likelihood, packaged

A, B = Traced(3.0, {"a": 1.0}), Traced(0.5, {"b": 1.0})
STEP = 1e-6


@pytest.mark.parametrize(
    "made",
    [
        lambda a, b: a * b,
        lambda a, b: 2.0 * a / b,
        lambda a, b: 4.0 / a * 3,
        lambda a, b: a + 2.0 * b + 1.0,
        lambda a, b: a - b,
        lambda a, b: 1 - b,
        lambda a, b: a**2 * b**a,
        lambda a, b: 2.0**b,
        lambda a, b: prod([a, 2.0, b, b]),
        lambda a, b: sum([a, b, 1.0]),
        lambda a, b: min(a, b) * max(a, 10.0),
        lambda a, b: a / (a + b),
        lambda a, b: max(a, b) ** 0.5,
    ],
)
def test_what_moves_a_number_is_what_a_small_step_shows(made: Callable[[float, float], float]) -> None:
    told = moved_by(made(A, B))
    assert float(made(A, B)) == made(3.0, 0.5)
    for row, stepped in (("a", made(3.0 * exp(STEP), 0.5)), ("b", made(3.0, 0.5 * exp(STEP)))):
        assert told.get(row, 0.0) == pytest.approx((log(stepped) - log(made(3.0, 0.5))) / STEP, abs=1e-4)


def test_nothing_has_no_logarithm_and_nothing_moves_it() -> None:
    assert moved_by(A - A) == {} == moved_by((A - A) ** 2) == moved_by(2.0)


def test_a_copy_remembers_it_too() -> None:
    assert moved_by(copy.deepcopy(A * B)) == {"a": 1.0, "b": 1.0}


def test_each_number_of_the_table_remembers_its_row() -> None:
    rows = traced(packaged())
    alone, each = rows["sharpness"].value, rows["doing_dead"].value
    assert isinstance(alone, float) and alone == likelihood("sharpness") and moved_by(alone) == {"sharpness": 1.0}
    assert not isinstance(each, float) and dict(each) == dict(by_cause("doing_dead"))
    assert moved_by(each["software"]) == {"doing_dead.software": 1.0}
