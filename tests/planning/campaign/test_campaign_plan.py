"""Campaigns planned on small simulated clusters: who is found, who never is, what is told of the network, and when it ends."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_models.planning.campaign.belief import Belief, update
from hangdog_models.planning.campaign.fault import FIXED, FailureMode, Where, grid
from hangdog_models.planning.campaign.launch import (
    CampaignRound,
    Diagnostic,
    Launch,
    LaunchBudget,
    LaunchOutcome,
    LaunchResult,
)
from hangdog_models.planning.campaign.prior import begin
from hangdog_models.planning.campaign.round_planner import Because, Stop, plan
from hangdog_models.planning.campaign.thresholds import Thresholds

NAMES = [f"m{at:02}" for at in range(32)]
RING = Diagnostic("ring", 60, setup_s=30, miss=0.0, false_alarm=0.02, least=2, most=16, network=True)
GEMM = Diagnostic("gemm", 60, miss=0.0, false_alarm=0.02)
Fails = Callable[[Launch], bool | None]


def campaign(
    belief: Belief, diagnostics: list[Diagnostic], budget: LaunchBudget, fails: Fails
) -> tuple[Stop, list[CampaignRound]]:
    """Launches until the end; `fails` answers None for what stays without an answer."""
    rounds: list[CampaignRound] = []
    while isinstance(step := plan(belief, diagnostics, budget), CampaignRound):
        answers = [fails(launch) for launch in step.launches]
        results = [
            LaunchResult.INCONCLUSIVE if bad is None else LaunchResult.FAIL if bad else LaunchResult.PASS
            for bad in answers
        ]
        belief = update(belief, map(LaunchOutcome, step.launches, results))
        budget = budget.after(step)
        rounds.append(step)
        assert len(rounds) < 60, "a campaign ends"
    return step, rounds


def holds(*machines: str) -> Fails:
    return lambda launch: bool(set(machines) & set(launch.machines))


@pytest.mark.parametrize("culprit", ["m00", "m13", "m31"])
def test_one_launch_at_a_time_halves(culprit: str) -> None:
    stop, rounds = campaign(begin(NAMES), [replace(RING, false_alarm=0.0)], LaunchBudget(parallel=1), holds(culprit))
    assert stop.evict == (culprit,) and stop.reason is Because.SETTLED and stop.covered > 0.95
    assert {len(one.launches) for one in rounds} == {1} and len(rounds) <= 8
    assert len(rounds[0].launches[0].machines) == 16


def test_all_at_once_takes_as_many_rounds_as_convict() -> None:
    stop, rounds = campaign(begin(NAMES), [GEMM], LaunchBudget(), holds("m13"))
    assert stop.evict == ("m13",) and len(rounds) == 3
    assert len(rounds[0].launches) == 32 and len(rounds[-1].launches) == 1


def test_few_launches_make_more_rounds() -> None:
    for launches in (12, 32):
        stop, rounds = campaign(begin(NAMES), [RING], LaunchBudget(launches=launches), holds("m13"))
        assert stop.evict == ("m13",) and sum(len(one.launches) for one in rounds) <= launches


def test_suspects_go_first_and_apart() -> None:
    belief = begin(NAMES, {"m04": 1, "m05": 1, "m06": 1}, others=0.02)
    step = plan(belief, [RING], LaunchBudget())
    assert isinstance(step, CampaignRound)
    where = {name: at for at, launch in enumerate(step.launches) for name in launch.machines}
    assert len({where[name] for name in ("m04", "m05", "m06")}) == 3


@pytest.mark.parametrize("false_alarm", [0.02, 0.0])
def test_one_failure_convicts_nobody_whatever_was_believed_before(false_alarm: float) -> None:
    """Not even where the diagnostic claims never to err, and nothing is left to learn: then it is asked once more."""
    gemm = replace(GEMM, false_alarm=false_alarm)
    belief = begin(NAMES, {"m04": 1}, none=0.004, others=0.003)
    once = update(belief, [LaunchOutcome(Launch(gemm, ("m04",)), LaunchResult.FAIL)])
    step = plan(once, [gemm], LaunchBudget())
    assert isinstance(step, CampaignRound) and any("m04" in launch.machines for launch in step.launches)
    spent = plan(once, [gemm], LaunchBudget(launches=0))
    assert isinstance(spent, Stop) and not spent.evict and spent.reason is Because.SPENT
    assert spent.instead == ("m04",), "evicting without further tests is offered, and not done"
    twice = plan(update(once, [LaunchOutcome(Launch(gemm, ("m04",)), LaunchResult.FAIL)]), [gemm], LaunchBudget())
    assert isinstance(twice, Stop) and twice.evict == ("m04",)


def test_a_machine_nobody_suspected_must_fail_more_often_than_chance_makes_one_of_many_fail() -> None:
    belief = begin([f"m{at}" for at in range(200)])
    failure = LaunchOutcome(Launch(GEMM, ("m4",)), LaunchResult.FAIL)
    passed = [LaunchOutcome(Launch(GEMM, (name,)), LaunchResult.PASS) for name in belief.machines if name != "m4"]
    seen = [plan(update(belief, [*passed, *[failure] * times]), [GEMM], LaunchBudget(rounds=0)) for times in (2, 3, 4)]
    assert [isinstance(stop, Stop) and stop.evict for stop in seen] == [(), (), ("m4",)]


@pytest.mark.parametrize(
    ("thresholds", "evicts"),
    [
        ({}, [(), (), ("m4",)]),
        ({"innocent": 0.1}, [(), ("m4",), ("m4",)]),
        ({"innocent": 1.0, "sure": 0.5}, [("m4",)] * 3),
        ({"innocent": 1.0, "sure": 0.5, "failures": 3}, [(), ("m4",), ("m4",)]),
        ({"innocent": 0.1, "sure": 0.999_99}, [(), (), ("m4",)]),
    ],
)
def test_how_much_convicts_is_the_users_to_say(thresholds: dict[str, Any], evicts: list[tuple[str, ...]]) -> None:
    belief = begin([f"m{at}" for at in range(200)])
    failure = LaunchOutcome(Launch(GEMM, ("m4",)), LaunchResult.FAIL)
    passed = [LaunchOutcome(Launch(GEMM, (name,)), LaunchResult.PASS) for name in belief.machines if name != "m4"]
    stops = [
        plan(update(belief, [*passed, *[failure] * times]), [GEMM], LaunchBudget(rounds=0), Thresholds(**thresholds))
        for times in (2, 3, 4)
    ]
    assert [isinstance(stop, Stop) and stop.evict for stop in stops] == evicts


def test_when_a_campaign_ends_is_the_users_to_say() -> None:
    belief = begin(NAMES, none=0.9)
    ended = plan(belief, [GEMM], LaunchBudget(), Thresholds(target=0.85))
    assert isinstance(ended, Stop) and ended.reason is Because.SETTLED
    assert isinstance(plan(belief, [GEMM], LaunchBudget()), CampaignRound)
    modes = (FailureMode("rare", 0.2),)
    deep, shallow = (
        plan(begin(NAMES[:2], modes=modes), [replace(GEMM, setup_s=6000)], LaunchBudget(), Thresholds(seen=seen))
        for seen in (0.99, 0.5)
    )
    assert isinstance(deep, CampaignRound) and isinstance(shallow, CampaignRound)
    assert deep.launches[0].repetitions > shallow.launches[0].repetitions == 4
    silent = plan(belief, [GEMM], LaunchBudget(), Thresholds(worth=100))
    assert isinstance(silent, Stop) and silent.reason is Because.SILENT


@pytest.mark.parametrize("wrong", [{"target": 1.0}, {"sure": 0.0}, {"failures": 0}, {"innocent": 0.0}, {"worth": -1.0}])
def test_thresholds_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Thresholds(**wrong)


def test_every_threshold_and_its_default_is_documented() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/planning.md").read_text(encoding="utf-8")
    for one in fields(Thresholds):
        assert f"| `{one.name}` | {one.default} |" in page, one.name


def test_two_faults_are_both_found() -> None:
    stop, _ = campaign(begin(NAMES), [RING], LaunchBudget(), holds("m03", "m04"))
    assert stop.evict == ("m03", "m04")


def test_two_that_fail_only_together_evict_nobody() -> None:
    belief = begin(NAMES[:16], link=0.3)
    stop, _ = campaign(belief, [RING], LaunchBudget(), lambda launch: {"m02", "m11"} <= set(launch.machines))
    assert not stop.evict
    assert [(place.where, place.names) for place in stop.tell] == [(Where.LINK, ("m02", "m11"))]


def test_where_only_a_link_can_be_left_machines_meet_that_never_met() -> None:
    groups = [NAMES[at : at + 4] for at in range(0, 16, 4)]
    passed = [LaunchOutcome(Launch(RING, tuple(group)), LaunchResult.PASS) for group in groups for _ in range(3)]
    step = plan(update(begin(NAMES[:16], link=0.3), passed), [replace(RING, most=4)], LaunchBudget())
    assert isinstance(step, CampaignRound) and len(step.launches) == 4
    for launch in step.launches:
        assert all(len(set(group) & set(launch.machines)) == 1 for group in groups)


def test_a_leaf_evicts_nobody() -> None:
    leafs = {"left": tuple(NAMES[:16]), "right": tuple(NAMES[16:])}
    stop, _ = campaign(begin(NAMES, leafs=leafs, leaf=0.1), [RING], LaunchBudget(), holds(*NAMES[16:]))
    assert not stop.evict and [str(place) for place in stop.tell] == ["leaf right"]


def test_one_that_never_answers_keeps_nobody_else_from_being_tested() -> None:
    """Without an answer a launch says nothing of anybody; who alone is in the way is given up, and named."""

    def fails(launch: Launch) -> bool | None:
        return None if "m09" in launch.machines else "m20" in launch.machines

    stop, _ = campaign(begin(NAMES), [RING], LaunchBudget(), fails)
    assert stop.evict == ("m20",) and stop.untested in ((), ("m09",))
    stop, rounds = campaign(
        begin(NAMES), [RING], LaunchBudget(), lambda launch: None if "m09" in launch.machines else False
    )
    assert not stop.evict and stop.untested == ("m09",) and str(stop.ranked[0][0]) == "m09"
    assert len(rounds) < 12


def test_where_nothing_answers_the_campaign_ends() -> None:
    stop, _ = campaign(begin(NAMES[:4]), [GEMM, RING], LaunchBudget(), lambda launch: None)
    assert not stop.evict and stop.reason is not Because.SETTLED


def test_rare_faults_are_repeated_and_nothing_found_is_no_health() -> None:
    rare = (FailureMode("rare", 0.05),)
    step = plan(begin(NAMES[:4], modes=rare), [replace(GEMM, setup_s=600)], LaunchBudget())
    assert isinstance(step, CampaignRound) and step.launches[0].repetitions >= 8
    stop, rounds = campaign(begin(NAMES[:4], modes=grid(1, 0.05)), [GEMM], LaunchBudget(), lambda launch: False)
    assert stop.reason is Because.SETTLED and not stop.evict and 0.95 <= stop.none < 1
    assert max(launch.repetitions for one in rounds for launch in one.launches) > 1


def test_the_diagnostic_that_tells_most_for_its_time_is_taken() -> None:
    slow = replace(GEMM, name="eud", seconds=3600, false_alarm=0.001)
    step = plan(begin(NAMES), [slow, GEMM], LaunchBudget())
    assert isinstance(step, CampaignRound) and {launch.diagnostic.name for launch in step.launches} == {"gemm"}
    blind = replace(GEMM, blind=(FIXED.name,))
    step = plan(begin(NAMES), [slow, blind], LaunchBudget())
    assert isinstance(step, CampaignRound) and {launch.diagnostic.name for launch in step.launches} == {"eud"}


@pytest.mark.parametrize(
    "budget",
    [LaunchBudget(seconds=10), LaunchBudget(launches=0), LaunchBudget(rounds=0), LaunchBudget(parallel=0)],
    ids=str,
)
def test_nothing_is_planned_beyond_the_budget(budget: LaunchBudget) -> None:
    stop = plan(begin(NAMES), [GEMM, RING], budget)
    assert isinstance(stop, Stop) and stop.reason is Because.SPENT and not stop.evict


def test_a_price_makes_for_fewer_launches() -> None:
    free, dear = (plan(begin(NAMES), [replace(GEMM, most=16, price=price)], LaunchBudget()) for price in (0, 600))
    assert (
        isinstance(free, CampaignRound) and isinstance(dear, CampaignRound) and len(dear.launches) < len(free.launches)
    )


def test_groups_are_filled_up_with_those_nobody_suspects() -> None:
    replay = replace(RING, least=8, most=8, multiple=8)
    belief = update(begin(NAMES), [LaunchOutcome(Launch(replay, tuple(NAMES[8:16])), LaunchResult.FAIL)])
    belief = update(
        belief, [LaunchOutcome(Launch(replay, tuple(NAMES[at : at + 8])), LaunchResult.PASS) for at in (0, 16, 24)]
    )
    step = plan(belief, [replay], LaunchBudget())
    assert isinstance(step, CampaignRound)
    for launch in step.launches:
        assert len(launch.machines) == 8 and len(set(launch.machines) & set(NAMES[8:16])) <= 4
