"""A trace as PyTorch's flight recorder would have written it: one dump a rank, with the times that TORCH_NCCL_ENABLE_TIMING adds.

What a trace has not is not made up: computing has no entry, as in a recorder, and every kind of operation has one size.
"""

import json
from bisect import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from straggler_traces.trace import Operation, Shape, Trace

#: Any date will do.
EPOCH_NS = 1_760_000_000_000_000_000
#: As many entries the ring holds that PyTorch advises (TORCH_NCCL_TRACE_BUFFER_SIZE=2000).
RING = 2000
#: The version of the dumps that PyTorch 2.7 to 2.13 write, and an NCCL of that time.
VERSION, NCCL = "2.10", "2.27.3"
#: Elements of every operation: the trace tells no sizes.
ELEMENTS = 1 << 20

DEFAULT, TENSOR, DATA, PIPELINE, MODEL, EMBEDDING = (
    "default_pg",
    "TENSOR_MODEL_PARALLEL_GROUP",
    "DATA_PARALLEL_GROUP",
    "PIPELINE_MODEL_PARALLEL_GROUP",
    "MODEL_PARALLEL_GROUP",
    "EMBEDDING_GROUP",
)
#: Collectives of the trace: the group they run in, and what the recorder calls them.
COLLECTIVES = {
    "params-all-gather": (DATA, "_all_gather_base"),
    "grads-reduce-scatter": (DATA, "_reduce_scatter_base"),
    "layernorm-grads-all-reduce": (TENSOR, "all_reduce"),
    "embedding-grads-all-reduce": (EMBEDDING, "all_reduce"),
    "optimizer-clip-main-grad": (MODEL, "all_reduce"),
}
#: Sends and receives: how far the other stage is, and whether it is a send.
MESSAGES = {
    "forward-send": (1, True),
    "forward-recv": (-1, False),
    "backward-send": (-1, True),
    "backward-recv": (1, False),
}


def written(trace: Trace, cut_s: float, folder: Path) -> None:
    """Writes what every rank's recorder holds `cut_s` after the beginning of the trace, as `rank<N>.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, document in dumps(trace, cut_s):
        (folder / f"rank{rank}.json").write_text(json.dumps(document), encoding="utf-8")


def dumps(trace: Trace, cut_s: float) -> Iterator[tuple[int, dict[str, object]]]:
    """The dump of every rank at one moment. Of a worker one process was recorded; its other ranks did the same beside it."""
    shape = trace.shape
    groups = list(_groups(shape))
    of_worker: dict[tuple[int, int], list[Operation]] = {}
    for operation in trace.operations[: bisect(trace.operations, cut_s, key=lambda one: one.start_s)]:
        of_worker.setdefault((operation.dp, operation.stage), []).append(operation)
    for (dp, stage), operations in sorted(of_worker.items()):
        first = shape.first_rank(dp, stage)
        for rank in range(first, first + shape.ranks_of_worker):
            mine = {group.kind: group for group in groups if rank in group.ranks}
            yield rank, _dump(rank, mine, operations, cut_s)


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    kind: str
    ranks: tuple[int, ...]


@dataclass(slots=True)
class _Counts:
    """How far a rank has come in one group."""

    collectives: int = 0
    messages: int = 0
    started: int = -1
    completed: int = -1
    open: bool = field(default=False)


def _groups(shape: Shape) -> Iterator[_Group]:
    """Every group of the job, with one running name each, as Megatron-Core's parallel_state makes them."""
    wide = shape.ranks_of_worker
    world = range(shape.dp * shape.pp * wide)
    replicas = [
        [shape.first_rank(dp, stage) + at for dp in range(shape.dp)] for stage in range(shape.pp) for at in range(wide)
    ]
    pipelines = [
        [shape.first_rank(dp, stage) + at for stage in range(shape.pp)] for dp in range(shape.dp) for at in range(wide)
    ]
    kinds: list[tuple[str, Iterable[Iterable[int]]]] = [
        (DEFAULT, [world]),
        (DATA, replicas),
        (MODEL, [[r for stage in range(shape.pp) for r in _worker(shape, dp, stage)] for dp in range(shape.dp)]),
        (TENSOR, [_worker(shape, dp, stage) for stage in range(shape.pp) for dp in range(shape.dp)]),
        (PIPELINE, pipelines),
        (EMBEDDING, [[line[0], line[-1]] for line in pipelines]),
    ]
    number = 0
    for kind, groups in kinds:
        for ranks in groups:
            yield _Group(str(number), kind, tuple(ranks))
            number += 1


def _worker(shape: Shape, dp: int, stage: int) -> range:
    first = shape.first_rank(dp, stage)
    return range(first, first + shape.ranks_of_worker)


def _dump(rank: int, groups: dict[str, _Group], operations: Iterable[Operation], cut_s: float) -> dict[str, object]:
    numbers = {kind: place for place, kind in enumerate(groups)}
    counts = {kind: _Counts() for kind in groups}
    entries = [
        entry for operation in operations if (entry := _entry(operation, groups, numbers, counts, cut_s)) is not None
    ]
    for record_id, entry in enumerate(entries):
        entry["record_id"] = record_id
    return {
        "version": VERSION,
        "nccl_version": NCCL,
        "rank": rank,
        "pg_config": {
            group.name: {"name": group.name, "desc": kind, "ranks": str(list(group.ranks))}
            for kind, group in groups.items()
        },
        "pg_status": {
            str(numbers[kind]): {
                "last_enqueued_collective": one.collectives or -1,
                "last_started_collective": one.started,
                "last_completed_collective": one.completed,
            }
            for kind, one in counts.items()
        },
        "entries": entries[-RING:],
    }


def _entry(
    operation: Operation, groups: dict[str, _Group], numbers: dict[str, int], counts: dict[str, _Counts], cut_s: float
) -> dict[str, object] | None:
    """The recorder's entry of an operation; None of what runs on one rank alone."""
    message = MESSAGES.get(operation.kind)
    if message is not None:
        kind, (offset, sends) = PIPELINE, message
        peer = operation.stage + offset
        name = f"send {operation.stage}->{peer}" if sends else f"recv {operation.stage}<-{peer}"
        counts[kind].messages += 1
    elif operation.kind in COLLECTIVES:
        kind, name = COLLECTIVES[operation.kind]
        counts[kind].collectives += 1
    else:
        return None
    count, done = counts[kind], operation.end_s <= cut_s
    if message is None:
        count.started = count.collectives
        count.completed = count.collectives if done else count.completed
    began, ended = _ns(operation.start_s), _ns(operation.end_s)
    return {
        "pg_id": numbers[kind],
        "process_group": [groups[kind].name, kind],
        "collective_seq_id": count.collectives,
        "p2p_seq_id": count.messages,
        "op_id": count.collectives + count.messages,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": began,
        "time_discovered_started_ns": began,
        "time_discovered_completed_ns": ended if done else None,
        **({"duration_ms": (ended - began) / 1e6} if done else {}),
        "input_sizes": [[ELEMENTS]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[ELEMENTS]],
        "output_dtypes": ["BFloat16"],
        "state": "completed" if done else "started",
        "timeout_ms": 600_000,
        "is_p2p": message is not None,
        "retired": done,
        "frames": [],
    }


def _ns(seconds: float) -> int:
    return EPOCH_NS + round(seconds * 1e9)
