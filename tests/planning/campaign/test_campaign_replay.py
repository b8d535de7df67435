"""Replay groups: the published example, every machine once a phase, and a third phase that tells any two faults."""

from itertools import combinations
from random import Random

import pytest

from hangdog_models.planning.campaign.replay import Groups, crossing, diagonal_step, phases, separates


def failed(groups: tuple[Groups, ...], faulty: set[int]) -> list[list[int]]:
    return [[number for number, group in enumerate(phase) if faulty & set(group)] for phase in groups]


def test_the_published_example() -> None:
    groups = phases(4, 6, third=False)
    assert failed(groups, {13}) == [[3], [1]]
    assert groups[0][3] == (12, 13, 14, 15) and groups[1][1] == (1, 7, 13, 19)
    assert crossing(groups, [[3], [1]]) == (13,)


@pytest.mark.parametrize(("size", "count"), [(1, 1), (4, 6), (4, 8), (8, 29), (16, 64)])
def test_every_phase_holds_every_machine_once_in_equal_groups(size: int, count: int) -> None:
    for phase in phases(size, count):
        assert len(phase) == count and {len(group) for group in phase} == {size}
        assert sorted(machine for group in phase for machine in group) == list(range(size * count))


@pytest.mark.parametrize(("size", "count"), [(4, 6), (8, 8), (8, 29), (16, 64)])
def test_two_phases_name_any_one_fault(size: int, count: int) -> None:
    groups = phases(size, count, third=False)
    assert all(crossing(groups, failed(groups, {one})) == (one,) for one in range(size * count))


@pytest.mark.parametrize("size", range(2, 6))
@pytest.mark.parametrize("count", range(2, 10))
def test_a_step_separates_where_no_two_machines_meet_twice(size: int, count: int) -> None:
    if size > count:
        assert not separates(size, count, 1)
        return
    for step in range(1, count):
        where = [(x // size, x % count, (x // size + step * (x % size)) % count) for x in range(size * count)]
        meet = max(sum(a == b for a, b in zip(one, two, strict=True)) for one, two in combinations(where, 2))
        assert separates(size, count, step) == (meet <= 1)


@pytest.mark.parametrize(("size", "count", "step"), [(4, 6, 5), (16, 64, 1), (8, 12, 1), (5, 6, None), (3, 4, None)])
def test_known_steps(size: int, count: int, step: int | None) -> None:
    assert diagonal_step(size, count) == step
    assert len(phases(size, count)) == (3 if step else 2)


def test_three_phases_name_any_two_faults_and_two_do_not() -> None:
    three, two = phases(16, 64), phases(16, 64, third=False)
    rng = Random(3)
    pairs = [set(rng.sample(range(1024), 2)) for _ in range(400)]
    assert all(set(crossing(three, failed(three, pair))) == pair for pair in pairs)
    assert 0.68 < sum(set(crossing(two, failed(two, pair))) == pair for pair in pairs) / 400 < 0.84
    small = phases(4, 6)
    assert all(set(crossing(small, failed(small, {*pair}))) == {*pair} for pair in combinations(range(24), 2))


def test_nothing_failed_or_nothing_ran() -> None:
    assert crossing(phases(4, 6), [[], [], []]) == () and crossing((), []) == ()


def test_groups_that_would_meet_twice_are_refused() -> None:
    with pytest.raises(ValueError, match="groups of 6 "):
        phases(6, 4)
