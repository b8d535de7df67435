"""Slow jobs: the machine that a moving job waits for is named as soon as the looks suffice, and no other ever."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.stragglers.fail_slow import ROUNDS, Slowness, find
from hangdog_models.diagnosis.stragglers.lateness import ballots, moments
from hangdog_models.diagnosis.stragglers.sequential_test import ratios
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.stack import ProcessState
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Activity, Kind
from support.cases.stories import job, snapshot, trace

pytestmark = pytest.mark.parallel  # its slow tests measure no time

WAITS = [RankState(Activity.COLLECTIVE, Wait.GROUP, operation="all_reduce", label=f"place {n}") for n in range(10)]
WORK = [RankState(Activity.COMPUTE, Wait.NONE, label=label) for label in ("attention", "mlp", "loss")]
LOADER = RankState(Activity.DATALOADER, Wait.NONE, operation="next", label="next_batch")
LOG = RankState(Activity.COMPUTE, Wait.NONE, label="write_metrics")
GONE = RankState(Activity.MISSING, Wait.NONE)

BIG = job(per_machine=8, tp=8, pp=4, dp=16)  # 512 ranks, 64 machines


def look(at: int, world: int, late: Iterable[int], place: RankState = WORK[0]) -> Look:
    """Everybody waits, at another place in each look, but the late."""
    standings = dict.fromkeys(map(Rank, range(world)), WAITS[at])
    standings.update({Rank(rank): place for rank in late})
    return standings


def scattered(world: int, looks: int, seed: int, rate: float = 0.02) -> list[set[int]]:
    chance = random.Random(seed)
    return [{rank for rank in range(world) if chance.random() < rate} for _ in range(looks)]


def watched(looks: Sequence[Look], topology: Topology, rounds: int = ROUNDS) -> Slowness:
    """One look after the other, as they arrive, until it is decided."""
    for number in range(1, len(looks) + 1):
        answer = find(looks[:number], topology, rounds=rounds)
        if not answer.more:
            return answer
    return answer


def test_a_machine_that_is_waited_for_again_and_again_is_named_before_the_fifth_look() -> None:
    looks = [look(at, 512, late | set(range(40, 48))) for at, late in enumerate(scattered(512, 5, 1))]
    answer = watched(looks, BIG)
    assert answer.kind is Kind.SLOW and list(answer.machines) == ["node-5"] and answer.machines["node-5"] > 0.99
    assert answer.looks_used < ROUNDS
    assert "node-5" in answer.reasons[0].text and "attention" in answer.reasons[0].text


def test_a_single_slow_device_is_named_with_its_rank() -> None:
    looks = [look(at, 512, late | {133}) for at, late in enumerate(scattered(512, 5, 2))]
    suspect = watched(looks, BIG).suspects[0]
    assert (suspect.ranks, suspect.machines) == ((133,), ("node-16",))


def test_two_degraders_are_both_named() -> None:
    looks = [look(at, 512, {133, 300}) for at in range(5)]
    assert set(watched(looks, BIG).machines) == {"node-16", "node-37"}


def test_a_rank_that_is_late_in_three_of_four_looks_is_no_second_degrader() -> None:
    others = enumerate(scattered(512, 5, 147))
    looks = [look(at, 512, late | set(range(40, 48)) | ({133} if at < 3 else set())) for at, late in others]
    assert list(watched(looks, BIG).machines) == ["node-5"]


def test_a_degrader_that_is_in_time_once_is_still_found() -> None:
    looks = [look(at, 512, late | ({133} if at != 1 else set())) for at, late in enumerate(scattered(512, 5, 3, 0.005))]
    assert list(watched(looks, BIG).machines) == ["node-16"]


def test_ranks_missing_in_some_looks_do_not_hide_the_degrader() -> None:
    looks = []
    for at, late in enumerate(scattered(512, 5, 4)):
        seen = dict(look(at, 512, late | set(range(40, 48))))
        for rank in list(seen)[at::7]:
            del seen[rank]
        seen.update(dict.fromkeys(map(Rank, range(at, 512, 31)), GONE))
        looks.append(seen)
    assert list(watched(looks, BIG).machines) == ["node-5"]


def nobody(at: int, late: set[int]) -> Look:
    return look(at, 512, late)


def last_stage(at: int, late: set[int]) -> Look:
    return look(at, 512, late | set(range(384, 512)), WORK[2])


def rank_zero(at: int, late: set[int]) -> Look:
    return {**look(at, 512, late), Rank(0): LOG}


def last_rank(at: int, late: set[int]) -> Look:
    return {**look(at, 512, late), Rank(511): LOG}


def loaders(at: int, late: set[int]) -> Look:
    return look(at, 512, late | set(range(0, 128, 8)))


def all_work(at: int, late: set[int]) -> Look:
    return look(at, 512, set(range(512)) - late)


def not_seen(at: int, late: set[int]) -> Look:
    return {**look(at, 512, late), **dict.fromkeys(map(Rank, range(40, 48)), GONE)}


HEALTHY = [nobody, last_stage, rank_zero, last_rank, loaders, all_work, not_seen]


@pytest.mark.slow
@pytest.mark.parallel
@pytest.mark.parametrize("healthy", HEALTHY)
@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_job_is_not_called_slow(healthy: Callable[[int, set[int]], Look], seed: int) -> None:
    looks = [healthy(at, late) for at, late in enumerate(scattered(512, 5, seed))]
    answer = watched(looks, BIG)
    assert answer.kind is Kind.NONE and not answer.suspects and answer.reasons and not answer.more


def test_a_slow_machine_of_the_stage_with_more_work_is_told_from_its_stage() -> None:
    busy = [{rank for rank in range(384, 512) if random.Random(rank * 9 + at).random() < 0.2} for at in range(5)]
    assert watched([look(at, 512, late) for at, late in enumerate(busy)], BIG).kind is Kind.NONE
    looks = [look(at, 512, late | set(range(400, 408))) for at, late in enumerate(busy)]
    assert list(watched(looks, BIG).machines) == ["node-50"]


def test_a_machine_often_late_is_not_named_where_all_of_its_stage_are() -> None:
    """Half of the last stage is late in every look, and one of its sixteen machines in all five: chance, among its like."""
    deep = job(per_machine=8, tp=8, pp=16, dp=16)
    chance = random.Random(3)
    looks = []
    for at in range(5):
        machines = {250, *chance.sample(range(240, 256), 8)}
        looks.append(look(at, 2048, {machine * 8 + rank for machine in machines for rank in range(8)}))
    assert watched(looks, deep).kind is Kind.NONE
    alone = [look(at, 2048, range(2000, 2008)) for at in range(5)]
    assert list(watched(alone, deep).machines) == ["node-250"]


def test_the_first_tensor_ranks_of_two_replicas_have_the_same_work() -> None:
    small = job(per_machine=8, tp=8, pp=8, dp=2)
    answer = watched([look(at, 128, {0, 8}) for at in range(5)], small)
    assert answer.kind is Kind.NONE and answer.reasons[0].code == "work-uneven"
    assert answer.reasons[0].text.startswith("ranks 0,8 ")


def test_four_ranks_of_one_role_that_are_late_together_are_degraders_of_their_own() -> None:
    """Half of the eight that do the same work: were it their work, the other four would be late at times, too."""
    small = job(per_machine=8, tp=8, pp=2, dp=8)
    answer = watched([look(at, 128, {0, 8, 16, 24}) for at in range(5)], small)
    assert set(answer.machines) == {"node-0", "node-1", "node-2", "node-3"}


@pytest.mark.parametrize("rounds", [5, 10])
def test_loaders_that_are_late_most_of_the_time_are_no_degraders(rounds: int) -> None:
    small = job(per_machine=8, tp=8, pp=2, dp=4)
    chance = random.Random(5)
    for _ in range(8):
        looks = [look(at, 64, [rank for rank in (0, 8, 16, 24) if chance.random() < 0.8]) for at in range(rounds)]
        assert not watched(looks, small, rounds).suspects


def test_the_first_ranks_of_three_machines_have_the_same_duties() -> None:
    plain = job(per_machine=8, dp=24)
    assert not watched([look(at, 24, {0, 8, 16}) for at in range(5)], plain).suspects
    assert watched([look(at, 24, {8}) for at in range(5)], plain).suspects


def test_rank_zero_is_named_where_it_is_late_at_the_work_of_all() -> None:
    looks = [look(at, 512, late | {0}) for at, late in enumerate(scattered(512, 5, 6))]
    assert list(watched(looks, BIG).machines) == ["node-0"]


def test_storage_that_all_wait_for_is_no_machines_fault() -> None:
    looks = [look(at, 512, set(range(512)) - late, LOADER) for at, late in enumerate(scattered(512, 5, 7, 0.2))]
    answer = watched(looks, BIG)
    assert answer.kind is Kind.DEPENDENCY and not answer.suspects and answer.looks_used < ROUNDS
    assert "dataloader" in answer.reasons[0].text


def test_a_replica_of_several_machines_that_is_late_is_named_as_a_group() -> None:
    wide = job(per_machine=2, tp=8, dp=16)  # a tensor group on four machines
    answer = watched([look(at, 128, range(24 + at % 2, 32 - (at % 3))) for at in range(5)], wide)
    assert set(answer.machines) <= {f"node-{n}" for n in range(12, 16)} and answer.machines


def test_storage_that_some_machines_wait_for_is_no_service_that_all_share() -> None:
    looks = [look(at, 512, range(192), LOADER) for at in range(5)]  # 24 of 64 machines
    answer = watched(looks, BIG)
    assert answer.kind is Kind.NONE and not answer.suspects


def test_looks_in_which_nobody_is_late_tell_nothing() -> None:
    """Whatever holds such a job up does not show, so it is as sound as any job that nobody has looked at."""
    answer = watched([look(at, 512, ()) for at in range(10)], BIG, rounds=10)
    assert answer.kind is Kind.NONE and answer.sound == pytest.approx(find([], BIG).sound)
    late = [{133} if at % 2 else () for at in range(10)]
    assert list(watched([look(at, 512, late[at]) for at in range(10)], BIG, rounds=10).machines) == ["node-16"]


def test_the_more_often_others_are_late_the_sounder_is_the_job_and_never_surely() -> None:
    """A device or a link that is slow may be behind what no look shows."""
    small = job(per_machine=8, tp=8, pp=2, dp=4)
    sound = [watched([look(at, 64, [7 * at]) for at in range(n)], small, rounds=10).sound for n in (1, 3, 10)]
    assert find([], small).sound <= sound[0] < sound[1] < sound[2] < 0.9


def test_where_the_search_is_given_up_early_the_job_is_sound() -> None:
    answer = watched([look(at, 512, [31 * at]) for at in range(10)], BIG, rounds=10)
    assert answer.kind is Kind.NONE and answer.looks_used < 10


def test_who_is_late_too_seldom_to_be_named_is_suspected_all_the_same() -> None:
    small = job(per_machine=8, tp=8, pp=2, dp=4)
    answer = watched([look(at, 64, [rank]) for at, rank in enumerate((12, 33, 12, 47, 12))], small)
    assert answer.suspects[0].ranks == (12,) and answer.suspects[0].probability + answer.sound <= 1
    assert answer.kind is (Kind.SLOW if answer.sound <= 0.5 else Kind.NONE)


def test_a_stall_that_is_over_counts_for_as_long_as_it_lasted_and_evicts_nobody() -> None:
    """What goes on in the last looks may be a hang, and is one look."""
    at = [look(0, 512, {133})] * 4 + [look(1, 512, {7})]
    over, lasting = find(at, BIG), find([look(1, 512, {7}), *at[:4]], BIG)
    assert over.kind is Kind.SLOW and list(over.machines) == ["node-16"] and over.machines["node-16"] <= 0.9
    assert lasting.kind is Kind.NONE


def test_one_stall_seen_five_times_is_one_stall() -> None:
    looks = [look(0, 512, {133}) for _ in range(5)]
    assert len(moments(looks, BIG)) == 1
    assert find(looks, BIG).kind is Kind.NONE
    assert find(looks, BIG, stepped=[True] * len(looks)).kind is Kind.SLOW


def test_two_machines_alike_cannot_be_told_apart_by_chance() -> None:
    pair = job(per_machine=8, tp=8, dp=2)
    assert watched([look(at, 16, range(8)) for at in range(5)], pair).machines["node-0"] < 0.8
    assert watched([look(at, 16, range(8) if at > 1 else ()) for at in range(5)], pair).kind is Kind.NONE
    assert watched([look(at, 16, [3]) for at in range(5)], pair).machines.keys() == {"node-0"}  # one of sixteen


def test_more_looks_in_the_same_time_find_a_degrader_among_few() -> None:
    small = job(per_machine=8, tp=8, pp=2, dp=4)
    late = [range(40, 48) if at != 3 else () for at in range(10)]
    few, many = (watched([look(at, 64, late[at]) for at in range(n)], small, rounds=n).machines for n in (5, 10))
    assert few.get("node-5", 0) <= 0.9 and many["node-5"] > 0.99


def test_without_a_layout_a_rank_is_named_and_no_machine() -> None:
    unknown, _ = build(Layout(), Rank(255))
    answer = watched([look(at, 256, late | {77}) for at, late in enumerate(scattered(256, 5, 8))], unknown)
    assert answer.suspects[0].ranks == (77,) and answer.suspects[0].machines == ()
    assert "rank 77" in answer.reasons[0].text


def test_a_job_of_one_machine_has_a_slow_rank() -> None:
    one, _ = build(Layout(ranks_per_machine=64), Rank(63))
    assert watched([look(at, 64, [9]) for at in range(5)], one).suspects[0].ranks == (9,)


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_undecided_says_how_many_looks_may_decide(looks: int) -> None:
    answer = find([look(at, 512, []) for at in range(looks)], BIG)
    assert answer.kind is Kind.UNDETERMINED and answer.more == ROUNDS - looks
    assert f"{answer.more} further looks" in answer.reasons[-1].text


def test_two_ranks_are_a_job() -> None:
    two, _ = build(Layout(ranks_per_machine=1), Rank(1))
    assert watched([look(at, 2, [1]) for at in range(5)], two).kind is Kind.NONE


@settings(max_examples=60)  # milliseconds, where nothing else runs
@given(st.lists(st.frozensets(st.integers(0, 63), max_size=64), min_size=1, max_size=7), st.permutations(range(64)))
def test_the_order_of_ranks_does_not_matter(late: list[frozenset[int]], order: list[int]) -> None:
    small = job(per_machine=8, tp=8, pp=2, dp=4)
    looks = [look(at, 64, ranks) for at, ranks in enumerate(late)]
    shuffled: list[Look] = [{Rank(rank): one[Rank(rank)] for rank in order} for one in looks]
    assert find(shuffled, small) == find(looks, small)


@pytest.mark.parametrize("late_each", [1, 6])
def test_the_odds_of_all_candidates_average_one_over_healthy_jobs(late_each: int) -> None:
    """The bound on false alarms rests on this: were the ratios too large, their mean over chance would exceed 1."""
    chance = random.Random(11)
    topology = job(per_machine=1, pp=2, dp=16)
    means = []
    for _ in range(600):
        looks = [look(at, 32, chance.sample(range(32), late_each)) for at in range(2)]
        ballot = ballots(looks, topology)[0]
        patterns, ratio = ratios(ballot, 2)
        means.append(sum(ratio[pattern] * count for pattern, count in patterns.items()) / 32)
    assert 0.4 < sum(means) / len(means) < 1.1


@pytest.mark.slow
def test_a_hundred_thousand_ranks() -> None:
    huge = job(per_machine=8, tp=8, pp=16, dp=1024)
    looks = [look(at, huge.world_size, range(at * 31, huge.world_size, 97)) for at in range(5)]
    looks = [{**one, Rank(70_001): WORK[1]} for one in looks]
    assert list(find(looks, huge).machines) == ["node-8750"]


@pytest.mark.parametrize(("crowds", "kind"), [(2, Kind.SLOW), (24, Kind.NONE)])
def test_who_is_alone_at_its_device_is_late_though_its_like_are_in_several_operations(crowds: int, kind: Kind) -> None:
    """Where all get on, each at its own device in another layer, nobody is apart from the others."""
    plain = job(per_machine=8, dp=64)
    at_device = [RankState(Activity.DEVICE_SYNC, Wait.SOME, label=f"layer {n}") for n in range(crowds)]
    behind = RankState(Activity.DEVICE_SYNC, Wait.SOME, label="backward")
    looks = [{Rank(r): behind if r == 21 else at_device[(at + r) % crowds] for r in range(64)} for at in range(5)]
    answer = watched(looks, plain)
    assert answer.kind is kind and list(answer.machines) == (["node-2"] if kind is Kind.SLOW else [])


@pytest.mark.parametrize(("dim", "evicts"), [("ep", False), (None, True)])
def test_who_is_waited_for_by_its_fellow_experts_may_have_more_tokens(dim: str | None, evicts: bool) -> None:
    """It is named: its device may be slow."""
    experts = job(per_machine=8, dp=64, ep=8)
    places = [RankState(Activity.COLLECTIVE, Wait.GROUP, "all_to_all", dim, label=f"layer {n}") for n in range(5)]
    answer = watched([{Rank(r): WORK[1] if r == 21 else place for r in range(64)} for place in places], experts)
    assert (answer.machines["node-2"] > 0.95) is evicts and answer.machines["node-2"] > 0.8
    assert (answer.reasons[-1].code == "experts-may-have-more") is not evicts


@pytest.mark.parametrize(("steps", "late", "machines"), [(3, 5, ("node-5",)), (0, 5, ()), (3, None, ())])
def test_looks_between_which_steps_were_counted_show_a_step_each(
    steps: int, late: int | None, machines: tuple[str, ...]
) -> None:
    """The same rank works while all others wait at the same place: one stall, unless rank 0 has counted steps meanwhile."""
    rounds = []
    for at in range(5):
        traces = [trace(rank, "user" if rank == late else "metrics", state="R") for rank in range(8)]
        counted = ProcessState(1000, "R", steps=10 + steps * at, ran_s=2.0 * at)
        rounds.append([structs.replace(traces[0], state=counted), *traces[1:]])
    verdict = diagnose(replace(snapshot(*rounds), interval_s=5.0), job(per_machine=1, dp=8))
    assert verdict.evict.machines == machines
    assert (verdict.kind is Kind.SLOW) is bool(machines)
