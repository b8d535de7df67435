"""The levels of the ladder as diagnostics: what a launch's reports come to, and who is why it came to nothing."""

import json
from dataclasses import replace

import pytest

from hangdog_models.planning.campaign.belief import update
from hangdog_models.planning.campaign.launch import CampaignRound, Launch, LaunchBudget, LaunchOutcome, LaunchResult
from hangdog_models.planning.campaign.level_planner import (
    LADDER,
    MODES,
    NETWORK,
    Conclusion,
    LevelAnswer,
    concluded,
    diagnostics,
    modes,
    outcomes,
)
from hangdog_models.planning.campaign.prior import begin
from hangdog_models.planning.campaign.round_planner import Stop, plan
from hangdog_models.reading.hardware.test_report import read_diagnosis

ONE, BETWEEN = LADDER[1], LADDER[3]


def answer(*results: tuple[str, str], of: str = ONE.name, skipped: str = "") -> LevelAnswer:
    told = [{"test": test, "outcome": outcome, "says": f"{test} {outcome}"} for test, outcome in results]
    level = {"level": 1, "name": of, "skipped": skipped, "results": told}
    return LevelAnswer(read_diagnosis(json.dumps({"schema": "hangdog.diagnosis/1", "levels": [level]})))


PASSED, FAILED = answer(("memory", "pass"), ("gemm", "pass")), answer(("memory", "pass"), ("gemm", "fail"))
DEAD, LATE = LevelAnswer(silent="gone", out=True), LevelAnswer(silent="late")


@pytest.mark.parametrize(
    ("answers", "came"),
    [
        ({"a": PASSED}, Conclusion(LaunchResult.PASS)),
        ({"a": FAILED}, Conclusion(LaunchResult.FAIL, "gemm: gemm fail")),
        ({"a": PASSED, "b": FAILED}, Conclusion(LaunchResult.FAIL, "gemm: gemm fail")),
        ({"a": FAILED, "b": DEAD}, Conclusion(LaunchResult.FAIL, "gemm: gemm fail")),
        ({"a": PASSED, "b": DEAD}, Conclusion(LaunchResult.INCONCLUSIVE, "b: gone", {"b": "gone"}, {}, frozenset("b"))),
        ({"a": PASSED, "b": LATE}, Conclusion(LaunchResult.INCONCLUSIVE, "b: late", {"b": "late"})),
        (
            {"a": answer(skipped="no torch")},
            Conclusion(LaunchResult.INCONCLUSIVE, "a: no torch", {}, {"a": "no torch"}),
        ),
        (
            {"a": answer(("memory", "pass"), ("gemm", "inconclusive"))},
            Conclusion(LaunchResult.INCONCLUSIVE, "a: gemm: gemm inconclusive"),
        ),
        (
            {"a": answer(("memory", "pass"), of="DCGM")},
            Conclusion(LaunchResult.INCONCLUSIVE, "a: its report tells nothing of this test"),
        ),
    ],
    ids=["passes", "fails", "one fails", "fails beside a dead one", "dead", "late", "skipped", "open", "another test"],
)
def test_what_reports_come_to(answers: dict[str, LevelAnswer], came: Conclusion) -> None:
    assert concluded(ONE, answers) == came


def test_who_is_silent_alone_is_blamed_for_it() -> None:
    launch = Launch(BETWEEN, ("a", "b"), 2)
    silent = outcomes(launch, Conclusion(LaunchResult.INCONCLUSIVE, "b: late", {"b": "late"}))
    assert silent == (LaunchOutcome(Launch(BETWEEN, ("b",), 2), LaunchResult.INCONCLUSIVE, "late"),)
    unable = outcomes(launch, Conclusion(LaunchResult.INCONCLUSIVE, "", {}, {"a": "no torch"}))
    assert [one.launch.machines for one in unable] == [("a",), ("a",)], "given up at once: it will not change"
    whole = Conclusion(LaunchResult.INCONCLUSIVE, "all wait")
    assert outcomes(launch, whole) == (LaunchOutcome(launch, LaunchResult.INCONCLUSIVE, "all wait"),)


def test_only_what_can_be_shown_is_believed_of() -> None:
    assert [one.name for one in diagnostics((1, 3), 1)] == ["one device"]
    seen = modes(diagnostics((3,), 2))
    assert [(mode.name, mode.share) for mode in seen] == [(NETWORK, 1.0)]
    assert [mode.name for mode in modes(LADDER.values())] == [mode.name for mode in MODES]
    for mode in MODES:
        assert any(mode.name not in one.blind for one in LADDER.values()), f"nothing shows {mode.name}"


def test_nothing_is_launched_on_machines_that_are_gone_though_they_answered_before() -> None:
    chosen = diagnostics((1,), 3)
    belief = begin(["a", "b", "c"], modes=modes(chosen))
    belief = update(belief, [LaunchOutcome(Launch(ONE, (name,), 1), LaunchResult.PASS) for name in "abc"])
    step = plan(replace(belief, gone=frozenset("b")), chosen, LaunchBudget())
    assert isinstance(step, CampaignRound) and {name for one in step.launches for name in one.machines} == {"a", "c"}
    step = plan(replace(belief, gone=frozenset("abc")), chosen, LaunchBudget())
    assert isinstance(step, Stop) and step.untested == ("a", "b", "c")
