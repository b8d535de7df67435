"""Simulated incidents: they are what their truth says, every time, and they are at rest."""

from collections import Counter
from random import Random

import pytest

from accuracy.simulator import run, shapes
from accuracy.simulator.engine import Engine
from accuracy.simulator.faults.matrix import MATRIX
from accuracy.simulator.faults.scene import Scene
from accuracy.simulator.incident import Evidence
from accuracy.simulator.make import LIVING, default_set, incident, scene_of
from hangdog_models.collectives import CollectiveRecord
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.stack import Reason
from hangdog_models.verdict import Kind

#: Of the simulator that measures, not of what it measures.
pytestmark = [pytest.mark.slow, pytest.mark.parallel]

RANKS = 64
HANGS = [name for name, fault in MATRIX.items() if fault.family not in LIVING]
#: Faults of one rank's host: all others wait for that rank, directly or through others.
ONE_HOST = [name for name, fault in MATRIX.items() if fault.family == "host" and name != "frozen machine"]
#: Steps of the engine that one rank of a large job may take: 2 us each, so that 1,024 ranks need about a second.
STEPS_A_RANK = 900


def waits_for(scene: Scene) -> dict[int, set[int]]:
    """Read off the run, not off frames: for each rank the members that its unfinished operations still lack."""
    begun: dict[int, set[int]] = {}
    for process in scene.processes:
        for log in process.log.values():
            for item in log:
                if item.start is not None:
                    for work in item.works:
                        begun.setdefault(id(work), set()).add(process.rank)
    edges: dict[int, set[int]] = {process.rank: set() for process in scene.processes}
    for process in scene.processes:
        for log in process.log.values():
            for item in log:
                for work in item.works:
                    if work.done is None:
                        edges[process.rank].update(set(work.members) - begun.get(id(work), set()) - {process.rank})
    return edges


def reaching(edges: dict[int, set[int]], goal: int) -> set[int]:
    found, todo = {goal}, [goal]
    while todo:
        at = todo.pop()
        fresh = [rank for rank, awaited in edges.items() if at in awaited and rank not in found]
        found.update(fresh)
        todo.extend(fresh)
    return found


def test_equal_arguments_give_equal_incidents() -> None:
    for fault in ("dataloader", "healthy training", "two hosts"):
        assert incident(5, RANKS, fault) == incident(5, RANKS, fault)
    assert incident(5, RANKS, "dataloader") != incident(6, RANKS, "dataloader")


@pytest.mark.parametrize("framework", list(shapes.FRAMEWORKS))
def test_a_healthy_job_runs_to_its_end(framework: str) -> None:
    seen = 0
    for seed in range(60):
        job = shapes.draw(Random(seed), RANKS, ("start", "train", "eval", "save", "train"))
        if job.framework == framework and seen < 2:
            made, _ = run.processes(job)
            run.engine(job, made).run()
            assert {process.why for process in made} == {"end"}, job
            seen += 1
    assert seen


@pytest.mark.parametrize("fault", HANGS)
def test_every_fault_stops_the_whole_job_for_good(fault: str) -> None:
    scene = scene_of(1, RANKS, fault)
    assert all(process.why != "end" for process in scene.processes), Counter(p.why for p in scene.processes)
    again = Engine(scene.processes, gloo=scene.job.gloo, blocking=scene.job.blocking)
    moved = [process.rank for process in scene.processes if again.advance(process)]
    assert not moved


@pytest.mark.parametrize("fault", ONE_HOST)
def test_everybody_waits_for_the_culprit(fault: str) -> None:
    scene = scene_of(3, RANKS, fault)
    (culprit,) = scene.blamed
    assert reaching(waits_for(scene), culprit) == set(range(RANKS))


def test_a_frozen_machine_is_waited_for_by_all_others() -> None:
    scene = scene_of(3, RANKS, "frozen machine")
    edges = waits_for(scene)
    assert set().union(*(reaching(edges, rank) for rank in scene.blamed)) == set(range(RANKS))


@pytest.mark.parametrize("fault", list(MATRIX))
def test_the_truth_agrees_with_the_topology(fault: str) -> None:
    made = incident(7, RANKS, fault)
    truth, topology = made.truth, made.topology
    assert truth.fault == fault and topology.world_size == RANKS
    if truth.family in ("software", "dependency", "healthy", "own work"):
        assert truth.machines == ()
        assert truth.sought == (topology.machines_of(truth.ranks) if truth.family == "own work" else ())
    else:
        assert truth.machines == topology.machines_of(truth.ranks)
    assert truth.faults == {"healthy": 0, "two": 2}.get(truth.family, 1)
    assert len(truth.machines) == 2 if truth.family == "two" or fault == "link" else True
    assert {Kind.NONE} <= set(truth.kinds) if truth.family == "healthy" else Kind.NONE not in truth.kinds
    assert Evidence.STACKS in made.snapshots


def test_stalled_ranks_show_what_stalls_them() -> None:
    made = incident(1, RANKS, "dataloader")
    (culprit,) = made.truth.ranks
    (trace,) = [one for one in made.snapshots[Evidence.STACKS].rounds[0].traces if one.rank == culprit]
    assert "_try_get_data" in [frame.function for frame in trace.threads[0].frames]
    native = made.snapshots[Evidence.NATIVE].rounds[0].traces
    assert any(frame.native for one in native for thread in one.threads for frame in thread.frames)


def test_a_frozen_machine_answers_nothing() -> None:
    made = incident(2, RANKS, "frozen machine")
    for snapshot in made.snapshots.values():
        for round_ in snapshot.rounds:
            reasons = {one.missing and one.missing.reason for one in round_.traces if one.rank in made.truth.ranks}
            assert reasons <= {Reason.NO_AGENT, Reason.TIMED_OUT}
        assert not {record.rank for record in snapshot.counters} & set(made.truth.ranks)


@pytest.mark.parametrize("fault", ["dataloader", "device hang", "link", "uneven data", "healthy training"])
def test_recorded_numbers_are_in_order_and_members_are_listed(fault: str) -> None:
    for seed in range(2):
        made = incident(seed, RANKS, fault)
        for record in made.snapshots[Evidence.RECORDER].counters:
            for group, number in record.enqueued.items():
                assert record.completed[group] <= record.started.get(group, number) <= number
            assert all(record.rank in members for members in record.members.values())


def test_a_hung_device_has_launched_what_it_never_began() -> None:
    for seed in range(2):
        made = incident(seed, RANKS, "device hang")
        (culprit,) = made.truth.ranks
        records = {record.rank: record for record in made.snapshots[Evidence.RECORDER].counters}
        behind = [g for g, number in records[culprit].started.items() if number < records[culprit].enqueued[g]]
        batches = [e for e in records[culprit].entries if e.started is False]
        assert behind or batches


def test_ras_counts_launches_of_members_it_can_place() -> None:
    made = incident(1, RANKS, "skipped collective")
    (report,) = made.snapshots[Evidence.RAS].ras
    for communicator in report.communicators:
        assert [member.number for member in communicator.members] == list(range(communicator.size))
        assert all(member.host in made.topology.machines for member in communicator.members)


@pytest.mark.parametrize(("fault", "seed"), [("healthy training", 25), ("dataloader", 12), ("device hang", 21)])
def test_what_experts_get_differs_by_nature_and_none_of_it_is_lost(fault: str, seed: int) -> None:
    dumps = incident(seed, 16, fault).snapshots[Evidence.RECORDER].counters
    exchanged: dict[tuple[str, int], list[CollectiveRecord]] = {}
    for entry in (entry for one in dumps for entry in one.entries if entry.operation.endswith("all_to_all")):
        exchanged.setdefault((entry.group, entry.sequence), []).append(entry)
    members = {name: ranks for one in dumps for name, ranks in one.members.items()}
    whole = [entries for (group, _), entries in exchanged.items() if len(entries) == len(members[group])]
    assert whole
    for entries in whole:
        given = [entry.input_sizes[0][0] for entry in entries]
        taken = [entry.output_sizes[0][0] for entry in entries]
        assert sum(given) == sum(taken) and len({*given, *taken}) > 1


def test_an_unknown_framework_keeps_only_the_names_of_torch() -> None:
    for seed in range(60):
        made = incident(seed, RANKS, "lock")
        if made.framework == "unknown":
            traces = made.snapshots[Evidence.STACKS].rounds[0].traces
            files = {frame.file for one in traces for thread in one.threads[:1] for frame in thread.frames}
            assert not [file for file in files if file.startswith(("megatron/", "deepspeed/", "torchtitan/"))]
            return
    raise AssertionError("no incident of an unknown framework")


def test_a_job_of_a_thousand_ranks_is_affordable() -> None:
    for seed in (0, 1, 3, 7):
        job = shapes.draw(Random(seed), 1024, ("train", "train"))
        made, _ = run.processes(job)
        engine = run.engine(job, made)
        engine.run()
        assert engine.steps <= STEPS_A_RANK * len(made), job.framework


def test_the_default_set_is_large_and_holds_every_fault() -> None:
    chosen = list(default_set())
    assert len(chosen) >= 2000 and len({seed for seed, _, _ in chosen}) == len(chosen)
    assert {fault for _, _, fault in chosen} == set(MATRIX)
    sizes = Counter(ranks for _, ranks, _ in chosen)
    assert min(sizes) == 64 and max(sizes) == 16384 and sizes[4096] >= 24 and sizes[16384] >= 10


@pytest.mark.parametrize(("seed", "fault"), [(7_200_000, "slow device"), (7_200_001, "slow machine")])
def test_the_like_of_a_slow_machine_wait_for_it_and_its_dumps_tell(seed: int, fault: str) -> None:
    made = incident(seed, RANKS, fault)
    verdict = diagnose(made.snapshots[Evidence.RECORDER], made.topology)
    assert verdict.kind is Kind.SLOW and verdict.evict.machines == made.truth.machines
    assert diagnose(made.snapshots[Evidence.STACKS], made.topology).kind is not Kind.SLOW  # hosts stand where all stand


def test_longer_samples_are_told_from_a_slow_machine_and_stand_in_no_set() -> None:
    made = incident(62_000_012, RANKS, "longer samples")
    verdict = diagnose(made.snapshots[Evidence.RECORDER], made.topology)
    assert not made.truth.machines and (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
    assert {fault for _, _, fault in default_set(beside="longer samples")} == {"longer samples"}
