"""Recorder dumps under the names that their writers give them, and what they tell of ranks and groups without a job.toml."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.errors import UnreadableBundle
from support.cases.evidence import stacks
from support.refused import refused

Fill = Callable[[dict[str, bytes]], Path]


def dump(groups: dict[str, tuple[str, list[int]]], **more: Any) -> bytes:
    config = {name: {"name": name, "desc": desc, "ranks": str(ranks)} for name, (desc, ranks) in groups.items()}
    counts = {"last_enqueued_collective": 5, "last_started_collective": -1, "last_completed_collective": 4}
    status = {str(number): counts for number in range(len(groups))}
    document = {"version": "2.9", "nccl_version": "2.27.3", "pg_config": config, "pg_status": status, "entries": []}
    return json.dumps(document | more).encode()


def megatron(rank: int) -> bytes:
    tensor, data = [rank - rank % 2, rank - rank % 2 + 1], [rank % 2, rank % 2 + 2]
    groups = {
        "0": ("default_pg", [0, 1, 2, 3]),
        "35": ("TENSOR_MODEL_PARALLEL_GROUP", tensor),
        "63": ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", tensor),
        "7": ("DATA_PARALLEL_GROUP_WITH_CP", data),
        "96": ("EXPERT_DATA_PARALLEL_GROUP", [rank]),
    }
    return dump(groups)


@pytest.mark.parametrize(
    "name", ["_dump_{}", "nccl_trace_rank_{}", "fr_trace_{}.json", "traces/of-node-a.{}", "x{}.pickle"]
)
def test_the_rank_is_in_the_name(fill: Fill, name: str) -> None:
    snapshot, _ = open_bundle(fill({name.format(rank): megatron(rank) for rank in (2, 3)}))
    assert [record.rank for record in snapshot.counters] == [2, 3]
    assert snapshot.account.unreadable == {}
    noted = [note for note in snapshot.account.notes if "number at their end" in note]
    assert bool(noted) == name.startswith(("traces", "x"))


def test_a_number_that_is_no_rank_of_its_groups_is_not_believed(fill: Fill) -> None:
    root = fill({f"x{number}.pickle": megatron(rank) for rank, number in enumerate((31070, 31071))})
    with refused("no-evidence", UnreadableBundle, "x31070.pickle"):
        open_bundle(root)


def test_of_files_that_list_no_ranks_the_numbers_must_be_in_order(fill: Fill) -> None:
    snapshot, _ = open_bundle(fill({f"py-spy-{number}.json": stacks(pid=500 - number) for number in range(3)}))
    assert [trace.rank for trace in snapshot.rounds[0].traces] == [0, 1, 2]
    snapshot, _ = open_bundle(fill({f"py-spy-{number}.json": stacks(pid=number) for number in (4711, 4712)}))
    assert {trace.rank: trace.pid for trace in snapshot.rounds[0].traces} == dict(
        enumerate((498, 499, 500, 4711, 4712))
    )
    assert "numbered: 0 is process 498" in snapshot.account.notes[0]


def test_two_files_of_one_number_are_nobodys(fill: Fill) -> None:
    with pytest.raises(UnreadableBundle):
        open_bundle(fill({"a1.json": megatron(1), "b1.json": megatron(1)}))


def test_groups_and_ranks_come_from_the_dumps(fill: Fill) -> None:
    _, layout = open_bundle(fill({f"_dump_{rank}": megatron(rank) for rank in range(4)}))
    assert layout.world_size == 4
    assert dict(layout.groups) == {"tp": ((0, 1), (2, 3)), "dp": ((0, 2), (1, 3))}


def test_what_is_declared_is_believed(fill: Fill) -> None:
    root = fill({"job.toml": b"[topology]\ntp = 4\n"} | {f"_dump_{rank}": megatron(rank) for rank in range(4)})
    _, layout = open_bundle(root)
    assert (dict(layout.sizes), dict(layout.groups)) == ({"tp": 4}, {})


def test_dimensions_of_a_mesh_have_its_names_and_overlapping_groups_are_no_dimension(fill: Fill) -> None:
    groups = {
        "1": ("mesh_dp_shard", [0, 1]),
        "2": ("odd", [0, 1]),
        "3": ("odd", [1, 2]),
        "4": ("EMBEDDING_GROUP", [0, 2]),
    }
    _, layout = open_bundle(fill({"_dump_0": dump(groups), "_dump_1": dump(groups), "_dump_2": dump(groups)}))
    assert dict(layout.groups) == {"dp_shard": ((0, 1),), "EMBEDDING_GROUP": ((0, 2),)}
