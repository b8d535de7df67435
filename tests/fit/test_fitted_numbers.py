"""The fit: it finds the numbers that cases were made by, and leaves alone what teaches nothing elsewhere."""

from math import exp, log
from random import Random

import numpy as np
import pytest

from fit import choose
from fit.reweighed import judged, judging_by, moved
from fit.scene import Scene, scene
from fit.solve import errors, fit, loss, problem
from fit.table import Support, written
from fit.traced import traced
from hangdog_models.rules.likelihoods import packaged, parse
from hangdog_models.verdict import Kind
from support.cases.stories import job, look, twice
from worlds.case import Case
from worlds.truth import Truth, wanted

SHAPE = job(tp=2, dp=2, pp=2)
#: Rank 5 waits for its loader while all others wait for it: its machine, node-2.
LOADER = twice(look({"0-4,6-7": "metrics", "5": "loader"}))
WANT = {"verdict": ["machine"], "must_include_ranks": "5", "evict_at_most": 1}


def drawn(world: str, rng: Random, of_a: float, of_b: float, count: int = 200) -> list[Scene]:
    """Scenes of two explanations, of which the first is true as often as the rows say that move it."""
    found = []
    for at in range(count):
        by = {"a": rng.choice((0.0, 1.0, 2.0)), "b": rng.choice((-1.0, 0.0, 1.0))}
        likely = 1 / (1 + exp(-(by["a"] * of_a + by["b"] * of_b)))
        first = rng.random() < likely
        found.append(Scene(world, str(at), [log(0.5)] * 2, [first, not first], [by, {}]))
    return found


def test_the_numbers_that_cases_were_made_by_are_found() -> None:
    scenes = drawn("one", Random(1), of_a=1.0, of_b=-0.5, count=2000)
    of = problem(scenes, ["a", "b"], of_world=2000)
    found = fit(of, [0, 1], spread=10.0)
    assert found == pytest.approx([1.0, -0.5], abs=0.15)
    assert errors(of, found, spread=10.0) == pytest.approx([0.06, 0.07], abs=0.03)
    assert loss(of, found)[0] < loss(of, np.zeros(2))[0]


def test_the_gradient_is_that_of_the_loss() -> None:
    of = problem(drawn("one", Random(2), 0.3, 0.3), ["a", "b"], of_world=50)
    at, step = np.array([0.2, -0.1]), 1e-6
    for column in (0, 1):
        ahead = at.copy()
        ahead[column] += step
        assert loss(of, at)[1][column] == pytest.approx((loss(of, ahead)[0] - loss(of, at)[0]) / step, rel=1e-3)


def test_what_a_number_is_not_moved_by_stays_as_uncertain_as_before() -> None:
    of = problem(drawn("one", Random(3), 1.0, 0.0), ["a", "b", "never"], of_world=200)
    assert errors(of, np.zeros(3), spread=0.7)[2] == pytest.approx(0.7)


def test_a_number_is_fitted_where_worlds_agree_on_it() -> None:
    scenes = [one for at, world in enumerate("xyz") for one in drawn(world, Random(at), of_a=1.0, of_b=0.0)]
    moves = choose.moves_of(scenes, ["a", "b"])
    assert set(moves) == {"a"} and 0.5 < moves["a"] < 1.1


def test_a_number_that_worlds_contradict_each_other_about_is_left_alone() -> None:
    scenes = [*drawn("x", Random(1), 0.0, 1.0), *drawn("y", Random(2), 0.0, -1.0)]
    assert choose.moves_of(scenes, ["a", "b"]) == {}


def test_one_world_alone_teaches_nothing() -> None:
    assert choose.moves_of(drawn("x", Random(1), 1.0, 1.0), ["a", "b"]) == {}


def test_the_scene_of_a_case_says_what_moves_each_explanation() -> None:
    with judging_by(traced(packaged())):
        found = scene(Case("here", "loader", LOADER, SHAPE, WANT))
    assert found is not None
    best = max(range(len(found.log_odds)), key=lambda at: found.log_odds[at])
    assert found.is_right[best] and found.moved_by[best]["root_still"] > 0
    # the same number, asked for again with the table moved
    step = 1e-4
    with judging_by(traced(moved(packaged(), {"root_still": step}))):
        after = scene(Case("here", "loader", LOADER, SHAPE, WANT))
    assert after is not None
    apart = [(b - a) / step for a, b in zip(found.log_odds, after.log_odds, strict=True)]
    assert apart == pytest.approx([by.get("root_still", 0.0) for by in found.moved_by], abs=1e-3)


def test_of_a_case_that_no_explanation_is_right_about_nothing_is_learned() -> None:
    with judging_by(traced(packaged())):
        assert scene(Case("here", "loader", LOADER, SHAPE, {"verdict": ["machine"], "must_include_ranks": "1"})) is None


def test_afterwards_the_diagnosis_is_the_one_there_was() -> None:
    from hangdog_models.diagnosis.hypotheses.blame_factors import ROOT_STILL

    with judging_by(moved(packaged(), {"root_still": 1.0})):
        from hangdog_models.diagnosis.hypotheses import blame_factors

        assert pytest.approx(exp(1.0)) == blame_factors.ROOT_STILL / ROOT_STILL
    from hangdog_models.diagnosis.hypotheses import blame_factors as again

    assert again.ROOT_STILL == ROOT_STILL


@pytest.mark.parametrize(
    ("kind", "blamed", "together", "told"),
    [
        (Kind.MACHINE, {"node-2"}, False, True),
        (Kind.MACHINE, {"node-1"}, False, False),
        (Kind.MACHINE, {"node-1", "node-2"}, False, False),
        (Kind.MACHINE, set(), False, False),
        (Kind.GROUP, {"node-1", "node-2"}, True, True),
        (Kind.GROUP, {"node-1", "node-3"}, True, False),
        (Kind.DEPENDENCY, {"node-1", "node-2"}, False, True),
        (Kind.SOFTWARE, {"node-2"}, False, False),
        (Kind.UNDETERMINED, set(), False, False),
    ],
)
def test_an_explanation_is_true_when_it_blames_the_guilty_for_a_right_cause(
    kind: Kind, blamed: set[str], together: bool, told: bool
) -> None:
    truth = Truth(frozenset({Kind.MACHINE, Kind.GROUP, Kind.DEPENDENCY}), frozenset({"node-2"}))
    assert truth.told_by(kind, frozenset(blamed), together=together) is told


def test_where_nobody_is_guilty_that_nothing_is_stuck_is_as_true_as_that_it_is_not_seen() -> None:
    truth = wanted({"verdict": ["none", "software"]}, SHAPE)
    assert truth.told_by(Kind.UNDETERMINED, frozenset(), together=False)
    assert truth.told_by(Kind.SOFTWARE, frozenset({"node-1"}), together=False)
    assert not truth.told_by(Kind.MACHINE, frozenset({"node-1"}), together=False)


TEXT = """name = "x"

[[likelihood]]
name = "one"
value = 4.0
scenes = 99
meaning = "a"
evidence = "b"

[[likelihood]]
name = "each"
value = { machine = 0.125, software = 2 }
meaning = "c"
evidence = "d"
"""


def test_a_fit_is_written_beside_what_people_wrote_and_can_be_fitted_again() -> None:
    before = parse(TEXT)
    fitted = moved(before, {"one": log(2.5), "each.software": log(0.5)})
    support = {"one": Support(0.25, 12, ("x", "y")), "each.software": Support(0.5, 3, ("y",))}
    text = written(TEXT, before, fitted, support)
    assert (
        'value = 10.0\njudged = 4.0\nerror = 0.25\nscenes = 12\nworlds = ["x", "y"]\nmeaning = "a"' in text
        and "value = { machine = 0.125, software = 1.0 }\njudged = { machine = 0.125, software = 2.0 }\n" in text
        and "error = { software = 0.50 }\nscenes = { software = 3 }" in text
    )
    assert judged(parse(text)) == judged(before)
    assert written(text, before, fitted, support) == text
    # what is not moved stays as it was written
    assert written(TEXT, before, before, {}) == TEXT.replace("scenes = 99\n", "")
    assert parse(written(text, before, before, {})) == before
