"""Every number of the table of likelihoods earns its place: the case in its row is answered otherwise when it is halved."""

from collections.abc import Mapping
from functools import cache

import pytest

from fit.reweighed import judging_by
from hangdog_models.rules.likelihoods import packaged
from support.cases.reweighed import Answers, answers, changed

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

#: Numbers whose case shows nothing when they are halved, and is answered otherwise when they are doubled.
DOUBLED = {
    "alone_among_least": "a border: in no case do fewer ranks wait",
    "each_further_at_once": "faults at once are too improbable to be named in a case, less so twice as much",
    "false_alarms": "a bound: who is named is so by far more than twice of it",
    "lost_at_least_ns": "a border: nobody is named who lost less",
    "lost_to_sound_hosts": "the odds of its case are at a bound of their own, `late_untold`",
    "old_dumps_share": "a border: in no case are fewer contradicted",
    "rival_share": "a border: in no case is a rival between it and its half",
    "role_has_more": "the case lies just beside the border",
    "worth_naming_first": "a border: in no case is the first one below it",
}
#: Numbers that no case is known for, and why they stay until one is.
UNPROVEN: Mapping[str, str] = {"doing_unknown.machine": "only for a root at an activity that a new rule may bring"}


def numbers() -> list[tuple[str, str]]:
    """Each number by its row and, where a row has several, its cause."""
    rows = packaged().items()
    return [(name, cause) for name, row in rows for cause in (row.value if isinstance(row.value, Mapping) else ("",))]


def written(name: str, cause: str) -> str:
    return f"{name}.{cause}" if cause else name


def case_of(name: str, cause: str) -> str:
    case = packaged()[name].case
    return case.get(cause, "") if isinstance(case, Mapping) else case


@cache
def usual(case: str) -> Answers:
    with judging_by(packaged()):
        return answers(case)


def test_numbers_without_a_case_are_listed() -> None:
    assert {written(*number) for number in numbers() if not case_of(*number)} == set(UNPROVEN)


@pytest.mark.parametrize(("name", "cause"), numbers())
def test_another_number_answers_its_case_otherwise(name: str, cause: str) -> None:
    case = case_of(name, cause)
    if not case:
        assert UNPROVEN[written(name, cause)]
        return
    times = 2.0 if written(name, cause) in DOUBLED else 0.5
    with judging_by(changed(name, cause, times)):
        assert answers(case) != usual(case), f"{case} does not depend on it"
