"""Small slow jobs: few ranks need more looks than five, and two looks at one step take nothing back of those before."""

import random
from collections.abc import Sequence

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.diagnosis.stragglers.fail_slow import find
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import ProcessTrace
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Activity, Kind, StallCause
from support.cases.reasons import codes
from support.cases.stories import C10D, job, trace

LAYERS = ("embedding", "attention", "experts", "norm", "loss", "attention", "norm", "embedding", "experts", "loss")


def machines(count: int) -> Topology:
    placed = {f"node-{rank}": (Rank(rank),) for rank in range(count)}
    topology, _ = build(Layout(world_size=count, machines=placed), None)
    return topology


def waits_for(slow: int, world: int, layers: Sequence[str]) -> Snapshot:
    """In each look one rank computes in a layer, and all others are in the collective behind it."""

    def seen(rank: int, number: int, layer: str) -> ProcessTrace:
        where = ["<module> train.py", f"{layer} train.py"]
        if rank == slow:
            return trace(rank, [*where, "compute train.py"], state="R", shift=number, active=True, gil=True)
        return trace(rank, [*where, f"all_reduce {C10D}"], state="S")

    looks = (Round(at, tuple(seen(rank, at, layer) for rank in range(world))) for at, layer in enumerate(layers))
    return Snapshot(Job("slow"), tuple(looks), 10.0)


@pytest.mark.parametrize("world", [4, 8])
def test_a_small_job_is_decided_by_more_looks_than_a_large_one(world: int) -> None:
    two, five, ten = (diagnose(waits_for(2, world, LAYERS[:looks]), machines(world)) for looks in (2, 5, 10))
    assert two.kind is not Kind.MACHINE and not two.evict.machines
    assert (five.kind, five.suspects[0].machines) == (Kind.SLOW, ("node-2",))
    assert (ten.kind, ten.suspects[0].machines, ten.evict.machines) == (Kind.SLOW, ("node-2",), ("node-2",))


def test_who_is_late_in_four_of_five_looks_of_few_is_named_and_not_evicted() -> None:
    """A healthy job of so few may look like that once in a hundred times."""
    rounds = [waits_for(2 if at != 3 else 6, 16, LAYERS[at : at + 1]).rounds[0] for at in range(5)]
    looks = tuple(Round(at, one.traces) for at, one in enumerate(rounds))
    verdict = diagnose(Snapshot(Job("slow"), looks, 5.0), machines(16))
    assert (verdict.kind, verdict.suspects[0].machines, verdict.evict.machines) == (Kind.SLOW, ("node-2",), ())
    assert verdict.suspects[0].probability == pytest.approx(0.9)


def test_a_job_that_moves_is_as_sound_as_its_looks_can_show() -> None:
    """Of jobs that are looked at some are held back, and few looks tell little of whom."""
    rounds = [waits_for(5 * at % 16, 16, LAYERS[at : at + 1]).rounds[0] for at in range(5)]
    looks = tuple(Round(at, one.traces) for at, one in enumerate(rounds))
    two, five = (diagnose(Snapshot(Job("sound"), looks[:count], 5.0), machines(16)) for count in (2, 5))
    assert two.kind is five.kind is Kind.NONE and two.confidence < five.confidence < 0.9
    assert five.causes[StallCause.SLOW] == pytest.approx(1 - five.confidence) and five.culprit is None


def test_two_looks_at_one_step_take_nothing_back() -> None:
    again = waits_for(2, 8, (*LAYERS[:8], LAYERS[7]))
    verdict = diagnose(again, machines(8))
    assert (verdict.kind, verdict.suspects[0].machines) == (Kind.SLOW, ("node-2",))


def test_a_job_that_stops_for_good_is_no_slow_one() -> None:
    """It moved at first, nobody was late then; after that the one who is in nobody's collective holds it up."""
    healthy = [waits_for(rank, 8, LAYERS[at : at + 1]).rounds[0] for at, rank in enumerate((5, 1))]
    stuck = waits_for(2, 8, ["norm"] * 4).rounds
    rounds = tuple(Round(at, round_.traces) for at, round_ in enumerate((*healthy, *stuck)))
    verdict = diagnose(Snapshot(Job("stuck"), rounds, 2.0), machines(8))
    assert not verdict.evict.machines and "waited-for-again" not in codes(verdict.because)


@pytest.mark.parametrize(("slow", "named"), [(21, ["node-2"]), (None, [])])
def test_who_is_in_its_backward_pass_in_each_look_is_late_though_others_are_on_their_way_to_the_wait(
    slow: int | None, named: list[str]
) -> None:
    """Each waits for its own device. Most stand at the end of the step, and who is elsewhere changes but for one."""
    back = RankState(Activity.DEVICE_SYNC, Wait.SOME, label="backward")
    end, chance = RankState(Activity.DEVICE_SYNC, Wait.SOME, label="item"), random.Random(5)
    looks = [{Rank(r): back if r == slow or chance.random() < 0.25 else end for r in range(32)} for _ in range(10)]
    answer = find(looks, job(per_machine=8, dp=32), rounds=10)
    assert [name for name, one in answer.machines.items() if one > 0.5] == named
