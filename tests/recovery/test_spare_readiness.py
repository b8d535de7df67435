"""What is done ahead for spares, by the history alone: what is due, which pass counts, and when a person is told."""

import re

import pytest

from hangdog_models.planning.standby import too_few_spares
from hangdog_models.recovery.journal import read, written
from hangdog_models.recovery.ladder_state import stand
from hangdog_models.recovery.recovery_history import Began, Entry, SpareOutcome, SpareTested, SpareWarmed
from hangdog_models.recovery.spare_readiness import (
    FIRST_S,
    MOST_S,
    RENEW,
    SparePolicy,
    SpareReadiness,
    SpareTask,
    in_order_of_use,
    is_fresh,
    next_task,
    readiness,
    tells_a_person,
)

POLICY = SparePolicy((1,), 1000.0, "warm {machine}")
SPARES = ("c", "d")


def trial(at: float, machine: str, outcome: SpareOutcome, *levels: int) -> SpareTested:
    return SpareTested(at, machine, levels or (1,), outcome, "" if outcome is SpareOutcome.PASSED else "a reason")


def due(history: list[Entry], now: float, policy: SparePolicy = POLICY) -> tuple[SpareTask, str] | None:
    return next_task(SPARES, readiness(history, policy), policy, now)


def fresh(history: list[Entry], now: float, machine: str = "c") -> bool:
    return is_fresh(readiness(history, POLICY).get(machine, SpareReadiness()), POLICY, now)


def test_each_is_tested_then_warmed_and_tested_again_before_its_pass_is_too_old() -> None:
    history: list[Entry] = []
    assert due(history, 0.0) == (SpareTask.TEST, "c")
    history += [trial(10.0, "c", SpareOutcome.PASSED)]
    assert due(history, 11.0) == (SpareTask.TEST, "d")
    history += [trial(20.0, "d", SpareOutcome.PASSED)]
    assert due(history, 21.0) == (SpareTask.WARM, "c")
    history += [SpareWarmed(30.0, "c", POLICY.warm, ok=True), SpareWarmed(40.0, "d", POLICY.warm, ok=True)]
    assert due(history, 41.0) is None
    renewed = 10.0 + RENEW * POLICY.age_s
    assert due(history, renewed - 1) is None and due(history, renewed) == (SpareTask.TEST, "c")
    assert [read(written(entry)) for entry in history] == history


def test_a_policy_that_asks_for_nothing_does_nothing() -> None:
    assert due([], 0.0, SparePolicy()) is None
    assert due([], 0.0, SparePolicy((), 1000.0, "x")) == (SpareTask.WARM, "c")


def test_a_pass_counts_until_it_is_too_old_and_not_by_fewer_levels_or_a_date_to_come() -> None:
    passed: list[Entry] = [trial(10.0, "c", SpareOutcome.PASSED)]
    assert [fresh(passed, now) for now in (9.0, 10.0, 1010.0, 1011.0)] == [False, True, True, False]
    assert not fresh([trial(10.0, "c", SpareOutcome.PASSED, 2)], 11.0)
    assert fresh([trial(10.0, "c", SpareOutcome.PASSED, 1, 4)], 11.0)
    assert not fresh(passed, 11.0, "d")


@pytest.mark.parametrize(
    ("outcome", "still"),
    [(SpareOutcome.DOUBTFUL, False), (SpareOutcome.CONVICTED, False), (SpareOutcome.UNANSWERED, True)],
)
def test_a_failure_takes_a_pass_back_and_a_test_that_was_not_held_does_not(outcome: SpareOutcome, still: bool) -> None:
    assert fresh([trial(10.0, "c", SpareOutcome.PASSED), trial(20.0, "c", outcome)], 30.0) is still


def test_what_did_not_succeed_is_tried_again_after_pauses_that_double_up_to_an_hour() -> None:
    only_c = SparePolicy((1,), 1e6)
    history: list[Entry] = []
    pauses = []
    for at in range(0, 80_000, 10_000):
        history.append(trial(float(at), "c", SpareOutcome.UNANSWERED))
        known = readiness(history, only_c)
        waits = [wait for wait in range(0, 4000, 10) if next_task(("c",), known, only_c, at + float(wait))]
        pauses.append(waits[0])
    assert (pauses[:3], pauses[-1]) == ([FIRST_S, 2 * FIRST_S, 4 * FIRST_S], MOST_S)
    assert next_task(("c",), readiness(history, only_c), only_c, -1.0), "a clock set back prolongs nothing"


def test_one_that_cannot_be_tested_does_not_keep_the_others_from_it() -> None:
    assert due([trial(10.0, "c", SpareOutcome.UNANSWERED)], 11.0) == (SpareTask.TEST, "d")
    policy = SparePolicy(warm="x")
    assert due([SpareWarmed(10.0, "c", "x", ok=False, message="no")], 11.0, policy) == (SpareTask.WARM, "d")
    assert due([SpareWarmed(10.0, "c", "y", ok=True)], 11.0, policy) == (SpareTask.WARM, "c"), "another command"


def test_an_eviction_takes_the_spare_for_which_the_job_waits_least() -> None:
    history: list[Entry] = [
        trial(10.0, "c", SpareOutcome.DOUBTFUL),
        trial(10.0, "e", SpareOutcome.PASSED),
        trial(10.0, "f", SpareOutcome.PASSED),
        SpareWarmed(10.0, "f", POLICY.warm, ok=True),
    ]
    known = readiness(history, POLICY)
    assert in_order_of_use("cdefg", known, POLICY, 20.0, "g") == ("f", "e", "g", "d", "c")
    assert in_order_of_use("cdefg", {}, SparePolicy(), 20.0, "") == tuple("cdefg")


def test_a_person_is_told_of_a_conviction_and_once_of_one_that_never_passes() -> None:
    history: list[Entry] = []
    calls = []
    for at in range(6):
        history.append(trial(float(at), "c", SpareOutcome.DOUBTFUL if at % 2 else SpareOutcome.UNANSWERED))
        calls.append(tells_a_person(readiness(history, POLICY)["c"]))
    assert calls == [False, False, True, False, False, False]
    assert tells_a_person(readiness([trial(1.0, "c", SpareOutcome.CONVICTED)], POLICY)["c"])
    assert not tells_a_person(readiness([trial(1.0, "c", SpareOutcome.PASSED)], POLICY)["c"])


def test_a_spare_that_tests_ahead_convicted_is_out_for_good() -> None:
    history: list[Entry] = [Began(0.0, ("a",), "t"), trial(1.0, "c", SpareOutcome.CONVICTED)]
    assert stand(history, 2.0).out == ("c",)
    assert stand([Began(0.0, ("a",), "t"), trial(1.0, "c", SpareOutcome.DOUBTFUL)], 2.0).out == ()


def test_a_job_with_too_few_spares_is_told_how_many_would_do() -> None:
    assert [too_few_spares(machines, kept) for machines, kept in ((2, 0), (3, 1), (1024, 9))] == ["", "", ""]
    assert re.match(r"1024 machines with 8 spares: 9 .*\b99%", too_few_spares(1024, 8))
    assert too_few_spares(3, 0).startswith("3 machines with no spare: 1 ")
    assert "plan standby --machines 3 --p" in too_few_spares(3, 0)
    assert too_few_spares(2_000_000, 0)
