"""Laws that hold for every incident: order does not matter, names are only names, the sound are never blamed."""

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.observe import motion
from hangdog_models.diagnosis.observe.rank_state_reader import RankStateReader
from hangdog_models.diagnosis.options import Options
from hangdog_models.diagnosis.verdict.eviction import blamed, eligible, smallest
from hangdog_models.diagnosis.waits import waits
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Round, Snapshot, merged
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Act, Kind, Verdict, from_json, to_json
from support.cases.stories import STACKS, job, look, snapshot, trace

#: Milliseconds each, where nothing else runs; a busy machine must not fail them.
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


@given(st.integers(0, 7), st.sampled_from(["loader", "disk", "user", "write"]))
def test_renaming_ranks_renames_the_suspect(rank: int, culprit: str) -> None:
    traces = [trace(other, culprit if other == rank else "metrics") for other in range(8)]
    assert diagnose(snapshot(traces, traces), CUBE).suspects[0].ranks == (rank,)


@given(placements, states)
def test_roots_and_waiting_partition_the_look(places: list[str], kernel: list[str]) -> None:
    standing = RankStateReader(packaged()).look(told(places, kernel).rounds[0].traces)
    found = waits.find(standing, motion.observe([standing]), CUBE)
    assert sorted([*found.roots, *found.waiting]) == list(range(8))
    for hold in found.holds:
        assert not set(hold.inside) & set(hold.awaited)


@given(placements, placements)
def test_a_look_that_repeats_shows_no_motion(places: list[str], others: list[str]) -> None:
    one = RankStateReader(packaged()).look(told(places, [""] * 8).rounds[0].traces)
    two = RankStateReader(packaged()).look(told(others, [""] * 8).rounds[0].traces)
    assert not motion.observe([one, one]).freed
    assert motion.observe([two, one, one]).rounds >= 2


explanations = st.dictionaries(
    st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=3), st.floats(0.01, 0.4), min_size=1, max_size=5
)


@given(explanations, st.floats(0.1, 0.99))
def test_an_eviction_reaches_its_target_or_is_empty(odds: dict[frozenset[str], float], target: float) -> None:
    total = sum(odds.values()) + 0.05
    weighed = {machines: p / total for machines, p in odds.items()}
    chosen = smallest(weighed, Options(coverage_target=target, budget_machines=6))
    covered = sum(p for machines, p in weighed.items() if machines <= set(chosen.machines))
    blame = blamed(weighed)
    sure = {machine for machine, p in blame.items() if p >= target}
    if sure:  # guilty by themselves, and nobody is evicted beside them
        assert set(chosen.machines) == sure and abs(chosen.coverage - min(blame[one] for one in sure)) < 1e-9
    elif chosen.machines:
        assert covered >= target and abs(chosen.coverage - covered) < 1e-9
        for spared in chosen.machines:  # no machine is evicted in vain
            rest = set(chosen.machines) - {spared}
            assert sum(p for machines, p in weighed.items() if machines <= rest) < target
    else:  # also where only machines that hardly anybody suspects could make it up
        assert sum(eligible(weighed).values()) < target


def test_a_healthy_rank_more_adds_no_suspect() -> None:
    few = diagnose(snapshot(*[look({"0-6": "metrics", "7": "loader"})] * 2), job(dp=8))
    many = diagnose(snapshot(*[look({"0-6,8-15": "metrics", "7": "loader"})] * 2), job(dp=16))
    assert [s.ranks for s in few.suspects] == [s.ranks for s in many.suspects] == [(Rank(7),)]


#: Names that sort unlike the machines they are given to, one of them inside another.
OTHER_NAMES = ("zulu", "alpha", "mike", "alpha-2")


@example(
    ["loader", "timed out", "user", "backward", "backward", "backward", "backward", "user"],
    ["", "", "R", "", "", "T", "", "R"],
    ["zulu", "mike", "alpha", "alpha-2"],
)
@given(placements, states, st.permutations(OTHER_NAMES))
def test_a_machines_name_is_only_a_name(places: list[str], kernel: list[str], names: list[str]) -> None:
    new = dict(zip(CUBE.machines, names, strict=True))
    renamed = Topology(8, CUBE.groups, {new[old]: ranks for old, ranks in CUBE.machines.items()})
    story = told(places, kernel)
    written = json.dumps(to_json(diagnose(story, CUBE)))
    for old, name in new.items():
        written = written.replace(old, name)
    here, there = json.loads(written), to_json(diagnose(story, renamed))
    assert here | {"evict": None, "next": None} == there | {"evict": None, "next": None}
    assert set(here["evict"]["machines"]) == set(there["evict"]["machines"])  # listed by name


@given(placements, states, st.permutations(list(CUBE.machines)))
def test_the_order_of_machines_does_not_matter(places: list[str], kernel: list[str], order: list[str]) -> None:
    turned = Topology(8, CUBE.groups, {name: CUBE.machines[name] for name in order})
    here, there = diagnose(told(places, kernel), CUBE), diagnose(told(places, kernel), turned)
    assert (here.kind, set(here.evict.machines)) == (there.kind, set(there.evict.machines))
    assert accused(here) == accused(there)


def accused(verdict: Verdict) -> set[tuple[Rank, ...]]:
    return {suspect.ranks for suspect in verdict.suspects}


def replicas(world: int, common: str) -> Topology:
    """Whole replicas one after the other, so that one more renames nobody; of one rank each where FSDP spans the job."""
    model = {} if common in ("gather", "scatter") else {"tp": 2, "pp": 2}
    sizes = {**model, "dp": world // 4 if model else world}
    layout = Layout(order=("tp", "pp", "dp"), sizes=sizes, ranks_per_machine=2)
    topology, notes = build(layout, None)
    assert not notes
    return topology


#: Where all of a job may wait for one of them, in groups that span the job.
COMMON = ("metrics", "backward", "barrier", "gather", "scatter")
#: Where a rank holds the others up.
CULPRITS = ("loader", "disk", "user", "write", "timed out", "exited")


@example(
    "backward", {0: "timed out", 4: "timed out"}, False, True
)  # who waits for somebody unseen stands apart for that
@example("metrics", {0: "user", 2: "user"}, False, False)  # 0 and 2 are one pipeline: so nobody lacks in the others
@given(
    st.sampled_from(COMMON),
    st.dictionaries(st.integers(0, 7), st.sampled_from(CULPRITS), min_size=1, max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_a_healthy_replica_more_adds_no_suspect(
    common: str, culprits: dict[int, str], peers: bool, stages: bool
) -> None:
    """The culprits' replicas wait for them, in part in groups of their own; all others, the new ones too, in a common one."""
    topology = replicas(8, common)
    places = dict.fromkeys(range(8), common)
    for rank in culprits:
        places |= {r: "stage" for r in topology.group("pp", Rank(rank)) or () if stages}
    for rank in culprits:
        places |= {r: "tensor" for r in topology.group("tp", Rank(rank)) or () if peers}
    few = [trace(rank, place) for rank, place in (places | culprits).items()]
    more = [*few, *(trace(rank, common) for rank in range(8, 12))]
    here, there = diagnose(snapshot(few, few), topology), diagnose(snapshot(more, more), replicas(12, common))
    before, after = ({rank for ranks in accused(verdict) for rank in ranks} for verdict in (here, there))
    assert after <= before | set(culprits)  # the guilty may stand out more clearly; nobody innocent is drawn in


@given(placements, states, st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_it_does_not_matter_who_sent_which_part(places: list[str], kernel: list[str], sender: list[int]) -> None:
    whole = told(places, kernel)
    parts = [
        replace(
            whole,
            rounds=tuple(Round(r.number, tuple(t for t in r.traces if sender[t.rank] == who)) for r in whole.rounds),
        )
        for who in range(3)
    ]
    assert merged(parts) == merged([whole])
    assert to_json(diagnose(merged(parts), CUBE)) == to_json(diagnose(whole, CUBE))


@given(placements, states)
def test_all_that_is_said_is_read_off_one_posterior(places: list[str], kernel: list[str]) -> None:
    verdict = diagnose(told(places, kernel), CUBE)
    assert sum(verdict.causes.values()) == pytest.approx(1.0)
    assert verdict.next
    assert verdict.evict.machines == next((step.machines for step in verdict.next if step.do is Act.EVICT), ())
    if verdict.kind in (Kind.MACHINE, Kind.SLOW) and verdict.culprit is not None:
        for suspect in verdict.suspects:
            if suspect.ranks == verdict.culprit.ranks:
                assert suspect.probability <= verdict.culprit.probability + 1e-9, (
                    "whatever the cause is more than one cause"
                )
