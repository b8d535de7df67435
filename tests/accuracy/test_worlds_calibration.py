"""How true what is said is: each rule of the measure on a verdict made by hand, and every figure on a set counted by hand."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Culprit, Eviction, StallCause, Verdict
from support.cases.stories import job, look, twice
from worlds.calibration import Calibration, Said, calibrations, evicted, heads, lines, who, why

#: Eight ranks, two on each of four machines: rank 5 is on node-2.
SHAPE = job(tp=2, dp=2, pp=2)
VERDICT = diagnose(twice(look({"0-4,6-7": "metrics", "5": "disk"})), SHAPE)
NOBODY = dict.fromkeys(StallCause, 0.0)


def said(
    *machines: str, probability: float = 0.75, causes: Mapping[StallCause, float] | None = None, coverage: float = 0.0
) -> Verdict:
    """A verdict that names these machines as culprit; with a coverage it evicts them."""
    parts = causes or {StallCause.MACHINE: probability}
    ranks = tuple(rank for machine in machines for rank in SHAPE.machines.get(machine, ()))
    culprit = Culprit(ranks, machines, probability, (), parts) if machines else None
    evict = Eviction(machines, coverage) if coverage else Eviction()
    rest = {StallCause.UNKNOWN: 1.0 - sum(parts.values())} if machines else {StallCause.UNKNOWN: 1.0}
    return replace(VERDICT, culprit=culprit, causes={**NOBODY, **rest, **(parts if machines else {})}, evict=evict)


@pytest.mark.parametrize(
    ("named", "want", "true"),
    [
        (("node-2",), {"must_include_ranks": "5"}, 1.0),
        (("node-1",), {"must_include_ranks": "5"}, 0.0),
        (("node-2",), {"must_include_machines": ["node-2"]}, 1.0),
        (("node-2",), {"culprit_ranks": "5", "culprit_machines": ["node-2"]}, 1.0),
        (("node-1",), {"culprit_ranks": "5", "culprit_machines": []}, 0.0),
        # one of several who are guilty, and a group that holds all of them
        (("node-2",), {"must_include_ranks": "1,5"}, 1.0),
        (("node-0", "node-1", "node-2"), {"must_include_ranks": "1,5"}, 1.0),
        # neither: one who is, and one who is not
        (("node-1", "node-2"), {"must_include_ranks": "1,5"}, 0.0),
        (("node-1", "node-2"), {"must_include_any_ranks": "1,5"}, 1.0),
        ((), {"must_include_ranks": "5"}, None),
    ],
)
def test_who_is_named_is_held_to_who_is_guilty(
    named: tuple[str, ...], want: dict[str, Any], true: float | None
) -> None:
    found = who({"verdict": ["machine"], **want}, said(*named), SHAPE)
    assert found == (None if true is None else Said(0.75, true))


def test_who_has_no_machine_is_held_to_its_rank() -> None:
    alone = replace(SHAPE, machines={})
    named = replace(VERDICT, culprit=Culprit((Rank(5),), (), 0.75, ()))
    assert who({"verdict": ["machine"], "must_include_ranks": "5"}, named, alone) == Said(0.75, 1.0)
    assert who({"verdict": ["machine"], "must_include_ranks": "4"}, named, alone) == Said(0.75, 0.0)


@pytest.mark.parametrize(
    ("accepted", "causes", "found"),
    [
        # a sound job: somebody is named for the fault of a machine
        (["none", "undetermined"], {StallCause.MACHINE: 0.5, StallCause.HEALTHY: 0.25}, Said(0.75, 0.0)),
        # it is named as the one whose healthy phase the others wait for, or for the code that is at fault: who that is stands nowhere
        (["none", "undetermined"], {StallCause.MACHINE: 0.25, StallCause.HEALTHY: 0.5}, None),
        (["software"], {StallCause.SOFTWARE: 0.75}, None),
        # nothing tells why, and the case accepts that; it does not accept that one names the code
        (["none", "undetermined"], {StallCause.MACHINE: 0.25, StallCause.UNKNOWN: 0.5}, None),
        (["none"], {StallCause.MACHINE: 0.25, StallCause.UNKNOWN: 0.5}, Said(0.75, 0.0)),
        (["undetermined"], {StallCause.SOFTWARE: 0.75}, Said(0.75, 0.0)),
    ],
)
def test_where_nobody_is_guilty_only_a_cause_that_is_not_accepted_makes_it_false(
    accepted: list[str], causes: dict[StallCause, float], found: Said | None
) -> None:
    assert who({"verdict": accepted}, said("node-2", causes=causes), SHAPE) == found


@pytest.mark.parametrize(
    "words",
    ["Rank 5 evaluates.", "none: rank5-index; nobody", "the batch of rank(s) 1,5 is long", "It trains. (rank 0-7)", ""],
)
def test_whose_healthy_phase_the_others_wait_for_is_named_truly_whatever_the_reason(words: str) -> None:
    sound = {"verdict": ["none", "undetermined"], "ground_truth": words}
    alone = bool(words) and "0-7" not in words  # of a phase of all ranks nobody waits for one of them
    assert who(sound, said("node-2"), SHAPE) == Said(0.75, float(alone))
    assert who(sound, said("node-3"), SHAPE) == Said(0.75, 0.0)
    assert who({**sound, "verdict": ["machine"], "must_include_ranks": "1"}, said("node-2"), SHAPE) == Said(0.75, 0.0)


@pytest.mark.parametrize(
    ("accepted", "found"),
    [
        (["machine"], Said(0.6, 1.0)),
        (["machine", "undetermined"], Said(0.6, 1.0)),
        (["software", "none"], Said(0.6, 0.0)),
        # nothing tells which of the two it is, so it is as true as it says among them
        (["machine", "software"], Said(0.6, 0.75)),
        (["undetermined"], None),
    ],
)
def test_a_cause_is_held_to_those_that_are_accepted(accepted: list[str], found: Said | None) -> None:
    causes = {StallCause.MACHINE: 0.6, StallCause.SOFTWARE: 0.2, StallCause.DEPENDENCY: 0.1}
    told = why({"verdict": accepted}, said("node-2", causes=causes))
    assert (told and (told.probability, pytest.approx(told.true))) == (found and (found.probability, found.true))


def test_an_unknown_cause_claims_nothing() -> None:
    assert why({"verdict": ["machine"]}, said("node-2", causes={StallCause.MACHINE: 0.4})) is None


@pytest.mark.parametrize(
    ("want", "true"),
    [
        ({"must_include_ranks": "5", "evict_at_most": 1}, 1.0),
        ({"must_include_ranks": "1", "evict_at_most": 1}, 0.0),
        ({"must_include_ranks": "5", "evict_at_most": 1, "must_not_evict": ["node-2"]}, 0.0),
        ({"must_include_ranks": "5", "evict_at_most": 0}, 0.0),
        ({"evict_at_most": 1, "must_not_evict": ["node-1"]}, 1.0),
        ({"culprit_machines": ["node-3"], "evict_at_most": 1}, 0.0),
    ],
)
def test_an_eviction_is_true_where_the_fault_is_inside_and_nobody_is_to_stay(want: dict[str, Any], true: float) -> None:
    assert evicted({"verdict": ["machine"], **want}, said("node-2", coverage=0.97), SHAPE) == Said(0.97, true)
    assert evicted({"verdict": ["machine"], **want}, said("node-2"), SHAPE) is None


def test_the_figures_of_a_set_counted_by_hand() -> None:
    of = Calibration([Said(0.95, 1.0), Said(0.91, 0.0), Said(1.0, 1.0), Said(0.55, 1.0), Said(0.55, 0.0)])
    assert of.bins[9].said == pytest.approx(2.86 / 3) and of.bins[9].true == pytest.approx(2 / 3)
    assert of.bins[5].count == 2 and of.bins[5].true == 0.5
    assert of.gap == pytest.approx((0.86 + 0.1) / 5)
    assert of.sure == (1.0, 1)
    # 0.95 * 0.05 + 0.91 * 0.09 = 0.1294, and twice 0.55 * 0.45 = 0.495
    assert of.by_chance == pytest.approx((2 / 3.14159265) ** 0.5 * (0.1294**0.5 + 0.495**0.5) / 5)
    assert (Calibration([]).gap, Calibration([]).by_chance, Calibration([]).sure) == (0.0, 0.0, (0, 0))


def test_a_world_is_told_in_a_line_for_each_thing_that_is_said() -> None:
    want = {"verdict": ["machine"], "must_include_ranks": "5", "evict_at_most": 1}
    found = calibrations([(want, said("node-2", coverage=0.97), SHAPE), (want, said("node-1"), SHAPE)])
    shown = list(lines("here", found))
    assert [line.split(" | ")[:3] for line in shown] == [
        ["| here", "who", "2"],
        ["| here", "why", "2"],
        ["| here", "evict", "1"],
    ]
    assert "75: 50 (2)" in shown[0] and "97: 100 (1)" in shown[2]
    assert len({line.count("|") for line in (*heads(), *shown)}) == 1
