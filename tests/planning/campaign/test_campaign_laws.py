"""Laws of belief and plan: outcomes commute, names do not matter, a pass clears, and no plan breaks its diagnostic's rules."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hangdog_models.planning.campaign.belief import Belief, members, update
from hangdog_models.planning.campaign.fault import FIXED, FailureMode, grid
from hangdog_models.planning.campaign.information_gain import gained, reach
from hangdog_models.planning.campaign.launch import (
    CampaignRound,
    Diagnostic,
    Launch,
    LaunchBudget,
    LaunchOutcome,
    LaunchResult,
)
from hangdog_models.planning.campaign.posterior import infer
from hangdog_models.planning.campaign.prior import begin
from hangdog_models.planning.campaign.round_planner import plan

GEMM = Diagnostic("gemm", 30, miss=0.3, false_alarm=0.01, blind=("shows in 0.5 of runs",))
RING = Diagnostic("ring", 60, setup_s=20, least=2, most=6, network=True)
REPLAY = Diagnostic("replay", 600, price=60, least=4, most=8, multiple=2, network=True)
NAMES = [f"m{at}" for at in range(12)]
#: Each example is a posterior or two, some milliseconds each.
FEW = settings(max_examples=30, deadline=None)


@st.composite
def beliefs(draw: st.DrawFn, further: float | None = None, modes: tuple[FailureMode, ...] | None = None) -> Belief:
    names = NAMES[: draw(st.integers(4, 12))]
    suspected = {name: draw(st.floats(0.1, 5)) for name in names if draw(st.booleans())}
    leafs = {"left": tuple(names[:2]), "right": tuple(names[2:])}
    belief = begin(
        names,
        suspected,
        leafs=leafs,
        leaf=draw(st.sampled_from([0.0, 0.1])),
        link=draw(st.sampled_from([0.0, 0.1])),
        further=further if further is not None else draw(st.sampled_from([0.0, 0.05, 0.3])),
        modes=modes or draw(st.sampled_from([(FIXED,), grid(1, 0.5, 0.1)])),
    )
    return update(belief, draw(st.lists(outcomes(names), max_size=6)))


@st.composite
def outcomes(draw: st.DrawFn, names: list[str]) -> LaunchOutcome:
    diagnostic = draw(st.sampled_from([GEMM, RING, REPLAY]))
    most = min(diagnostic.most, len(names))
    group = draw(st.lists(st.sampled_from(names), min_size=min(diagnostic.least, most), max_size=most, unique=True))
    launch = Launch(diagnostic, tuple(group), draw(st.integers(1, 4)))
    return LaunchOutcome(launch, draw(st.sampled_from(list(LaunchResult))))


@FEW
@given(beliefs(), st.permutations(range(6)))
def test_outcomes_commute(belief: Belief, turn: list[int]) -> None:
    again = replace(belief, evidence=())
    for at in turn:
        again = update(again, belief.evidence[at : at + 1])
    assert again == belief
    assert (infer(again).place == infer(belief).place).all()


def test_outcomes_that_differ_only_in_how_they_are_told_commute() -> None:
    belief, sound = begin(NAMES[:4]), replace(RING, false_alarm=0.0)
    told = [
        LaunchOutcome(Launch(each, names), LaunchResult.PASS)
        for each in (RING, sound)
        for names in (("m0", "m1"), ("m1", "m0"))
    ]
    assert len({update(belief, told[at:] + told[:at]).evidence for at in range(4)}) == 1


@FEW
@given(beliefs())
def test_probabilities_stay_probabilities(belief: Belief) -> None:
    seen = infer(belief)
    assert (seen.place >= 0).all() and (seen.place <= 1).all() and 0 <= seen.none <= 1
    assert seen.covered(frozenset(range(seen.places.count))) <= 1 + 1e-9
    assert seen.none + seen.place.sum() >= 1 - 1e-6, "either nothing is at fault or something is"


@FEW
@given(beliefs(), st.data())
def test_a_pass_never_raises_what_it_tested_against_nothing_being_wrong(belief: Belief, data: st.DataObject) -> None:
    """Of any number of faults in any mode. It may shift blame between two that passed together, to whom it clears less."""
    passed = replace(data.draw(outcomes(list(belief.machines))), result=LaunchResult.PASS)
    before, after = infer(belief), infer(update(belief, [passed]))
    for at in members(belief, passed.launch):
        assert after.place[at] / after.none <= before.place[at] / before.none * (1 + 1e-6)
    if len(passed.launch.machines) == 1:
        (at,) = members(belief, passed.launch)
        assert after.place[at] <= before.place[at] * (1 + 1e-6), (
            "who is tested alone is never more suspected for passing"
        )


@FEW
@given(beliefs(further=0.0, modes=(FIXED,)), st.data())
def test_a_pass_never_raises_a_machine_where_one_fixed_fault_is_sought(belief: Belief, data: st.DataObject) -> None:
    passed = replace(data.draw(outcomes(list(belief.machines))), result=LaunchResult.PASS)
    before, after = infer(belief), infer(update(belief, [passed]))
    for at in members(belief, passed.launch):
        assert after.place[at] <= before.place[at] + 1e-9


@FEW
@given(beliefs())
def test_what_is_inconclusive_changes_nothing(belief: Belief) -> None:
    conclusive = [outcome for outcome in belief.evidence if outcome.result is not LaunchResult.INCONCLUSIVE]
    assert (infer(belief).place == infer(replace(belief, evidence=tuple(conclusive))).place).all()


def renamed(belief: Belief, name: dict[str, str]) -> Belief:
    other = replace(
        belief,
        machines={name[machine]: weight for machine, weight in belief.machines.items()},
        leafs={leaf: tuple(name[machine] for machine in under) for leaf, under in belief.leafs.items()},
        evidence=(),
    )
    launches = ((one, tuple(name[machine] for machine in one.launch.machines)) for one in belief.evidence)
    return update(other, [replace(one, launch=replace(one.launch, machines=group)) for one, group in launches])


@FEW
@given(beliefs(), st.permutations(NAMES), st.permutations([GEMM, RING, REPLAY]))
def test_names_and_the_order_of_diagnostics_do_not_matter(
    belief: Belief, names: list[str], diagnostics: list[Diagnostic]
) -> None:
    name = dict(zip(NAMES, names, strict=True))
    step = plan(belief, [GEMM, RING, REPLAY], LaunchBudget(seconds=7200, parallel=4))
    other = plan(renamed(belief, name), diagnostics, LaunchBudget(seconds=7200, parallel=4))
    if isinstance(step, CampaignRound):
        assert isinstance(other, CampaignRound)
        launches = [replace(one, machines=tuple(name[machine] for machine in one.machines)) for one in step.launches]
        assert list(other.launches) == launches and other.bits == step.bits
    else:
        assert not isinstance(other, CampaignRound)
        assert other.evict == tuple(name[machine] for machine in step.evict) and other.reason == step.reason


@FEW
@given(beliefs(), st.permutations(range(len(NAMES))), st.booleans())
def test_the_order_of_machines_and_modes_does_not_change_what_is_believed(
    belief: Belief, turn: list[int], back: bool
) -> None:
    names = list(belief.machines)
    order = [names[at] for at in turn if at < len(names)]
    modes = belief.modes[::-1] if back else belief.modes
    other = replace(belief, machines={name: belief.machines[name] for name in order}, modes=modes, evidence=())
    before, after = infer(belief), infer(update(other, belief.evidence))
    expected = [before.place[belief.number[name]] for name in order]
    assert after.place[: len(order)] == pytest.approx(np.array(expected), rel=1e-3, abs=1e-9)


@FEW
@given(
    beliefs(),
    st.integers(1, 6),
    st.integers(1, 20),
    st.floats(0, 5000),
    st.lists(st.sampled_from([GEMM, RING, REPLAY]), max_size=3),
)
def test_a_round_keeps_to_the_rules_and_the_budget(
    belief: Belief, parallel: int, launches: int, seconds: float, diagnostics: list[Diagnostic]
) -> None:
    step = plan(belief, diagnostics, LaunchBudget(seconds, launches, 5, parallel))
    if not isinstance(step, CampaignRound):
        assert set(step.evict) <= belief.machines.keys()
        return
    assert 1 <= len(step.launches) <= min(parallel, launches) and step.seconds <= seconds and step.bits >= 0
    named = [name for launch in step.launches for name in launch.machines]
    assert len(named) == len(set(named)) and set(named) <= belief.machines.keys()
    for launch in step.launches:
        kind = launch.diagnostic
        assert kind in diagnostics and launch.repetitions >= 1
        assert kind.least <= len(launch.machines) <= kind.most and len(launch.machines) % kind.multiple == 0


@FEW
@given(beliefs(further=0.0), st.data())
def test_the_bits_expected_of_a_launch_are_those_it_brings_on_average(belief: Belief, data: st.DataObject) -> None:
    belief = replace(belief, link=0.0, none=belief.none + belief.link)  # links come and go as places of their own
    asked = data.draw(outcomes(list(belief.machines)))
    before = infer(belief)
    passed, failed = (
        infer(update(belief, [replace(asked, result=result)])) for result in (LaunchResult.PASS, LaunchResult.FAIL)
    )
    group = np.array(members(belief, asked.launch))
    kind, times = asked.launch.diagnostic, asked.launch.repetitions
    assume(abs(failed.none - passed.none) > 1e-6)
    failing = (before.none - passed.none) / (failed.none - passed.none)
    brought = before.uncertainty - failing * failed.uncertainty - (1 - failing) * passed.uncertainty
    assert gained(reach(before, kind.network, [group]), belief.modes, kind, times) == pytest.approx(brought, abs=1e-3)


def test_a_pass_may_shift_blame_to_whom_it_clears_less() -> None:
    """Why the law above is one of odds: `a` passed before, so only a rare fault is left of it, which a pass says little of."""
    sound = Diagnostic("run", 1, miss=0, false_alarm=0.001, most=2)
    belief = begin(["a", "b"], none=0.2, further=0, modes=grid(1, 0.05))
    belief = update(
        belief,
        [
            LaunchOutcome(Launch(sound, ("a",)), LaunchResult.PASS),
            LaunchOutcome(Launch(sound, ("a", "b")), LaunchResult.FAIL),
        ],
    )
    after = update(belief, [LaunchOutcome(Launch(sound, ("a", "b")), LaunchResult.PASS)])
    assert infer(after).place[0] > infer(belief).place[0]
