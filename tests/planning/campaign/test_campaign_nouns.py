"""The nouns of a campaign refuse nonsense, say what passes bought, and begin with suspicion and history."""

import pytest

from hangdog_models.planning.campaign.assurance import bought, needed
from hangdog_models.planning.campaign.belief import Belief, update
from hangdog_models.planning.campaign.conviction import by_chance, failures_needed
from hangdog_models.planning.campaign.fault import FIXED, FailureMode, grid, repetitions
from hangdog_models.planning.campaign.launch import (
    CampaignRound,
    Diagnostic,
    Launch,
    LaunchBudget,
    LaunchOutcome,
    LaunchResult,
)
from hangdog_models.planning.campaign.prior import begin

REPLAY = Diagnostic("replay", 600, setup_s=300, miss=0, false_alarm=0.0, least=2, most=4)
NAMES = [f"m{at}" for at in range(8)]


@pytest.mark.parametrize(
    ("p", "times"), [(1, 1), (0.5, 8), (0.2, 24), (0.1, 51), (0.05, 104), (0.02, 263), (0.01, 527)]
)
def test_repetitions_for_99_percent_in_both_phases(p: float, times: int) -> None:
    assert repetitions(p, 0.99, 2) == times
    assert needed([FailureMode("so", p)], REPLAY, 0.99, 2) == times


@pytest.mark.parametrize(("p", "at_95", "at_99"), [(0.5, 5, 7), (0.2, 14, 21), (0.02, 149, 228), (0.001, 2995, 4603)])
def test_repetitions_to_catch_it_once(p: float, at_95: int, at_99: int) -> None:
    assert (repetitions(p, 0.95), repetitions(p, 0.99)) == (at_95, at_99)


def test_what_cannot_be_reached_by_repeating_is_none() -> None:
    assert needed([FIXED], Diagnostic("gemm", 1, miss=0.3), 0.95) is None
    assert needed(grid(1, 0.5), Diagnostic("gemm", 1, miss=0, blind=("shows in 0.5 of runs",)), 0.95) is None


def test_passes_buy_detection_and_never_health() -> None:
    belief = begin(NAMES, modes=grid(1, 0.2))
    passed = LaunchOutcome(Launch(REPLAY, ("m1", "m0"), 10), LaunchResult.PASS)
    lost = LaunchOutcome(Launch(REPLAY, ("m0", "m2"), 99), LaunchResult.INCONCLUSIVE)
    failed = LaunchOutcome(Launch(REPLAY, ("m0", "m3"), 99), LaunchResult.FAIL)
    said = bought(update(belief, [passed, passed, lost, failed]))
    assert [(one.machine, one.launches, one.repetitions) for one in said] == [("m0", 2, 20), ("m1", 2, 20)]
    assert said[0].detection == pytest.approx({"fixed": 1, "shows in 0.2 of runs": 1 - 0.8**20}, abs=1e-5)
    text = str(said[0])
    assert text.startswith("m0: not convicted ") and " replay, 20 repetitions" in text and ": fixed 1.000, " in text
    assert "healthy" not in str(said)


@pytest.mark.parametrize(
    ("alike", "alarm", "times"), [(1, 0.02, 2), (8, 0.02, 3), (100, 0.02, 3), (1024, 0.02, 4), (1024, 0, 2)]
)
def test_the_more_are_equally_suspected_the_more_failures_convict(alike: int, alarm: float, times: int) -> None:
    assert failures_needed(alike, alarm) == times


def test_failures_by_chance_are_those_of_the_binomial() -> None:
    assert by_chance([0.5] * 4, 3) == pytest.approx(5 / 16)
    assert by_chance([0.1, 0.2], 1) == pytest.approx(1 - 0.9 * 0.8) and by_chance([], 0) == 1


def test_a_campaign_begins_with_suspicion_and_a_prior_for_everybody_else() -> None:
    belief = begin(NAMES, {"m2": 3, "m5": 1}, none=0.1, others=0.12)
    assert belief.machines["m2"] == pytest.approx(0.585) and belief.machines["m5"] == pytest.approx(0.195)
    assert belief.machines["m0"] == pytest.approx(0.02) and list(belief.machines) == NAMES
    assert set(begin(NAMES, none=0.2).machines.values()) == {0.1}


def test_history_follows_the_serial_number_into_another_machine() -> None:
    offences = {"GPU-7": 1}
    before = begin(NAMES, serials={"m0": ["GPU-7", "GPU-8"]}, offences=offences).machines
    after = begin(NAMES, serials={"m0": ["GPU-8"], "m4": ["GPU-7"]}, offences=offences).machines
    assert before["m0"] == after["m4"] == pytest.approx(5 * after["m0"]) and after["m1"] == after["m0"]


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: begin(NAMES, {"m9": 1}),
        lambda: begin(["a", "a"]),
        lambda: begin(NAMES, {"m1": -1}),
        lambda: Belief({"a": 0.5}, 0.4),
        lambda: Belief({}, 1.0),
        lambda: Belief({"a": 0.5}, 0.4, leaf=0.1),
        lambda: Belief({"a": 0.5}, 0.5, leafs={"left": ("b",)}),
        lambda: Belief({"a": 0.5}, 0.5, further=1.0),
        lambda: Belief({"a": 0.5}, 0.5, modes=(FailureMode("rare", 0.5, 0.5),)),
        lambda: FailureMode("never", 0.0),
        lambda: repetitions(0.5, 1.0),
        lambda: Diagnostic("free", 0),
        lambda: Diagnostic("sure", 1, miss=1.0),
        lambda: Diagnostic("none", 1, least=2),
        lambda: Diagnostic("odd", 1, least=3, most=5, multiple=8),
    ],
)  # fmt: skip
def test_nonsense_is_refused(nonsense: object) -> None:
    assert callable(nonsense)
    with pytest.raises(ValueError):
        nonsense()


def test_a_budget_is_spent_by_the_longest_launch_and_every_launch() -> None:
    spent = CampaignRound((Launch(REPLAY, ("m0", "m1"), 2), Launch(REPLAY, ("m2", "m3"))), 1.0, "")
    assert spent.seconds == 1500
    assert LaunchBudget(2000, 10, 3).after(spent) == LaunchBudget(500, 8, 2)
