"""Where every frame waits and none says for whom, the relation of the culprit to all others still names it."""

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind
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
