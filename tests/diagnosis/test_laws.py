"""Laws that hold for every incident: order does not matter, names are only names, the sound are never blamed."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hangdog_models.diagnosis import motion, waits
from hangdog_models.diagnosis.activity import Reader
from hangdog_models.diagnosis.eviction import smallest
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.options import Options
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Round, Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, from_json, to_json
from stories import STACKS, job, look, snapshot, trace

CUBE = job(tp=2, dp=2, pp=2)
NO_EVICTION = {Kind.SOFTWARE, Kind.DEPENDENCY, Kind.NONE, Kind.UNDETERMINED}

placements = st.lists(st.sampled_from([*STACKS, "timed out", "exited"]), min_size=8, max_size=8)
states = st.lists(st.sampled_from(["", "S", "R", "D", "T", "Z"]), min_size=8, max_size=8)


def told(places: list[str], kernel: list[str]) -> Snapshot:
    traces = [trace(rank, places[rank], state=kernel[rank]) for rank in range(8)]
    return snapshot(traces, traces)


@given(placements, states, st.permutations(range(8)))
def test_the_order_of_arrival_does_not_matter(places: list[str], kernel: list[str], order: list[int]) -> None:
    story = told(places, kernel)
    shuffled = tuple(Round(r.number, tuple(r.traces[at] for at in order)) for r in story.rounds)
    assert to_json(diagnose(replace(story, rounds=shuffled), CUBE)) == to_json(diagnose(story, CUBE))


@given(placements, states)
def test_renaming_machines_renames_the_answer(places: list[str], kernel: list[str]) -> None:
    renamed = Topology(8, CUBE.groups, {name.replace("node", "host"): ranks for name, ranks in CUBE.machines.items()})
    story = told(places, kernel)
    here, there = diagnose(story, CUBE), diagnose(story, renamed)
    assert here.kind is there.kind
    assert [m.replace("node", "host") for m in here.evict.machines] == list(there.evict.machines)


@given(placements, states)
def test_every_verdict_keeps_the_contract(places: list[str], kernel: list[str]) -> None:
    verdict = diagnose(told(places, kernel), CUBE)
    assert 0 <= verdict.confidence <= 1
    probabilities = [suspect.probability for suspect in verdict.suspects]
    assert probabilities == sorted(probabilities, reverse=True) and all(0 <= p <= 1 for p in probabilities)
    assert not (verdict.evict.machines and verdict.kind in NO_EVICTION)
    assert not verdict.evict.machines or verdict.evict.coverage >= Options().coverage_target
    assert to_json(from_json(to_json(verdict))) == to_json(verdict)


@given(placements, states)
def test_clusters_partition_the_captured_ranks(places: list[str], kernel: list[str]) -> None:
    verdict = diagnose(told(places, kernel), CUBE)
    clustered = [rank for cluster in verdict.clusters for rank in cluster.ranks]
    assert len(clustered) == len(set(clustered))
    assert set(clustered) >= {rank for rank in range(8) if places[rank] in STACKS}


@given(st.integers(0, 7), st.sampled_from(["loader", "user", "write"]))
def test_renaming_ranks_renames_the_suspect(rank: int, culprit: str) -> None:
    traces = [trace(other, culprit if other == rank else "metrics") for other in range(8)]
    assert diagnose(snapshot(traces, traces), CUBE).suspects[0].ranks == (rank,)


@given(placements, states)
def test_roots_and_waiting_partition_the_look(places: list[str], kernel: list[str]) -> None:
    standing = Reader(packaged()).look(told(places, kernel).rounds[0].traces)
    found = waits.find(standing, motion.observe([standing]), CUBE)
    assert sorted([*found.roots, *found.waiting]) == list(range(8))
    for hold in found.holds:
        assert not set(hold.inside) & set(hold.awaited)


@given(placements, placements)
def test_a_look_that_repeats_shows_no_motion(places: list[str], others: list[str]) -> None:
    one = Reader(packaged()).look(told(places, [""] * 8).rounds[0].traces)
    two = Reader(packaged()).look(told(others, [""] * 8).rounds[0].traces)
    assert not motion.observe([one, one]).freed
    assert motion.observe([two, one, one]).rounds >= 2


explanations = st.dictionaries(
    st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=3), st.floats(0.01, 0.4), min_size=1, max_size=5
)


@settings(max_examples=300)
@given(explanations, st.floats(0.1, 0.99))
def test_an_eviction_reaches_its_target_or_is_empty(odds: dict[frozenset[str], float], target: float) -> None:
    total = sum(odds.values()) + 0.05
    weighed = {machines: p / total for machines, p in odds.items()}
    chosen = smallest(weighed, Options(coverage_target=target, budget_machines=6))
    covered = sum(p for machines, p in weighed.items() if machines <= set(chosen.machines))
    if chosen.machines:
        assert covered >= target and abs(chosen.coverage - covered) < 1e-9
        for spared in chosen.machines:  # no machine is evicted in vain
            rest = set(chosen.machines) - {spared}
            assert sum(p for machines, p in weighed.items() if machines <= rest) < target
    else:
        assert sum(weighed.values()) < target


def test_a_healthy_rank_more_adds_no_suspect() -> None:
    few = diagnose(snapshot(*[look({"0-6": "metrics", "7": "loader"})] * 2), job(dp=8))
    many = diagnose(snapshot(*[look({"0-6,8-15": "metrics", "7": "loader"})] * 2), job(dp=16))
    assert [s.ranks for s in few.suspects] == [s.ranks for s in many.suspects] == [(Rank(7),)]
