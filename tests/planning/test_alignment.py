"""Comparing digests: one that differs is named inside its own cohort, and where nobody can know, nobody is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.planning.alignment import GoldenAnswer, Odd, compare

RIGHT = {"output": "aa", "gradient": "bb", "updated": "cc"}
WRONG = RIGHT | {"gradient": "xx", "updated": "yy"}
OTHER = RIGHT | {"updated": "zz"}


def answers(*digests: dict[str, str], key: str = "H100") -> list[GoldenAnswer]:
    return [GoldenAnswer(f"m{at}", key, each) for at, each in enumerate(digests)]


def test_one_of_three_that_differs_is_named_with_its_items() -> None:
    (cohort,) = compare(answers(RIGHT, WRONG, RIGHT))
    assert (cohort.agreed, cohort.odd, cohort.open) == (("m0", "m2"), (Odd("m1", ("gradient", "updated")),), "")
    assert cohort.usual == RIGHT


def test_an_item_that_is_missing_or_more_is_a_difference() -> None:
    (cohort,) = compare(answers(RIGHT, RIGHT, RIGHT, {"output": "aa", "more": "d"}))
    assert cohort.odd == (Odd("m3", ("more", "gradient", "updated")),)


@pytest.mark.parametrize(
    ("given", "open_"),
    [
        ([RIGHT, WRONG], "2 that differ"),
        ([RIGHT, WRONG, OTHER], "3 gave 3 answers"),
        ([RIGHT, RIGHT, WRONG, WRONG], "4 gave 2 answers"),
        ([RIGHT, RIGHT, WRONG, OTHER], "4 gave 3 answers"),
        ([RIGHT], "nobody to compare"),
        ([RIGHT, RIGHT, {}], "no digests"),
    ],
)
def test_where_nobody_can_know_nobody_is_named(given: list[dict[str, str]], open_: str) -> None:
    (cohort,) = compare(answers(*given))
    assert (cohort.odd, cohort.agreed) == ((), ()) and open_ in cohort.open


def test_keys_are_never_compared() -> None:
    cohorts = compare([*answers(RIGHT, RIGHT, RIGHT), *answers(WRONG, WRONG, WRONG, key="H200")])
    assert [(cohort.key, cohort.odd, cohort.open) for cohort in cohorts] == [("H100", (), ""), ("H200", (), "")]


def test_a_golden_answer_decides_between_two_and_for_one() -> None:
    assert compare(answers(RIGHT, WRONG), {"H100": RIGHT})[0].odd[0].name == "m1"
    assert compare(answers(WRONG), {"H100": RIGHT})[0].odd[0].name == "m0"
    assert compare(answers(RIGHT, WRONG, WRONG), {"H100": RIGHT})[0].agreed == ("m0",), "it outvotes a live majority"
    assert compare(answers(WRONG), {"H100, driver 580": RIGHT})[0].open, "only under exactly its key"


def test_a_golden_answer_that_nobody_reproduces_convicts_nobody() -> None:
    (cohort,) = compare(answers(WRONG, WRONG, WRONG), {"H100": RIGHT})
    assert not cohort.odd and "stored answer" in cohort.open


@given(st.lists(st.sampled_from([RIGHT, WRONG, OTHER]), min_size=1, max_size=9))
def test_only_a_minority_is_ever_named_whatever_the_order(given: list[dict[str, str]]) -> None:
    (cohort,) = compare(answers(*given))
    assert 2 * len(cohort.odd) < len(given) or not cohort.odd
    assert bool(cohort.open) == (not cohort.agreed)
    (mirrored,) = compare(list(reversed(answers(*given))))
    assert {odd.name for odd in mirrored.odd} == {odd.name for odd in cohort.odd}
