"""Where every frame waits and none says for whom, the relation of the culprit to all others still names it."""

from dataclasses import replace

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Verdict
from support.cases.stories import job, snapshot, trace

SHAPE = job(tp=4, dp=4, pp=4, per_machine=4)


def told(shape: Topology, culprit: int) -> Snapshot:
    """Everybody waits for a device; the tensor group of the culprit, its pipeline and the rest in three different places."""
    tensor = shape.group("tp", Rank(culprit)) or ()
    pipeline = {rank for peer in tensor for rank in shape.group("pp", peer) or ()}
    places = {}
    for rank in range(shape.world_size):
        line = "sync_b" if rank in tensor else "sync_a" if rank in pipeline else "sync_c"
        places[rank] = ["<module> train.py", f"{line} train.py", "synchronize torch/cuda/__init__.py"]
    traces = [trace(rank, places[rank]) for rank in range(shape.world_size)]
    return snapshot(traces, traces)


def test_the_group_that_all_others_relate_to_is_named_and_not_evicted() -> None:
    verdict = diagnose(told(SHAPE, 21), SHAPE)
    assert verdict.kind is Kind.GROUP
    assert "node-5" in verdict.suspects[0].machines
    assert verdict.evict.machines == ()


def test_where_all_stand_alike_structure_says_nothing() -> None:
    alike = [trace(rank, "item") for rank in range(64)]
    verdict = diagnose(snapshot(alike, alike), SHAPE)
    assert (verdict.kind, verdict.suspects) == (Kind.UNDETERMINED, ())


def test_the_one_that_waits_elsewhere_for_long_runs_other_code() -> None:
    """It skipped a gather of all, and waits for the others in the next step."""
    shape = job(dp=16, per_machine=8)
    norm = ["<module> train.py", "norm train.py", "synchronize torch/cuda/__init__.py"]
    seen = [trace(rank, norm if rank == 6 else "item") for rank in range(16)]
    brief = snapshot(seen, seen)
    verdict = diagnose(replace(brief, job=replace(brief.job, stalled_s=300.0)), shape)
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
    assert verdict.culprit is not None and verdict.culprit.ranks == (6,)
    assert 0.5 < verdict.confidence < 0.6
    assert diagnose(brief, shape).kind is Kind.UNDETERMINED, "two looks may both meet a step"


def test_the_last_at_work_is_named_where_all_others_are_idle() -> None:
    """A rollout worker that hangs, or has the longest answer to write: the others' main loops wait for a next call."""
    shape = job(dp=16, per_machine=8)
    loop = ["<module> ray/_private/workers/default_worker.py", "main_loop ray/_private/worker.py"]
    works = ["<module> ray/_private/workers/default_worker.py", "execute vllm/v1/worker/gpu_model_runner.py"]
    works += ["_to_list vllm/v1/worker/gpu_model_runner.py", "synchronize torch/cuda/streams.py"]

    def judged(*busy: int) -> Verdict:
        seen = [trace(rank, works if rank in busy else loop) for rank in range(16)]
        return diagnose(snapshot(seen, seen), shape)

    verdict = judged(14)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert verdict.culprit is not None and (verdict.culprit.ranks, verdict.culprit.machines) == ((14,), ("node-1",))
    assert 0.6 < verdict.culprit.probability < 0.7
    assert judged(13, 14).culprit is None, "two of sixteen work together"
