"""What follows from outcomes: the golden numbers of group testing, and the same as counting every set of faults by hand."""

from itertools import product
from math import prod
from time import process_time

import pytest

from hangdog_models.planning.campaign.belief import Belief, update
from hangdog_models.planning.campaign.fault import FailureMode, Where, grid
from hangdog_models.planning.campaign.launch import Diagnostic, Launch, LaunchOutcome, LaunchResult
from hangdog_models.planning.campaign.posterior import infer
from hangdog_models.planning.campaign.prior import begin
from hangdog_models.planning.campaign.replay import phases

SIXTEEN = [f"m{at}" for at in range(16)]
GEMM = Diagnostic("gemm", 10, miss=0.1, false_alarm=0.02, most=16)
RING = Diagnostic("ring", 10, miss=0.1, false_alarm=0.02, least=2, most=64, network=True)


def outcome(diagnostic: Diagnostic, machines: list[str], result: LaunchResult, repetitions: int = 1) -> LaunchOutcome:
    return LaunchOutcome(Launch(diagnostic, tuple(machines), repetitions), result)


@pytest.mark.parametrize(
    ("result", "tested", "others", "none"),
    [
        (LaunchResult.FAIL, 0.1210, 0.0027, 0.0107),
        (LaunchResult.PASS, 0.0078, 0.0781, 0.3125),
        (LaunchResult.INCONCLUSIVE, 0.05, 0.05, 0.2),
    ],
)
def test_one_launch_on_eight_of_sixteen(result: LaunchResult, tested: float, others: float, none: float) -> None:
    belief = begin(SIXTEEN, none=0.2, further=0)
    seen = infer(update(belief, [outcome(GEMM, SIXTEEN[:8], result)]))
    assert (seen.place[0], seen.place[15], seen.none) == pytest.approx((tested, others, none), abs=5e-5)
    assert seen.covered(frozenset()) == pytest.approx(none, abs=5e-5)


def test_twenty_repetitions_that_pass_leave_one_in_a_hundred_of_a_suspicion() -> None:
    belief = Belief({"a": 0.5}, 0.5, further=0, modes=(FailureMode("rare", 0.2),))
    sound = Diagnostic("run", 1, miss=0, false_alarm=0.0)
    assert infer(update(belief, [outcome(sound, ["a"], LaunchResult.PASS, 20)])).place[0] == pytest.approx(
        0.0114, abs=5e-5
    )


def test_with_an_unknown_rate_no_number_of_passes_clears_anybody() -> None:
    belief = begin(["a", "b"], modes=grid(1, 0.2, 0.01, 0.0001))
    sound = Diagnostic("run", 1, miss=0, false_alarm=0.0)
    before = 1.0
    for _ in range(6):
        belief = update(belief, [outcome(sound, ["a"], LaunchResult.PASS, 100)])
        now = float(infer(belief).place[0])
        assert 0.02 < now < before
        before = now


def by_hand(belief: Belief, links: bool = False) -> tuple[dict[str, float], float]:
    """Every set of faults with its weight: the machines, the leafs, and all links where they are asked for."""
    names = list(belief.machines)
    places = [(name, weight, frozenset([name]), 1) for name, weight in belief.machines.items()]
    places += [(name, belief.leaf / len(belief.leafs), frozenset(under), 2) for name, under in belief.leafs.items()]
    pairs = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]] if links else []
    places += [(f"link {a} - {b}", belief.link / len(pairs), frozenset([a, b]), 3) for a, b in pairs]
    beside = 2 * belief.further / (1 - belief.none)
    found, none, total = dict.fromkeys((name for name, *_ in places), 0.0), 0.0, 0.0
    for modes in product((None, *belief.modes), repeat=len(places)):
        faults = [(place, mode) for place, mode in zip(places, modes, strict=True) if mode]
        weight = prod(place[1] * mode.share for place, mode in faults) * beside ** (len(faults) - 1)
        weight = weight if faults else belief.none
        for one in belief.evidence:
            group, network = set(one.launch.machines), one.launch.diagnostic.network and len(one.launch.machines) > 1
            quiet = 1 - one.launch.diagnostic.alarm
            for (_, _, at, kind), mode in faults:
                touched = (
                    bool(at & group) if kind == 1 else network and (bool(at & group) if kind == 2 else at <= group)
                )
                quiet *= 1 - one.launch.diagnostic.shows(mode, one.launch.repetitions) * touched
            weight *= quiet if one.result is LaunchResult.PASS else 1 - quiet if one.result is LaunchResult.FAIL else 1
        total += weight
        none += weight * (not faults)
        for (name, *_), _ in faults:
            found[name] += weight
    return {name: weight / total for name, weight in found.items()}, none / total


def test_small_clusters_are_exact() -> None:
    """Two modes, two leafs, launches that overlap: as enumerated over all 6,561 sets."""
    names = SIXTEEN[:6]
    leafs = {"left": tuple(names[:3]), "right": tuple(names[3:])}
    modes = (FailureMode("fixed", 1, 0.7), FailureMode("rare", 0.3, 0.3))
    belief = begin(names, {"m1": 3, "m2": 1}, leafs=leafs, leaf=0.1, further=0.2, modes=modes)
    belief = update(
        belief,
        [
            outcome(RING, names[:2], LaunchResult.FAIL),
            outcome(RING, names[2:4], LaunchResult.PASS, 2),
            outcome(RING, names[1:5], LaunchResult.FAIL, 3),
            outcome(GEMM, [names[0], names[5]], LaunchResult.PASS),
            outcome(RING, names[4:], LaunchResult.FAIL),
            outcome(RING, names[4:], LaunchResult.INCONCLUSIVE),
        ],
    )
    expected, none = by_hand(belief)
    seen = infer(belief)
    found = {seen.places.place(at).names[0]: float(seen.place[at]) for at in range(seen.places.elsewhere)}
    assert found == pytest.approx(expected, rel=1e-3) and seen.none == pytest.approx(none, rel=1e-3)


def test_two_that_fail_only_together_are_a_link() -> None:
    names = SIXTEEN[:4]
    belief = begin(names, link=0.1, none=0.1)
    belief = update(
        belief,
        [
            outcome(RING, names, LaunchResult.FAIL),
            outcome(RING, names[:2], LaunchResult.FAIL),
            *(outcome(RING, [a, b], LaunchResult.PASS) for a in names[:2] for b in names[2:]),
            outcome(RING, names[:2], LaunchResult.FAIL),
        ],
    )
    expected, none = by_hand(belief, links=True)
    seen = infer(belief)
    found = {str(seen.places.place(at)): float(seen.place[at]) for at in range(seen.places.elsewhere)}
    assert found == pytest.approx(expected, rel=2e-3) and seen.none == pytest.approx(none, rel=2e-3)
    likeliest = seen.places.place(int(seen.place.argmax()))
    assert (likeliest.where, likeliest.names) == (Where.LINK, ("m0", "m1")) and seen.place.max() > 0.8


def test_a_leaf_explains_many_failures_at_once() -> None:
    leafs = {f"leaf{at}": tuple(SIXTEEN[4 * at : 4 * at + 4]) for at in range(4)}
    belief = begin(SIXTEEN, leafs=leafs, leaf=0.05)
    pairs = [SIXTEEN[at : at + 2] for at in range(0, 16, 2)]
    came = [
        outcome(RING, pair, LaunchResult.FAIL if pair[0] in leafs["leaf2"] else LaunchResult.PASS) for pair in pairs
    ]
    seen = infer(update(belief, [*came, outcome(RING, ["m9", "m0"], LaunchResult.FAIL)]))
    likeliest = seen.places.place(int(seen.place.argmax()))
    assert likeliest.names == ("leaf2",) and seen.place.max() > 0.85


def test_two_faults_of_a_thousand_stand_out_after_three_phases_and_quickly() -> None:
    names = [f"m{at}" for at in range(1024)]
    replay = Diagnostic("replay", 600, miss=0.05, false_alarm=0.02, least=16, most=16, network=True)
    came = [
        outcome(replay, [names[x] for x in group], LaunchResult.FAIL if {100, 777} & set(group) else LaunchResult.PASS)
        for phase in phases(16, 64)
        for group in phase
    ]
    belief = update(begin(names, modes=grid(1, 0.5, 0.2, 0.05), link=0.02), came)
    began = process_time()
    seen = infer(belief)
    assert process_time() - began < 1
    assert {int(at) for at in seen.place.argsort()[-2:]} == {100, 777} and sorted(seen.place)[-3] < 0.01
    assert min(seen.place[100], seen.place[777]) > 0.6


def test_outcomes_on_strangers_are_refused() -> None:
    with pytest.raises(ValueError, match="nobody asked about: m9"):
        update(begin(["m1"]), [outcome(GEMM, ["m1", "m9"], LaunchResult.PASS)])
