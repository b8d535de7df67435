"""The labels of the ranks point at the culprit whatever they are called, and at nobody where nobody stands out."""

import sys
from collections.abc import Hashable, Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdog_models.diagnosis.clustering.description_length import length
from hangdog_models.diagnosis.clustering.relations import Explanation, explain
from hangdog_models.ranks import Rank
from hangdog_models.topology import Layout, Topology, build
from support.cases.planted import planted
from support.cases.stories import job

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

CUBE = job(per_machine=4, tp=4, dp=8, pp=4)


def stuck(culprit: int, topology: Topology = CUBE) -> dict[Rank, str]:
    """A rank does not join: its tensor peers, its pipeline before and after, and the other replicas wait."""
    labels = dict.fromkeys((Rank(rank) for rank in range(topology.world_size)), "gradients")
    stage = topology.stage(Rank(culprit))
    assert stage is not None
    for rank in topology.group("mp", Rank(culprit)) or ():
        at = topology.stage(rank)
        assert at is not None
        labels[rank] = "before" if at < stage else "after" if at > stage else "tensor"
    labels[Rank(culprit)] = "culprit"
    return labels


def told(found: Explanation) -> list[tuple[str, frozenset[int], float]]:
    return [(one.kind, frozenset(one.ranks), round(one.bits, 3)) for one in found.candidates]


def test_the_culprit_is_named_with_the_relations_that_tell() -> None:
    found = explain(stuck(37), CUBE)
    best = found.candidates[0]
    assert (best.kind, best.ranks, best.name) == ("rank", (37,), "rank 37")
    assert {relation.dim for relation in best.relations} <= {"mp", "tp", "pp", "machine"}
    assert sum(relation.count for relation in best.relations) == 15
    assert "relation to rank 37" in best.reason and "later stages" in best.reason
    assert found.share > 0.9
    assert [one.bits for one in found.candidates] == sorted((one.bits for one in found.candidates), reverse=True)


def test_a_group_is_named_when_its_members_stand_alike() -> None:
    labels = dict.fromkeys(CUBE.groups["world"][0], "gradients")
    group = CUBE.group("pp", Rank(37))
    assert group is not None
    labels |= dict.fromkeys(group, "stuck")
    best = explain(labels, CUBE).candidates[0]
    assert (best.kind, best.ranks) == ("pp", group)


def test_a_switch_is_named_when_all_its_machines_stand_alike() -> None:
    machines = {f"node-{at}": tuple(Rank(rank) for rank in range(4 * at, 4 * at + 4)) for at in range(16)}
    switches = {f"leaf-{at}": tuple(f"node-{m}" for m in range(4 * at, 4 * at + 4)) for at in range(4)}
    layout = Layout(world_size=64, sizes={"dp": 64}, machines=machines, switches=switches)
    topology, _ = build(layout, None)
    labels: dict[Rank, str] = dict.fromkeys(topology.groups["world"][0], "all_reduce")
    labels |= dict.fromkeys((Rank(rank) for rank in range(16, 32)), "link")
    best = explain(labels, topology).candidates[0]
    assert (best.kind, best.ranks) == ("switch", tuple(range(16, 32)))


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (dict.fromkeys(range(128), "one"), "uniform"),
        ({rank: rank for rank in range(128)}, "each its own"),
        ({rank: rank // 32 for rank in range(128)}, "stages differ by nature"),
        ({rank: int(rank // 32 == 2) for rank in range(128)}, "one whole stage"),
        ({rank: int(rank % 4 == 0) for rank in range(128)}, "only the first tensor rank loads data"),
        ({rank: (rank // 32, rank % 4 == 0) for rank in range(128)}, "stage and role"),
        ({}, "nothing seen"),
    ],
)
def test_nobody_is_named_when_nobody_stands_out(labels: dict[Rank, Hashable], why: str) -> None:
    assert explain(labels, CUBE).candidates == (), why


def test_labels_of_chance_point_at_nobody() -> None:
    named = 0
    for seed in range(25):
        chance = Random(seed)
        named += bool(explain({Rank(rank): chance.randrange(3) for rank in range(128)}, CUBE).candidates)
    assert named <= 2


def test_ranks_without_a_label_are_passed_over() -> None:
    labels = stuck(37)
    for rank in (3, 36, 70, 100):
        del labels[Rank(rank)]
    assert explain(labels, CUBE).candidates[0].ranks == (37,)


@given(st.integers(0, 127), st.permutations(range(8)), st.permutations(range(4)))
@settings(max_examples=30)
def test_permuting_ranks_inside_the_symmetry_permutes_the_answer(
    culprit: int, replicas: list[int], tensor: list[int]
) -> None:
    def new(rank: int) -> Rank:
        return Rank(tensor[rank % 4] + 4 * replicas[rank // 4 % 8] + 32 * (rank // 32))

    labels = stuck(culprit)
    labels[Rank((culprit + 5) % 128)] = "gradients"  # and one that is elsewhere than expected
    here = told(explain(labels, CUBE))[:1]
    there = told(explain({new(rank): label for rank, label in labels.items()}, CUBE))[:1]
    assert [(kind, frozenset(new(r) for r in ranks), bits) for kind, ranks, bits in here] == there


@given(st.integers(0, 127), st.permutations(["gradients", "before", "after", "tensor", "culprit"]), st.randoms())
@settings(max_examples=30)
def test_renaming_labels_and_the_order_of_arrival_change_nothing(
    culprit: int, names: list[str], chance: Random
) -> None:
    labels = stuck(culprit)
    new = dict(zip(["gradients", "before", "after", "tensor", "culprit"], names, strict=True))
    items = [(rank, new[label]) for rank, label in labels.items()]
    chance.shuffle(items)
    assert told(explain(labels, CUBE)) == told(explain(dict(items), CUBE))


@given(st.integers(0, 3), st.integers(0, 3), st.integers(2, 8))
@settings(max_examples=30)
def test_a_healthy_replica_more_adds_no_candidate_above_the_best(tensor: int, stage: int, replicas: int) -> None:
    def best(count: int) -> tuple[str, int]:
        topology = job(per_machine=4, tp=4, dp=count, pp=4)
        culprit = tensor + 4 * count * stage
        first = explain(stuck(culprit, topology), topology).candidates[0]
        return first.kind, first.ranks[0] - culprit

    assert best(replicas + 1) == best(replicas) == ("rank", 0)


def share_named(noise: float, seeds: range, within: int) -> float:
    """How often the culprit is among the first candidates."""
    named = 0
    for seed in seeds:
        world = planted(seed, noise)
        first = explain(world.labels, world.topology).candidates[:within]
        named += any(one.ranks == (world.culprit,) for one in first)
    return named / len(seeds)


def test_planted_culprits_are_ranked_first() -> None:
    assert share_named(0.0, range(40), within=1) >= 0.95


def test_with_two_percent_of_wrong_labels_they_are_among_the_first_three() -> None:
    """Another odd rank beside the culprit, in its tensor group, is as odd as itself: labels alone cannot tell the two."""
    assert share_named(0.02, range(40), within=3) >= 0.95
    assert share_named(0.02, range(40), within=1) >= 0.85


def calls(ranks: int) -> int:
    """Function calls, Python's and C's, that one explanation makes: its work, counted and not timed."""
    topology = job(per_machine=8, tp=8, dp=ranks // 64, pp=8)
    labels: Mapping[Rank, str] = stuck(77, topology)
    topology.machine(Rank(0)), topology.stage(Rank(0))
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        explain(labels, topology)
    finally:
        sys.setprofile(None)
    return counted


def test_the_work_grows_no_faster_than_the_ranks() -> None:
    few, many = calls(4096), calls(16384)
    assert many <= 4.2 * few


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(6, 20))
def test_a_description_pays_for_its_labels(counts: list[int], kinds: int) -> None:
    tally = dict(enumerate(counts))
    assert length(tally, kinds) >= -1e-9
    assert length(tally, kinds) <= length(tally, kinds + 1) + 1e-9
    merged = {0: sum(counts)}
    assert length(merged, kinds) <= length(tally, kinds) + 1e-9
