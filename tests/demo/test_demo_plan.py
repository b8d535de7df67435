"""A seed makes one plan, and only the right cause with the right machine counts as right."""

import pytest

from hangdog.demo.demo_plan import DemoOutcome, DemoPlan, draw_plan
from hangdog.demo.faults import FAULTS
from hangdog.demo.shape import MACHINES, SIZES, WORLD_SIZE, machine, topology
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Coverage, Culprit, Eviction, EvidenceReport, Kind, Suspect, Verdict


def verdict(kind: Kind, evict: tuple[str, ...] = (), suspect: tuple[str, ...] = ()) -> Verdict:
    suspects = (Suspect((Rank(5),), suspect, 0.9, ()),) if suspect else ()
    return Verdict(
        "demo",
        WORLD_SIZE,
        kind,
        0.9,
        (),
        suspects,
        Eviction(evict),
        (),
        (),
        Coverage(8, 8, (), {}),
        EvidenceReport(),
        "",
        culprit=Culprit((Rank(5),), suspect, 0.9, ()) if suspect else None,
    )


def outcome(fault: str, judged: Verdict) -> DemoOutcome:
    return DemoOutcome(DemoPlan(1, FAULTS[fault], rank=5, after_step=4), judged, 0.0, 0.0)


def test_the_same_seed_makes_the_same_plan() -> None:
    assert draw_plan(7, None) == draw_plan(7, None)


def test_a_fault_asked_for_by_name_leaves_rank_and_moment_as_the_seed_has_them() -> None:
    drawn = draw_plan(7, None)
    for name in FAULTS:
        asked = draw_plan(7, name)
        assert (asked.fault.name, asked.rank, asked.after_step) == (name, drawn.rank, drawn.after_step)


def test_seeds_reach_every_fault_and_every_rank() -> None:
    plans = [draw_plan(seed, None) for seed in range(200)]
    assert {plan.fault.name for plan in plans} == set(FAULTS)
    assert {plan.rank for plan in plans} == set(range(WORLD_SIZE))


def test_a_machine_holds_a_tensor_parallel_pair() -> None:
    assert [machine(rank) for rank in range(WORLD_SIZE)] == [name for name in MACHINES for _ in range(SIZES["tp"])]
    assert topology() == "tp=2,dp=2,pp=2"


@pytest.mark.parametrize(
    ("fault", "judged", "right"),
    [
        ("lock", verdict(Kind.MACHINE, evict=("node-2",)), True),
        ("lock", verdict(Kind.MACHINE, suspect=("node-2",)), True),
        ("lock", verdict(Kind.SOFTWARE, suspect=("node-2",)), True),
        ("lock", verdict(Kind.SOFTWARE, suspect=("node-1",)), False),
        ("lock", verdict(Kind.DEPENDENCY, suspect=("node-2",)), False),
        ("lock", verdict(Kind.MACHINE, evict=("node-2", "node-3"), suspect=("node-2",)), False),
        ("lock", verdict(Kind.MACHINE, evict=("node-1",)), False),
        ("lock", verdict(Kind.MACHINE), False),
        ("lock", verdict(Kind.SOFTWARE), False),
        ("lock", verdict(Kind.UNDETERMINED, suspect=("node-2",)), False),
        ("skip-collective", verdict(Kind.SOFTWARE, suspect=("node-2",)), True),
        ("skip-collective", verdict(Kind.SOFTWARE, evict=("node-2",)), False),
        ("skip-collective", verdict(Kind.MACHINE, evict=("node-2",)), False),
    ],
)
def test_right_is_the_cause_and_the_machine_and_nobody_else(fault: str, judged: Verdict, right: bool) -> None:
    assert outcome(fault, judged).right is right
