"""Long phases: looks sample a timed sequence of places, so that what moves, what runs and who waits follow from durations."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from random import Random

import pytest

from accuracy.simulator.faults.matrix import MATRIX, PHASES
from accuracy.simulator.faults.phases import GAP_S, STATED_FROM_S
from accuracy.simulator.incident import Evidence, Incident
from accuracy.simulator.make import default_set, incident, scene_of
from accuracy.simulator.phases.duties import DUTIES
from accuracy.simulator.phases.phase import Part, runs, sleeps
from accuracy.simulator.phases.timeline import LEAD_S, Timeline
from accuracy.simulator.phases.together import TOGETHER
from hangdog_models.stack import ProcessTrace
from hangdog_models.verdict import Kind

#: Of the simulator that measures, not of what it measures.
pytestmark = [pytest.mark.slow, pytest.mark.parallel]

RANKS = 64
HEALTHY = [name for name, fault in PHASES.items() if fault.family == "healthy"]
STUCK = [name for name, fault in PHASES.items() if fault.family == "own work"]
WORK, WAIT = runs(0.2, "work a.py:1", lines=3), sleeps(0.1, "wait a.py:9", wakes=50.0)
CLOSE = runs(inf, "close a.py:20")


def seen(made: Incident, rank: int) -> list[ProcessTrace]:
    rounds = made.snapshots[Evidence.STACKS].rounds
    return [trace for one in rounds for trace in one.traces if trace.rank == rank and trace.role == "trainer"]


def of_looks(fault: str, looks: int, seeds: Sequence[int] = range(40)) -> Incident:
    """The first incident with so many looks, of which /proc is known, and no capture of rank 0 is lost."""
    for seed in seeds:
        made = incident(seed, RANKS, fault)
        traces = seen(made, 0)
        if len(traces) == looks and all(trace.state and trace.threads for trace in traces):
            return made
    raise AssertionError(f"no {fault} with {looks} looks")


def test_a_timeline_goes_through_its_steps_in_their_parts_and_ends_in_the_last() -> None:
    line = Timeline((Part(0.5, (WORK, WAIT)), Part(1.0, (CLOSE,))), 10.0, 0.0, Random(1))
    found = [line.at(0.05 * at).step for at in range(199)]
    assert {step.calls for step in found[:98]} == {WORK.calls, WAIT.calls}
    assert {step.calls for step in found[110:]} == {CLOSE.calls}


def test_processor_time_and_wakes_follow_from_the_stays() -> None:
    parts = (Part(1.0, (WORK, WAIT)),)
    line = Timeline(parts, 4000.0, 3000.0, Random(2))
    moments = [line.at(3000.0 + 0.01 * at) for at in range(2000)]
    for before, after in pairwise(moments):
        assert 0.0 <= after.ran - before.ran <= 0.01 + 1e-6 and after.wakes >= before.wakes
    last = moments[-1]
    # two thirds of its time it works; it is woken fifty times in each second of the rest
    assert last.ran == pytest.approx(13.3, rel=0.25) and last.wakes == pytest.approx(6.7 * 50, rel=0.3)


def test_what_was_long_before_the_first_look_is_not_drawn() -> None:
    drawn: list[float] = []

    class Counting(Random):
        def lognormvariate(self, mu: float = 0.0, sigma: float = 1.0) -> float:
            drawn.append(mu)
            return super().lognormvariate(mu, sigma)

    Timeline((Part(1.0, (WORK, WAIT)),), 1e6, 9e5, Counting(3)).at(9e5)
    assert len(drawn) < 20 * LEAD_S


def test_there_are_three_times_as_many_kinds_of_healthy_phases_as_there_were() -> None:
    before = [name for name, fault in MATRIX.items() if fault.family == "healthy" and name not in PHASES]
    assert len(HEALTHY) + len(before) >= 3 * len(before) and len(HEALTHY) == len(DUTIES) + len(TOGETHER)
    assert {fault for _, ranks, fault in default_set() if ranks <= 256} >= set(PHASES)


@pytest.mark.parametrize("fault", HEALTHY)
def test_a_healthy_phase_ends_and_is_looked_at_while_it_lasts(fault: str) -> None:
    for seed in range(3):
        scene = scene_of(seed, RANKS, fault)
        assert {process.why for process in scene.processes} == {"end"} and not scene.guilty
        begins = [scene.processes[r].times[d.at - 1] if d.at else 0.0 for r, d in scene.duties.items()]
        ends = [scene.processes[rank].times[duty.at] for rank, duty in scene.duties.items()]
        assert max(begins) < scene.looks[0] < max(ends)
        assert [b - a for a, b in pairwise(scene.looks)] == pytest.approx([GAP_S] * 2)
        if scene.stated is not None:
            assert STATED_FROM_S <= scene.stated <= max(ends) - min(begins) + 1
        kinds = PHASES[fault].kinds
        assert set(kinds) <= {Kind.NONE, Kind.UNDETERMINED, Kind.DEPENDENCY} and Kind.NONE in kinds


@pytest.mark.parametrize("fault", STUCK)
def test_one_rank_never_comes_back_from_a_duty_and_its_machine_is_sound(fault: str) -> None:
    scene = scene_of(2, RANKS, fault)
    (culprit,) = scene.blamed
    assert scene.processes[culprit].why == "stall"
    assert {process.why for process in scene.processes}.isdisjoint({"end", "stopped"})
    made = incident(2, RANKS, fault)
    assert made.truth.machines == () and made.truth.sought == made.topology.machines_of(made.truth.ranks)


def test_an_evaluation_moves_through_places_and_uses_its_processor() -> None:
    traces = seen(of_looks("evaluation on rank 0", 3), 0)
    assert len({trace.threads[0].frames for trace in traces}) > 1
    used = [trace.state.ran_s for trace in traces if trace.state and trace.state.ran_s is not None]
    assert used[-1] - used[0] > 0.5 * 2 * GAP_S


def test_who_sends_nothing_and_gets_nothing_stays_where_it_is() -> None:
    for seed in range(40):
        made = incident(seed, RANKS, "stuck artefact download by the first rank of each machine")
        traces = seen(made, made.truth.ranks[0])
        if len(traces) == 3 and all(trace.state and trace.threads for trace in traces):
            assert len({trace.threads[0].frames for trace in traces}) == 1
            assert len({(trace.state.ran_s, trace.state.wakes) for trace in traces if trace.state}) == 1
            return
    raise AssertionError("no incident of which /proc is known")


@pytest.mark.parametrize(("seed", "state"), [(0, "R"), (24, "S")])
def test_who_waits_for_a_phase_is_asleep_in_it_or_spins(seed: int, state: str) -> None:
    fault = "first-batch index on rank 0"
    scene = scene_of(seed, RANKS, fault)
    assert scene.looks[-1] < max(scene.processes[rank].times[duty.at] for rank, duty in scene.duties.items())
    states = [trace.state for trace in seen(incident(seed, RANKS, fault), 1)]
    early, last = states[0], states[-1]
    assert early is not None and last is not None and last.state == state
    if state == "S":
        assert (early.wakes, early.cpu_s) == (last.wakes, last.cpu_s)
    else:
        assert (last.cpu_s or 0.0) - (early.cpu_s or 0.0) == pytest.approx(2 * GAP_S)


def test_a_compiler_at_work_is_a_process_of_its_own() -> None:
    for seed in range(40):
        traces = incident(seed, RANKS, "compile of all ranks").snapshots[Evidence.STACKS].rounds[-1].traces
        if any(trace.role == "compile-0" and trace.state and trace.state.state == "R" for trace in traces):
            return
    raise AssertionError("no compiler was seen")
