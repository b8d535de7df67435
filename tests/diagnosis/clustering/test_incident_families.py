"""Families of incidents: what is one kind though its stacks differ a little, what is another, and what it costs to know."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from random import Random
from time import process_time

import pytest

from hangdog_models.diagnosis.clustering.distance import CUT
from hangdog_models.diagnosis.clustering.incident_families import (
    PLACES,
    apart,
    families,
    family_of,
)
from hangdog_models.diagnosis.clustering.incident_features import DEEPEST, RANKS, WAITS, of_ranks
from hangdog_models.past_incidents import EarlierIncident, Family, IncidentFeatures
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Activity, ClusterView

TOP = ("<module> (train.py)", "train (train.py)", "step (train.py)")
AUGMENT = (*TOP, "augment (data.py)", "rotate (images.py)")
LOADER = (*TOP, "next_batch (data.py)", "_next_data (torch/utils/data/dataloader.py)", "get (queue.py)")
WAITING = (("collective dp all_gather", 1.0),)


def features(
    *place: str, waits: tuple[tuple[str, float], ...] = WAITING, activity: str = "compute"
) -> IncidentFeatures:
    return IncidentFeatures("node-1", (2,), activity, place, waits)


def past(*places: Sequence[str]) -> list[EarlierIncident]:
    return [EarlierIncident(f"{at:03}", 60.0 * at, features(*place)) for at, place in enumerate(places)]


def names(found: Sequence[Family]) -> set[tuple[str, ...]]:
    return {tuple(sorted(one.id for one in family)) for family in found}


def helped(place: Sequence[str], at: int, helper: str) -> tuple[str, ...]:
    return (*place[:at], helper, *place[at:])


@pytest.mark.parametrize(
    "other",
    [
        helped(AUGMENT, 3, "timed (timers.py)"),
        helped(AUGMENT, 1, "retry (robust.py)"),
        (*AUGMENT, "_check (images.py)"),
        AUGMENT[:-1],
        (*AUGMENT[:3], *AUGMENT),
        (*AUGMENT, "wait (threading.py)"),
    ],
    ids=["helper", "outer helper", "one call further in", "one call further out", "recursion", "asleep there"],
)
def test_the_same_place_with_jitter_is_one_kind(other: tuple[str, ...]) -> None:
    assert apart(features(*AUGMENT), features(*other)) < CUT > apart(features(*other), features(*AUGMENT))


@pytest.mark.parametrize(
    "other",
    [
        LOADER,
        (*TOP, "evaluate (evaluation.py)"),
        TOP,
        (*AUGMENT[:-1], "flip (images.py)"),
        (),
    ],
    ids=["loader", "another phase", "all that it is called by", "a sister", "nothing known"],
)
def test_another_place_is_another_kind(other: tuple[str, ...]) -> None:
    one, another = features(*AUGMENT), features(*other)
    assert apart(one, another) == apart(another, one) >= CUT


def test_what_the_others_wait_in_counts_a_little() -> None:
    elsewhere = features(*AUGMENT, waits=(("p2p pp recv", 1.0),))
    assert 0 < apart(features(*AUGMENT), elsewhere) < CUT
    assert apart(features(*AUGMENT), features(*AUGMENT)) == 0


def test_families_do_not_depend_on_the_order_and_hold_everybody_once() -> None:
    places = [
        AUGMENT,
        helped(AUGMENT, 3, "timed (timers.py)"),
        helped(AUGMENT, 2, "retry (robust.py)"),
        LOADER,
        LOADER,
        TOP,
    ]
    them = past(*places)
    found = {frozenset(names(families(order))) for order in permutations(them, len(them))}
    assert found == {frozenset({("000", "001", "002"), ("003", "004"), ("005",)})}


def test_a_new_incident_is_of_the_family_that_it_is_most_like_or_of_none() -> None:
    known = families(past(AUGMENT, AUGMENT, LOADER))
    assert [one.id for one in family_of(features(*helped(AUGMENT, 3, "timed (timers.py)")), known)] == ["000", "001"]
    assert family_of(features(*TOP, "evaluate (evaluation.py)"), known) == ()
    assert family_of(features(*AUGMENT), ()) == ()


def test_two_crowds_that_a_chain_of_odd_ones_joins_are_two_families() -> None:
    outer, inner = AUGMENT[:-1], (*AUGMENT[:-1], "_one (images.py)", "_two (images.py)")
    here = [outer, *(helped(outer, at, f"helper_{at} (h.py)") for at in (1, 2))]
    there = [inner, *(helped(inner, at, f"helper_{at} (h.py)") for at in (1, 2))]
    between = [inner[:-1]]
    found = names(families(past(*here, *there, *between)))
    assert not any({"000", "003"} <= set(family) for family in found)
    chained = names(families(past(*here, *there, *between), lambda distances, counts: [0] * len(counts)))
    assert any({"000", "003"} <= set(family) for family in chained), "a chain leads from one to the other"


def test_the_library_is_loaded_only_where_places_differ_by_little() -> None:
    probe = (
        "import sys\n"
        "from hangdog_models.diagnosis.clustering.incident_families import families\n"
        "from hangdog_models.past_incidents import IncidentFeatures as F, EarlierIncident as P\n"
        "places = (('a (x)', 'b (x)'), ('a (x)', 'b (x)'), ('c (y)', 'd (z)'))\n"
        "past = [P(str(at), 1.0, F('m', (at,), 'compute', place, ())) for at, place in enumerate(places)]\n"
        "assert len(families(past)) == 2 and families([]) == ()\n"
        "import hangdog_models.diagnosis.judge\n"
        "print(*({'numpy', 'scipy', 'sklearn', 'hdbscan'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_of_many_places_the_latest_are_compared_and_it_takes_a_second_at_most() -> None:
    chance = Random(1)
    frames = [f"f{number} (f{number % 7}.py)" for number in range(40)]
    them = past(*([*chance.choices(frames, k=DEEPEST - 1), f"leaf_{at} (x.py)"] for at in range(200)))
    began = process_time()
    found = families(them)
    assert process_time() - began < 5
    assert sum(map(len, found)) == PLACES and {one.id for family in found for one in family} == {
        one.id for one in them[:PLACES]
    }


def test_what_is_kept_of_an_incident_is_bounded() -> None:
    ranks = tuple(Rank(rank) for rank in range(100))
    deep = tuple(f"f{number} ({'x' * 999})" for number in range(999))
    here = ClusterView(0, ranks, Activity.COMPUTE, None, "f", deep)
    others = [
        ClusterView(at, (Rank(200 + at),), Activity.COLLECTIVE, "dp", "y" * 999 + str(at), ("z",))
        for at in range(1, 99)
    ]
    found = of_ranks("node-1", ranks, [here, *others])
    assert found is not None and len(found.ranks) == RANKS and len(found.place) == DEEPEST and len(found.waits) <= WAITS
    assert max(map(len, (*found.place, *(wait for wait, _ in found.waits)))) < 300
    assert found.place[-1].startswith("f998 ")


@pytest.mark.parametrize("activity", [Activity.STOPPED, Activity.DEAD, Activity.MISSING])
def test_who_was_ended_or_stopped_is_of_no_kind(activity: Activity) -> None:
    here = ClusterView(0, (Rank(1),), activity, None, "f", AUGMENT)
    assert of_ranks("node-1", (Rank(1),), [here]) is None
    assert of_ranks("node-1", (Rank(1),), [replace(here, activity=Activity.COMPUTE)]) is not None
    assert of_ranks("node-1", (), [here]) is None is of_ranks("node-1", (Rank(2),), [here])
