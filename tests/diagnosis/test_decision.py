"""What to do first is what costs least, by the posterior, by who waits and for how long; never who is evicted for being unsure."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.options import DEFAULTS, Options
from hangdog_models.diagnosis.prices import SHARES, IsolationPolicy, Prices, priced
from hangdog_models.diagnosis.verdict.decision import Outlook, expected, ordered, total
from hangdog_models.errors import WrongUse
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import ISOLATES, Act, Kind, StallCause, Step, Verdict, from_json, to_json
from hangdog_models.views.first_line import headline, steps
from support.cases.reasons import codes
from support.cases.stories import job, look, snapshot, twice

EVICT, RESTART, TEST = Step(Act.EVICT, ("a",), ""), Step(Act.RESTART, (), ""), Step(Act.TEST, ("a",), "")
WAIT, COLLECT, ASK = Step(Act.WAIT, (), ""), Step(Act.COLLECT, (), ""), Step(Act.ASK_PEOPLE, (), "")
CUBE = job(tp=2, dp=2, pp=2)
STUCK = twice(look({"0-4,6-7": "metrics", "5": "disk"}))
RAPID = Options(coverage_target=0.9, policy=IsolationPolicy.RAPID)


@st.composite
def posteriors(draw: st.DrawFn) -> dict[StallCause, float]:
    weights = [draw(st.floats(0.01, 1)) for _ in StallCause]
    return {cause: weight / sum(weights) for cause, weight in zip(StallCause, weights, strict=True)}


def outlook(
    causes: dict[StallCause, float], gpus: int = 1024, stalled_min: float = 0.0, prices: Prices | None = None
) -> Outlook:
    machine = causes[StallCause.MACHINE]
    options = DEFAULTS if prices is None else replace(DEFAULTS, prices=prices)
    return Outlook(causes, gpus, 8.0, stalled_min, options, suspected=machine, isolated=machine)


def surer(causes: dict[StallCause, float], share: float) -> dict[StallCause, float]:
    """The same posterior, with a share of every other cause given to the machine."""
    rest: dict[StallCause, float] = {
        cause: p * (1 - share) for cause, p in causes.items() if cause is not StallCause.MACHINE
    }
    return {**rest, StallCause.MACHINE: 1 - sum(rest.values())}


@given(posteriors(), st.floats(0, 1))
def test_the_surer_a_machine_is_the_less_an_eviction_costs_beside_a_restart(
    causes: dict[StallCause, float], share: float
) -> None:
    def dearer(posterior: dict[StallCause, float]) -> float:
        stake = outlook(posterior)
        return total(expected(EVICT, stake)) - total(expected(RESTART, stake))

    unhealthy = surer(
        {
            **causes,
            StallCause.HEALTHY: 0.0,
            StallCause.UNKNOWN: causes[StallCause.UNKNOWN] + causes[StallCause.HEALTHY],
        },
        0.0,
    )
    assert dearer(surer(unhealthy, share)) <= dearer(unhealthy) + 1e-6


@given(posteriors(), st.floats(0, 600), st.floats(0, 600))
def test_the_longer_a_job_has_stalled_the_dearer_it_is_to_wait(
    causes: dict[StallCause, float], since: float, longer: float
) -> None:
    before, after = (expected(WAIT, outlook(causes, stalled_min=one)) for one in (since, since + longer))
    assert total(after) >= total(before)
    assert longer < 1 or total(after) > total(before), "a phase that lasted may last as long again"


@given(posteriors(), st.integers(8, 4096), st.integers(2, 8))
def test_the_more_gpus_wait_the_dearer_it_is_to_collect_rather_than_to_act(
    causes: dict[StallCause, float], gpus: int, times: int
) -> None:
    """Where acting is the quicker way; machines and people cost the same in a large job as in a small one."""

    def saved(count: int) -> tuple[float, float]:
        costs = {step.do: step.cost for step in ordered((COLLECT, EVICT, ASK), outlook(causes, count))}
        collect, evict = costs[Act.COLLECT], costs[Act.EVICT]
        assert collect is not None and evict is not None
        return collect.waiting - evict.waiting, total(collect) - total(evict)

    (quicker, few), (_, many) = saved(gpus), saved(gpus * times)
    assert (many >= few - 1e-6) if quicker >= 0 else (many <= few + 1e-6)


@given(posteriors())
def test_a_look_is_never_worth_more_than_what_it_takes_and_tells(causes: dict[StallCause, float]) -> None:
    """Where evidence decides nothing it costs a look more than the best step that is open today."""
    stake = replace(outlook(causes), blind=True)
    first, *_ = ordered((COLLECT, TEST, RESTART), stake)
    assert first.do is not Act.COLLECT


@pytest.mark.parametrize(("machine", "first"), [(0.3, Act.RESTART), (0.8, Act.TEST)])
def test_a_machine_is_tested_before_a_restart_only_where_it_is_likelier_than_not(machine: float, first: Act) -> None:
    causes = {**dict.fromkeys(StallCause, 0.0), StallCause.MACHINE: machine, StallCause.SOFTWARE: 1 - machine}
    assert ordered((TEST, RESTART), outlook(causes))[0].do is first


@pytest.mark.parametrize(("gpus", "first"), [(64, Act.RESTART), (4096, Act.FIX_CODE)])
def test_people_are_woken_later_in_a_small_job(gpus: int, first: Act) -> None:
    causes = {**dict.fromkeys(StallCause, 0.0), StallCause.MACHINE: 0.4, StallCause.SOFTWARE: 0.6}
    assert ordered((Step(Act.FIX_CODE, (), ""), RESTART), outlook(causes, gpus))[0].do is first


def test_a_sound_job_loses_nothing_by_waiting() -> None:
    healthy = {**dict.fromkeys(StallCause, 0.0), StallCause.HEALTHY: 1.0}
    stake = outlook(healthy, stalled_min=60)
    assert total(expected(WAIT, stake)) == 0.0
    assert all(total(expected(step, stake)) > 0 for step in (EVICT, RESTART, TEST)), (
        "its work since the last checkpoint"
    )


def test_a_verdict_tells_what_its_steps_cost_and_keeps_it_in_the_json() -> None:
    verdict = diagnose(STUCK, CUBE)
    costs = [total(step.cost) for step in verdict.compared if step.cost]
    assert len(costs) == len(verdict.compared) > 1 and costs == sorted(costs)
    assert verdict.next[0].do is Act.EVICT and verdict.next[0].cost and verdict.next[1].cost is None
    read = from_json(to_json(verdict))
    assert read.next[0].cost and total(read.next[0].cost) == pytest.approx(costs[0], abs=0.2)
    assert "cost_gpu_min" not in to_json(verdict)["next"][1]


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        (Options(spares=1), Act.EVICT),
        (Options(spares=0), Act.EVICT),
        (Options(spares=0, prices=priced({"replacement": 1e4})), Act.RESTART),
        (Options(prices=priced({"innocent": 1e6, "test": 0.0})), Act.TEST),
        (Options(prices=priced({"requeue": 600.0, "restart_cures": 1.0})), Act.RESTART),
    ],
)
def test_an_eviction_that_is_sure_enough_waits_for_a_step_that_costs_less(changed: Options, first: Act) -> None:
    before, after = diagnose(STUCK, CUBE), diagnose(STUCK, CUBE, changed)
    assert after.next[0].do is first
    assert bool(after.evict.machines) == (first is Act.EVICT) == any(step.do is Act.EVICT for step in after.next)
    assert (after.kind, after.confidence, after.causes) == (before.kind, before.confidence, before.causes)
    assert first is Act.EVICT or "kept-dearer" in codes(after.because)


def joined(world: int = 1024) -> tuple[Snapshot, Topology]:
    """One look at a job in which all of four machines are inside of an operation that does not complete."""
    group = tuple(map(Rank, range(32)))
    counters = tuple(RankCounters(rank, {"dp": 7}, {"dp": 6}, (), {"dp": group}, {}, {"dp": 7}) for rank in group)
    return replace(snapshot(look({f"0-{world - 1}": "item"})), counters=counters), job(
        per_machine=8, dp=32, pp=world // 32
    )


def isolated(verdict: Verdict) -> bool:
    assert any(step.do in ISOLATES for step in verdict.next) == bool(verdict.evict.machines)
    return bool(verdict.evict.machines)


def test_a_large_job_may_isolate_a_whole_group_and_test_it_then() -> None:
    story, shape = joined()
    careful = diagnose(story, shape, replace(RAPID, policy=IsolationPolicy.CAREFUL))
    assert careful.kind is Kind.GROUP and not isolated(careful), "one look, and more than two machines"
    verdict = diagnose(story, shape, RAPID)
    assert [step.do for step in verdict.next] == [Act.ISOLATE_GROUP, Act.RESTART, Act.TEST]
    assert verdict.evict.machines == ("node-0", "node-1", "node-2", "node-3") == verdict.next[2].machines
    assert verdict.evict.coverage == careful.suspects[0].probability >= 0.9, "one posterior"
    assert headline(verdict).endswith("Isolate node-0, node-1, node-2, node-3.")
    assert "91% probability" in next(steps(verdict))
    assert not any(code.startswith("kept-") for code in codes(verdict.because))
    assert (verdict.kind, verdict.causes) == (careful.kind, careful.causes)


@pytest.mark.parametrize(
    "changed",
    [
        {"coverage_target": 0.95},
        {"budget_machines": 3},
        {"prices": priced({"innocent": 1e5})},
        {"spares": 3},
    ],
)
def test_no_group_is_isolated_that_is_unsure_too_large_or_too_dear(changed: dict[str, object]) -> None:
    story, shape = joined()
    verdict = diagnose(story, shape, replace(RAPID, **changed))  # type: ignore[arg-type]
    assert not isolated(verdict)
    assert verdict.next[0].do is Act.COLLECT


def test_a_group_that_is_more_than_half_of_the_job_is_not_isolated() -> None:
    assert not isolated(diagnose(*joined(world=32), RAPID))


def test_prices_are_numbers_that_can_be() -> None:
    assert {one.name for one in fields(Prices)} > SHARES
    for wrong in ({"tset": 1.0}, {"test": -1.0}, {"test": float("nan")}, {"test": float("inf")}, {"test_finds": 1.5}):
        with pytest.raises(WrongUse):
            priced(wrong)
