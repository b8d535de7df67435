"""A process group all of whose hosts launch and get no further: their devices stand, and so they hold the others up."""

import pytest

from hangdog_models.diagnosis.judge import diagnose, investigate
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.ranks import Rank, parse_ranks
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind
from support.cases.stories import STACKS, job, snapshot, trace

JOB = job(per_machine=8, tp=8, pp=2, dp=2)  # 32 ranks, 4 machines
LAUNCHES = ["<module> train.py", "step train.py", "backward megatron/core/tensor_parallel/layers.py"]
ELSEWHERE = ["<module> train.py", "step train.py", "forward megatron/core/transformer/mlp.py"]


def queued(*launching: tuple[str, list[str]]) -> list[GroupWait]:
    """What is held to be stuck where these launch and the others read back what their devices made."""
    return [hold for hold in investigate(*story(*launching)).waits.holds if hold.joined]


def story(*launching: tuple[str, list[str]]) -> tuple[Snapshot, Topology]:
    stacks = {rank: stack for ranks, stack in launching for rank in parse_ranks(ranks)}
    look = [trace(rank, stacks.get(rank, STACKS["item"]), state="S") for rank in map(Rank, range(32))]
    return snapshot(look, look), JOB


def test_the_group_that_launches_as_a_whole_is_what_is_stuck() -> None:
    assert [(hold.dim, hold.inside, hold.inferred) for hold in queued(("8-15", LAUNCHES))] == [
        ("tp", tuple(range(8, 16)), False)
    ]
    verdict = diagnose(*story(("8-15", LAUNCHES)))
    assert verdict.kind is Kind.GROUP and verdict.suspects[0].machines == ("node-1",) and not verdict.evict.machines


@pytest.mark.parametrize(
    "launching",
    [
        [("8-14", LAUNCHES)],
        [("0-31", LAUNCHES)],
        [("0-15", LAUNCHES)],
        [("0-7", LAUNCHES), ("8-15", ELSEWHERE)],
        [("8-15", LAUNCHES), ("0-7", STACKS["barrier"])],
    ],
    ids=["a part of a group", "all", "two groups", "two groups at two places", "others are at a barrier"],
)
def test_who_is_not_the_one_group_that_launches_is_not_told_to_be_stuck(launching: list[tuple[str, list[str]]]) -> None:
    assert not queued(*launching)
