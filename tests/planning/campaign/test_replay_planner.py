"""A campaign of replays: fixed groups first, a machine where failed groups cross, and nobody where all of them fail."""

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest

from hangdog_models.errors import WrongUse
from hangdog_models.planning.campaign.belief import Belief, update
from hangdog_models.planning.campaign.launch import CampaignRound, LaunchBudget, LaunchOutcome, LaunchResult
from hangdog_models.planning.campaign.level_planner import IN_A_JOB, LADDER, REPLAY, modes
from hangdog_models.planning.campaign.prior import begin
from hangdog_models.planning.campaign.replay_planner import LARGEST, group_size, groups, plan_replay
from hangdog_models.planning.campaign.round_planner import Because, Stop
from support.refused import refused

BUDGET = LaunchBudget(600.0)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"m{at:02d}" for at in range(count))


def believed(count: int) -> Belief:
    return begin(names(count), none=0.5, link=0.05, modes=modes((LADDER[REPLAY],)))


def led(count: int, fails: Callable[[Collection[str]], bool], size: int = 0) -> tuple[list[CampaignRound], Stop]:
    """A campaign in which a group fails as told."""
    machines, belief, rounds = names(count), believed(count), list[CampaignRound]()
    size = group_size(count, size)
    replay = replace(LADDER[REPLAY], most=size)
    while True:
        step = plan_replay(belief, replay, machines, size, len(rounds), BUDGET)
        if isinstance(step, Stop):
            return rounds, step
        rounds.append(step)
        came = [LaunchResult.FAIL if fails(one.machines) else LaunchResult.PASS for one in step.launches]
        outcomes = [LaunchOutcome(one, result) for one, result in zip(step.launches, came, strict=True)]
        belief = update(belief, outcomes)


@pytest.mark.parametrize(("machines", "most"), [(4, 3), (5, 4), (6, 3), (7, 3), (12, 4), (24, 3), (64, 3)])
def test_one_faulty_machine_is_found_wherever_it_is(machines: int, most: int) -> None:
    for bad in names(machines):
        rounds, stop = led(machines, lambda group, bad=bad: bad in group)  # type: ignore[misc]
        assert (stop.evict, stop.reason) == ((bad,), Because.SETTLED)
        assert len(rounds) <= most + 1


def test_two_faulty_machines_are_found() -> None:
    assert set(led(24, lambda group: bool({"m02", "m07"} & set(group)))[1].evict) == {"m02", "m07"}


@pytest.mark.parametrize("machines", [3, 4, 6, 24])
def test_sound_machines_are_cleared(machines: int) -> None:
    rounds, stop = led(machines, lambda group: False)
    assert (stop.evict, stop.tell, stop.reason) == ((), (), Because.SETTLED) and stop.covered >= 0.95
    assert {name for one in rounds for launch in one.launches for name in launch.machines} == set(names(machines))


@pytest.mark.parametrize("machines", [4, 6, 12, 24])
def test_where_every_group_fails_nobody_is_blamed(machines: int) -> None:
    rounds, stop = led(machines, lambda group: True)
    assert (stop.evict, stop.tell, stop.reason) == ((), (), Because.SHARED)
    assert len(rounds) == len(groups(names(machines), group_size(machines)))


def test_what_joins_two_machines_evicts_neither() -> None:
    stop = led(6, lambda group: {"m00", "m01"} <= set(group))[1]
    assert stop.evict == () and [place.names for place in stop.tell] == [("m00", "m01")]


def test_the_phases_are_those_of_the_published_example() -> None:
    rounds = led(24, lambda group: "m13" in group, size=4)[0]
    assert names(24)[12:16] in [one.machines for one in rounds[0].launches]
    assert ("m01", "m07", "m13", "m19") in [one.machines for one in rounds[1].launches]
    assert [one.reason.split(", ")[1] for one in rounds[:3]] == ["neighbours", "strides", "diagonals"]


@pytest.mark.parametrize(("machines", "size"), [(5, 2), (7, 2), (11, 3), (23, 4)])
def test_any_two_machines_share_at_most_one_group_though_some_groups_are_short(machines: int, size: int) -> None:
    found = [set(group) for phase in groups(names(machines), size) for group in phase]
    for one in names(machines):
        for other in names(machines):
            assert one == other or sum({one, other} <= group for group in found) <= 1
    assert all(
        {name for group in phase for name in group} == {*names(machines)} for phase in groups(names(machines), size)
    )


def test_how_many_machines_a_group_has() -> None:
    assert [group_size(many) for many in (3, 4, 6, 9, 24, 1024)] == [2, 2, 2, 3, 4, LARGEST]
    assert group_size(24, 4) == 4
    with refused("too-few-machines", WrongUse, "level 5", "3 machines"):
        group_size(2)
    with refused("too-few-machines", WrongUse, "groups of 4", "13 machines"):
        group_size(12, 4)
    with refused("out-of-range", WrongUse):
        group_size(12, 1)


def test_who_answers_no_more_is_left_out_and_its_group_goes_on_without() -> None:
    machines, belief = names(9), replace(believed(9), gone=frozenset({"m00", "m01", "m02", "m03"}))
    step = plan_replay(belief, LADDER[REPLAY], machines, 3, 0, BUDGET)
    assert isinstance(step, CampaignRound)
    assert [one.machines for one in step.launches] == [("m04", "m05"), ("m06", "m07", "m08")]
    exact = replace(LADDER[REPLAY], least=3, most=3)
    step = plan_replay(belief, exact, machines, 3, 0, BUDGET)
    assert isinstance(step, CampaignRound) and [one.machines for one in step.launches] == [("m06", "m07", "m08")]


def test_no_phase_begins_that_would_outlast_the_budget() -> None:
    stop = plan_replay(believed(4), LADDER[REPLAY], names(4), 2, 1, LaunchBudget(100.0))
    assert isinstance(stop, Stop) and stop.reason is Because.SPENT


def test_a_replay_shows_what_no_other_level_can() -> None:
    assert [mode.name for mode in modes((LADDER[REPLAY],))] == [IN_A_JOB]
    assert all(IN_A_JOB in one.blind for level, one in LADDER.items() if level != REPLAY)
