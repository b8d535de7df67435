"""Where the known waits of all ranks end: who stands there is named, even if its own wait tells no peer, and never evicted for that."""

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Verdict
from support.cases.stories import STACKS, first, job, snapshot, trace

BACKWARD = ["<module> train.py", "train train.py", "backward_step megatron/core/pipeline_parallel/schedules.py"]
LAUNCHES = ["<module> train.py", "train train.py", "forward megatron/core/transformer/attention.py"]
DISPATCH = ["<module> train.py", "forward megatron/core/transformer/moe/fused_a2a.py", "dispatch deep_ep/buffer.py"]


def judged(at: list[str], peers: list[str], of: tuple[int, ...], replicas: int = 2, dim: str = "tp") -> Verdict:
    """The first replica's stage 1 of 4: the ranks `of` stand at `at` and its others at `peers`; the rest is behind them."""
    sizes = {"tp": 4, "pp": 4, "dp": replicas} if dim == "tp" else {"pp": 4, "dp": 4 * replicas, "ep": 4}
    topology = job(per_machine=4, **sizes)
    everybody = range(16 * replicas)
    stage = next(group for group in topology.groups[dim] if of[0] in group)
    behind = {rank for one in stage for rank in topology.group("pp", Rank(one)) or ()}
    places = {rank: STACKS["stage"] if rank in behind else STACKS["item"] for rank in everybody}
    places |= dict.fromkeys(stage, peers) | dict.fromkeys(of, at)
    look = [trace(Rank(rank), places[rank], state="S") for rank in everybody]
    return diagnose(snapshot(look, look), topology)


def middle(replicas: int) -> int:
    """The first rank of the first replica's stage 1: stages follow each other by all replicas of one stage."""
    return 4 * replicas


@pytest.mark.parametrize("replicas", [1, 2, 8])
@pytest.mark.parametrize("at", [BACKWARD, LAUNCHES], ids=["backward", "launches"])
def test_the_one_whom_its_tensor_peers_wait_for_is_named_however_many_replicas_agree(
    at: list[str], replicas: int
) -> None:
    late = middle(replicas) + 3
    verdict = judged(at, STACKS["tensor"], (late,), replicas)
    assert first(verdict) == (late,) and not verdict.evict.machines


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_stage_in_its_backward_pass_is_where_the_others_waits_end_and_no_waiter_is_blamed(replicas: int) -> None:
    stage = tuple(range(middle(replicas), middle(replicas) + 4))
    verdict = judged(BACKWARD, BACKWARD, stage, replicas)
    assert first(verdict) == stage and not verdict.evict.machines


def test_beside_many_replicas_that_agree_a_message_of_its_pipeline_may_be_lost_as_well() -> None:
    stage = tuple(range(middle(8), middle(8) + 4))
    verdict = judged(BACKWARD, BACKWARD, stage, 8)
    assert set(stage) < set(first(verdict)) and not verdict.evict.machines


def test_who_computes_while_its_experts_group_waits_in_deepep_is_named() -> None:
    verdict = judged(LAUNCHES, DISPATCH, (9,), dim="ep")
    assert first(verdict) == (9,) and not verdict.evict.machines
