"""Near clustering joins one place torn apart by jitter, and never hides the odd rank in a crowd."""

import subprocess
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import squareform

from hangdog_models.diagnosis.clustering import near as near_module
from hangdog_models.diagnosis.clustering.catalogue import MODELS, clustering
from hangdog_models.diagnosis.clustering.density import density
from hangdog_models.diagnosis.clustering.distance import CUT, distance
from hangdog_models.diagnosis.clustering.exact_clusters import exact
from hangdog_models.diagnosis.clustering.linkage import linkage
from hangdog_models.diagnosis.clustering.near import near
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.observe.rank_state_reader import RankStateReader
from hangdog_models.errors import WrongUse
from hangdog_models.ranks import Rank, parse_ranks
from hangdog_models.rules.ruleset import packaged
from support.cases.stories import C10D, STACKS, job, trace
from support.refused import refused

NEAR = ["linkage", "density"]
TOP = ["<module> train.py", "train loop.py"]
#: One place in an unknown framework, and what jitter makes of it.
PLACE = [*TOP, "forward model.py", "forward block.py", "forward linear.py", "sum_parts acme.py", "hold acme.py"]
JITTER = {
    "helper": [*PLACE[:5], "timed timers.py", *PLACE[5:]],
    "deeper": [*PLACE[:3], "forward block.py", "forward block.py", *PLACE[3:]],
    "layer": [*PLACE[:3], "forward other.py", *PLACE[4:]],
    "loop": [*PLACE[:2], *PLACE[3:]],
    "sleep": [*PLACE, "nanosleep os.py"],
}
CULPRIT = [*TOP, "augment data.py", "rotate images.py"]
CUBE = job(tp=4, dp=4, pp=4)


def look_of(story: Mapping[str, Sequence[str] | str]) -> Look:
    traces = [
        trace(rank, list(s) if not isinstance(s, str) else s)
        for ranks, s in story.items()
        for rank in parse_ranks(ranks)
    ]
    return RankStateReader(packaged()).look(traces)


def sizes(name: str, story: Mapping[str, Sequence[str] | str]) -> list[int]:
    return [len(cluster.ranks) for cluster in clustering(name)(look_of(story), CUBE)]


@pytest.mark.parametrize("name", NEAR)
@pytest.mark.parametrize("jitter", JITTER)
def test_jitter_inside_one_place_makes_no_second_cluster(name: str, jitter: str) -> None:
    story = {"0-39": PLACE, "40-62": JITTER[jitter], "63": CULPRIT}
    assert sizes("exact", story) == [40, 23, 1]
    assert sizes(name, story) == [63, 1]


@pytest.mark.parametrize("name", NEAR)
def test_all_kinds_of_jitter_at_once_are_still_one_place(name: str) -> None:
    story = {f"{8 * at}-{8 * at + 7}": stack for at, stack in enumerate([PLACE, PLACE, PLACE, *JITTER.values()])}
    assert sizes(name, story)[0] >= 56


@pytest.mark.parametrize("name", NEAR)
@pytest.mark.parametrize(
    "odd",
    [
        CULPRIT,
        PLACE[:2],  # one call above the crowd, in no frame of its own
        [*PLACE, "check acme.py"],  # one call below
        [*PLACE[:3], "forward attention.py"],  # alone in a layer
        [*TOP, "evaluate scores.py", "gather scores.py", "hold acme.py"],  # another way to the same wait
    ],
)
def test_the_odd_rank_stays_alone(name: str, odd: list[str]) -> None:
    assert sizes(name, {"0-62": PLACE, "63": odd}) == [63, 1]


@pytest.mark.parametrize("name", NEAR)
def test_operations_with_different_callers_stay_apart(name: str) -> None:
    norm = [*TOP, "grad_norm optimizer.py", f"all_reduce {C10D}"]
    metrics = [*TOP, "log_metrics metrics.py", f"all_reduce {C10D}"]
    helped = [*TOP, "grad_norm optimizer.py", "timed timers.py", f"all_reduce {C10D}"]
    assert sizes(name, {"0-29": norm, "30-39": helped, "40-63": metrics}) == [40, 24]


@pytest.mark.parametrize("name", NEAR)
def test_tensor_parallel_waits_of_two_layers_are_one_place(name: str) -> None:
    def layer(file: str) -> list[str]:
        tail = ["forward megatron/core/tensor_parallel/layers.py", "_reduce megatron/core/tensor_parallel/mappings.py"]
        return [*TOP, "forward layer.py", f"forward {file}", *tail, f"all_reduce {C10D}"]

    assert sizes(name, {"0-31": layer("attention.py"), "32-63": layer("mlp.py")}) == [64]


def test_an_unknown_model_is_refused_with_the_names_of_the_known() -> None:
    with refused("unknown-choice", WrongUse, "dbscan") as raised:
        clustering("dbscan")
    assert "linkage" in str(raised.value.hint)


#: Stacks that know each other's frames in any order, so that alignments of every shape occur; named operations among them.
STEPS = ["main a.py", "train a.py", "step b.py", "forward c.py", "forward d.py", "hold e.py", "timed t.py"]
LEAVES = ["hold e.py", "augment data.py", f"all_reduce {C10D}", f"barrier {C10D}"]
STACK = st.tuples(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6), st.sampled_from(LEAVES)).map(
    lambda drawn: (*drawn[0], drawn[1])
)
STORY = st.lists(STACK | st.sampled_from(sorted(STACKS)), min_size=16, max_size=16)
SMALL = job(tp=2, dp=4, pp=2)


def told(places: Sequence[Sequence[str] | str]) -> Look:
    return look_of({str(rank): place for rank, place in enumerate(places)})


@pytest.mark.parametrize("name", MODELS)
@given(STORY)
@settings(max_examples=40)
def test_clusters_partition_the_ranks_and_hold_one_activity(name: str, places: list[Sequence[str] | str]) -> None:
    look = told(places)
    clusters = clustering(name)(look, SMALL)
    assert sorted(rank for cluster in clusters for rank in cluster.ranks) == sorted(look)
    for cluster in clusters:
        shared = {(look[r].activity, look[r].wait, look[r].operation, look[r].dim) for r in cluster.ranks}
        assert len(shared) == 1
        assert (cluster.sample.activity, cluster.sample.operation) in {(a, o) for a, _, o, _ in shared}


@pytest.mark.parametrize("name", NEAR)
@given(STORY)
@settings(max_examples=40)
def test_a_rank_with_an_innermost_frame_of_its_own_is_never_among_another_activity(
    name: str, places: list[Sequence[str] | str]
) -> None:
    look = told(places)

    def innermost(standing: RankState) -> str:
        return standing.signature.written()[-1] if standing.signature else ""

    for cluster in clustering(name)(look, SMALL):
        for rank in cluster.ranks:
            peers = [r for r in look if SMALL.stage(r) == SMALL.stage(rank) and r != rank]
            if innermost(look[rank]) not in {innermost(look[peer]) for peer in peers}:
                assert {look[other].activity for other in cluster.ranks} == {look[rank].activity}


@pytest.mark.parametrize("name", NEAR)
@given(STORY, st.permutations(range(8)))
@settings(max_examples=40)
def test_renaming_ranks_of_a_stage_renames_the_clusters(
    name: str, places: list[Sequence[str] | str], order: list[int]
) -> None:
    new = {Rank(old): Rank(order[old % 8] + 8 * (old // 8)) for old in range(16)}
    there: list[Sequence[str] | str] = [""] * 16
    for old, place in enumerate(places):
        there[new[Rank(old)]] = place
    renamed = {frozenset(new[r] for r in cluster.ranks) for cluster in clustering(name)(told(places), SMALL)}
    assert renamed == {frozenset(cluster.ranks) for cluster in clustering(name)(told(there), SMALL)}


@pytest.mark.parametrize("name", NEAR)
@given(STORY)
@settings(max_examples=40)
def test_exact_classes_are_never_torn_apart(name: str, places: list[Sequence[str] | str]) -> None:
    look = told(places)
    of = {rank: at for at, cluster in enumerate(clustering(name)(look, SMALL)) for rank in cluster.ranks}
    for cluster in exact(look):
        assert len({of[rank] for rank in cluster.ranks}) == 1


@given(st.integers(2, 12), st.randoms(use_true_random=False))
def test_linkage_is_scipys_average_linkage(points: int, chance: object) -> None:
    rng = np.random.default_rng(chance.randrange(1 << 30))  # type: ignore[attr-defined]
    upper = np.triu(rng.random((points, points)), 1)
    square = upper + upper.T
    ours = linkage(square.tolist(), [1] * points)
    theirs = fcluster(scipy_linkage(squareform(square), "average"), np.nextafter(CUT, 0), "distance")
    assert len(set(zip(ours, theirs, strict=True))) == len(set(ours)) == len(set(theirs))


def test_linkage_takes_means_over_ranks() -> None:
    apart = [[0.0, 0.1, 0.9], [0.1, 0.0, 0.4], [0.9, 0.4, 0.0]]
    assert linkage(apart, [1, 99, 1]) == [0, 0, 0]  # 0.405 from 100 ranks in one place
    assert linkage(apart, [1, 1, 1]) == [0, 0, 1]  # 0.65


@pytest.mark.parametrize(
    ("apart", "counts", "expected"),
    [
        ([[0.0]], [64], [0]),
        ([[0.0, 0.9], [0.9, 0.0]], [63, 1], [0, 1]),
        ([[0.0, 0.9], [0.9, 0.0]], [1, 1], [0, 1]),
        ([[0.0, 0.1], [0.1, 0.0]], [1, 1], [0, 0]),
        ([[0.0, 0.1, 1.0], [0.1, 0.0, 1.0], [1.0, 1.0, 0.0]], [1, 1, 1], [0, 0, 1]),
        ([[0.0, 0.1, 1, 1], [0.1, 0, 1, 1], [1, 1, 0, 0.1], [1, 1, 0.1, 0]], [1, 1, 1, 1], [0, 0, 1, 1]),
        ([[0.0, 1, 1], [1, 0, 1], [1, 1, 0]], [60, 3, 1], [0, 1, 2]),
    ],
)
def test_density_knows_multiplicities_and_leaves_noise_alone(
    apart: list[list[float]], counts: list[int], expected: list[int]
) -> None:
    assert density(apart, counts) == expected
    assert linkage(apart, counts) == expected


def test_distances_are_bounded_however_many_stacks_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most frequent stacks are compared with each other, the rest with those: counted, not timed."""
    asked = 0
    measured = distance

    def counting(*args: object, **named: object) -> float:
        nonlocal asked
        asked += 1
        return measured(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(near_module, "distance", counting)
    monkeypatch.setattr(near_module, "PAIRS_MOST", 300)
    helped = {str(40 + at): [*PLACE[:4], f"helper_{at} h.py", *PLACE[4:]] for at in range(100)}
    topology = job(dp=141)
    clusters = near(exact(look_of({"0-39": PLACE, **helped, "140": CULPRIT})), topology, linkage)
    assert asked <= 300
    assert [len(cluster.ranks) for cluster in clusters] == [140, 1]


def test_heavy_libraries_are_loaded_by_the_model_that_needs_them_only() -> None:
    probe = (
        "import sys, hangdog_models.diagnosis.clustering.catalogue as c\n"
        "c.clustering('linkage')\n"
        "print(*({'numpy', 'scipy', 'sklearn', 'hdbscan'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
