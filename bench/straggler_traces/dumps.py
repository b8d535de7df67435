"""A trace as PyTorch's flight recorder would have written it: one dump a rank, with the times that TORCH_NCCL_ENABLE_TIMING adds.

What a trace has not is not made up: computing has no entry, as in a recorder, and every operation has one size.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from straggler_traces.trace import Operation, Shape, Trace

#: Any date will do.
EPOCH_NS = 1_760_000_000_000_000_000
#: Entries of a rank that are kept, as PyTorch's tutorial advises (TORCH_NCCL_TRACE_BUFFER_SIZE=2000).
RING = 2000
#: What the recorder of a recent PyTorch writes for its own version, and an NCCL of that time.
VERSION, NCCL = "2.10", "2.27.3"
#: Seconds between two dumps of one job: as far apart as ByteRobust's rounds.
APART_S = 10.0
#: Elements of every operation: the trace tells no sizes.
SIZES = [[1 << 20]]

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
#: Sends and receives: how far the other stage is, and how the recorder writes them.
MESSAGES = {
    "forward-send": (1, "send {}->{}"),
    "forward-recv": (-1, "recv {}<-{}"),
    "backward-send": (-1, "send {}->{}"),
    "backward-recv": (1, "recv {}<-{}"),
}

Document = dict[str, object]


def write(trace: Trace, folder: Path, *, timed: bool = True, steps: int | None = None) -> None:
    """Writes a bundle of two rounds, in the middle of the last step and some seconds before, one `rank<N>.json` a rank.

    `steps` is how many steps of the trace are written, all of them by default.
    """
    last_s = sum(trace.borders_s[: steps and steps + 1][-2:]) / 2
    for number, cut_s in enumerate((last_s - APART_S, last_s)):
        inside = folder / f"round-{number}"
        inside.mkdir(parents=True)
        for rank, document in dumps(trace, cut_s, timed=timed):
            (inside / f"rank{rank}.json").write_text(json.dumps(document), encoding="utf-8")


def dumps(trace: Trace, cut_s: float, *, timed: bool = True) -> Iterator[tuple[int, Document]]:
    """The dump of every rank `cut_s` after the beginning of the trace: what began later is not in it, what ended later is open.

    Of a worker one process was recorded; its other ranks did the same beside it. Without `timed` the recorder times
    nothing, as PyTorch's does by default.
    """
    shape, groups = trace.shape, tuple(_groups(trace.shape))
    begun = trace.operations[: bisect_right(trace.operations, cut_s, key=lambda one: one.start_s)]
    of_worker: dict[tuple[int, int], list[Operation]] = {}
    for operation in begun:
        of_worker.setdefault((operation.dp, operation.stage), []).append(operation)
    for worker, operations in sorted(of_worker.items()):
        for rank in shape.worker(*worker):
            recorder = _Recorder({group.kind: group for group in groups if rank in group.ranks}, cut_s, timed)
            yield rank, recorder.dump(rank, operations)


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    kind: str
    ranks: tuple[int, ...]


def _groups(shape: Shape) -> Iterator[_Group]:
    """Every group of the job, each by a running number, with Megatron-Core's descriptions."""
    replicas, stages, places = range(shape.dp), range(shape.pp), range(shape.ranks_of_worker)
    lines = [[shape.worker(dp, stage)[at] for stage in stages] for dp in replicas for at in places]
    kinds: tuple[tuple[str, list[Iterable[int]]], ...] = (
        (DEFAULT, [range(shape.dp * shape.pp * shape.ranks_of_worker)]),
        (DATA, [[shape.worker(dp, stage)[at] for dp in replicas] for stage in stages for at in places]),
        (MODEL, [[rank for stage in stages for rank in shape.worker(dp, stage)] for dp in replicas]),
        (TENSOR, [shape.worker(dp, stage) for stage in stages for dp in replicas]),
        (PIPELINE, [*lines]),
        (EMBEDDING, [(line[0], line[-1]) for line in lines]),
    )
    every = ((kind, ranks) for kind, groups in kinds for ranks in groups)
    for number, (kind, ranks) in enumerate(every):
        yield _Group(str(number), kind, tuple(ranks))


@dataclass(slots=True)
class _Count:
    """How far a rank has come in one group."""

    collectives: int = 0
    messages: int = 0
    completed: int = -1


class _Recorder:
    """The recorder of one rank, whose own numbers of its groups run in the order in which they were made."""

    def __init__(self, groups: Mapping[str, _Group], cut_s: float, timed: bool) -> None:
        self._groups, self._cut_s, self._timed = groups, cut_s, timed
        self._numbers = {kind: number for number, kind in enumerate(groups)}
        self._counts = {kind: _Count() for kind in groups}

    def dump(self, rank: int, operations: Iterable[Operation]) -> Document:
        entries = [entry for operation in operations if (entry := self._entry(operation))]
        for number, entry in enumerate(entries):
            entry["record_id"] = number
        configured = {
            group.name: {"name": group.name, "desc": kind, "ranks": str([*group.ranks])}
            for kind, group in self._groups.items()
        }
        statuses = {
            str(self._numbers[kind]): {
                "last_enqueued_collective": count.collectives or -1,
                "last_started_collective": (count.collectives or -1) if self._timed else -1,
                "last_completed_collective": count.completed,
            }
            for kind, count in self._counts.items()
        }
        return {
            "version": VERSION, "nccl_version": NCCL, "rank": rank,
            "pg_config": configured, "pg_status": statuses, "entries": entries[-RING:],
        }  # fmt: skip

    def _entry(self, operation: Operation) -> Document | None:
        """None for what runs on one rank alone: computing, and the optimizer."""
        done = operation.end_s <= self._cut_s
        if operation.kind in MESSAGES:
            kind = PIPELINE
            offset, form = MESSAGES[operation.kind]
            name = form.format(operation.stage, operation.stage + offset)
            count = self._counts[kind]
            count.messages += 1
        elif operation.kind in COLLECTIVES:
            kind, name = COLLECTIVES[operation.kind]
            count = self._counts[kind]
            count.collectives += 1
            count.completed = count.collectives if done else count.completed
        else:
            return None
        began, ended = (EPOCH_NS + round(seconds * 1e9) for seconds in (operation.start_s, operation.end_s))
        return {
            "pg_id": self._numbers[kind],
            "process_group": [self._groups[kind].name, kind],
            "collective_seq_id": count.collectives,
            "p2p_seq_id": count.messages,
            "op_id": count.collectives + count.messages,
            "profiling_name": f"nccl:{name}",
            "time_created_ns": began,
            "time_discovered_started_ns": began if self._timed else None,
            "time_discovered_completed_ns": ended if self._timed and done else None,
            **({"duration_ms": (ended - began) / 1e6} if self._timed and done else {}),
            "input_sizes": SIZES,
            "input_dtypes": ["BFloat16"],
            "output_sizes": SIZES,
            "output_dtypes": ["BFloat16"],
            "state": "completed" if done else "started" if self._timed else "scheduled",
            "timeout_ms": 600_000,
            "is_p2p": operation.kind in MESSAGES,
            "retired": done,
            "frames": [],
        }
