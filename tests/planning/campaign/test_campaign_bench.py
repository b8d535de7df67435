"""The benchmark in short: what the planner must reach, on a few incidents of each scene, and that the others do what they say."""

from dataclasses import replace

import pytest

from planning import __main__ as command
from planning.cluster import Cluster
from planning.methods import bisection, pairing, replay
from planning.scenes import ALL_GATHER, ANY_SIZE, REPLAY, Scene, names, scenes

#: Of the simulator that measures, not of what it measures.
pytestmark = [pytest.mark.slow, pytest.mark.parallel]

CLOCK = iter(range(1_000_000)).__next__
SCENES = {scene.name: scene for scene in scenes(lambda: float(CLOCK()))}


def scene(part: str) -> Scene:
    (found,) = (scene for name, scene in SCENES.items() if name.startswith(part))
    return replace(found, times=1)


@pytest.mark.parametrize(
    ("part", "incidents", "rounds", "launches"),
    [
        ("1 of 232, fixed, no noise", 4, 5, 22),
        ("1 of 232, fixed, 2 %", 4, 9, 22),
        ("1 of 1,024, fixed, one of 8", 5, 3, 999),
        ("1 of 1,024, fixed, no prior, no noise", 3, 3, 128),
        ("2 of 1,024, fixed, no noise", 2, 3, 192),
        ("1 of 1,024, p = 0.2", 1, 30, 1500),
        ("0 of 1,024", 4, 5, 999),
        ("a link", 1, 25, 120),
        ("a leaf", 3, 6, 80),
    ],
)  # fmt: skip
def test_the_planner_is_exact_within_its_bounds(part: str, incidents: int, rounds: int, launches: int) -> None:
    seen = command.measure(scene(part), "planner", incidents)
    assert all(one.exact for one in seen)
    assert max(one.cluster.rounds for one in seen) <= rounds
    assert max(one.cluster.launches for one in seen) <= launches


def test_a_third_phase_names_two_faults_where_two_phases_often_do_not() -> None:
    two = scene("2 of 1,024, fixed, no noise")
    third, dual = (command.measure(two, name, 40) for name in ("H, V and third phase", "ByteRobust H, V"))
    assert all(one.exact for one in third)
    assert all(one.found for one in dual) and 0.6 < sum(one.exact for one in dual) / 40 < 0.9


def test_bisection_takes_one_launch_a_round() -> None:
    cluster = Cluster(1, {"m0300": 1.0})
    assert bisection(replace(ANY_SIZE, false_alarm=0.0))(cluster, names(1024)).evict == {"m0300"}
    assert cluster.launches == cluster.rounds == 11
    assert not bisection(replace(ANY_SIZE, false_alarm=0.0))(Cluster(1, {}), names(1024)).evict


@pytest.mark.parametrize("count", [8, 9])
def test_pairing_clears_who_passes_once_in_two_rounds(count: int) -> None:
    quiet = replace(ALL_GATHER, false_alarm=0.0)
    for faulty in names(count):
        cluster = Cluster(3, {faulty: 1.0})
        assert pairing(quiet)(cluster, names(count)).evict == {faulty}
        assert cluster.rounds == 2 and cluster.launches == 2 * (count // 2)


def test_two_phases_cross_at_the_published_machine() -> None:
    cluster = Cluster(1, {"m0013": 1.0})
    quiet = replace(REPLAY, false_alarm=0.0)
    assert replay(quiet, 4, third=False)(cluster, names(24)).evict == {"m0013"}
    assert cluster.launches == 12 and cluster.rounds == 2


def test_a_pretend_cluster_errs_as_often_as_it_says() -> None:
    wolf = replace(ALL_GATHER, false_alarm=0.1, miss=0.2)
    cluster = Cluster(7, {"m0000": 0.5})
    sound = sum(cluster.fails(wolf, [["m0001", "m0002"]])[0] for _ in range(2000)) / 2000
    bad = sum(cluster.fails(wolf, [["m0000", "m0002"]], 2)[0] for _ in range(2000)) / 2000
    assert sound == pytest.approx(0.1, abs=0.03) and bad == pytest.approx(1 - 0.9 * (1 - 0.8 * 0.75), abs=0.04)


def test_the_command_prints_a_row_a_method(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench/planning", "--incidents", "2", "--only", "a leaf"])
    command.main()
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2 + 4 and rows[2].startswith("| a leaf of 64 machines | planner | 2 | 100.0 % |")
