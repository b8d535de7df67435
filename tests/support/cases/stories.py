"""Small worlds for tests: a stuck job told in a few lines, as a snapshot and a topology."""

from collections.abc import Mapping, Sequence

from hangdog_models.ranks import Rank, parse_ranks
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Reason, Thread
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Verdict

C10D = "torch/distributed/distributed_c10d.py"

#: Stacks as they are seen in real jobs, outermost first: `function file`.
STACKS = {
    "backward": [
        "<module> train.py",
        "step train.py",
        "backward torch/_tensor.py",
        "_engine_run_backward torch/autograd/graph.py",
    ],
    "metrics": ["<module> train.py", "log_metrics train.py", f"all_reduce {C10D}"],
    "barrier": ["<module> train.py", "save train.py", f"barrier {C10D}"],
    "loader": [
        "<module> train.py",
        "_next_data torch/utils/data/dataloader.py",
        "_try_get_data torch/utils/data/dataloader.py",
        "get queue.py",
        "wait threading.py",
    ],
    "disk": ["<module> train.py", "load train.py", "read_bytes pathlib.py"],
    "gather": [
        "<module> train.py",
        "_call_impl torch/nn/modules/module.py",
        "foreach_all_gather torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
        f"all_gather_into_tensor {C10D}",
    ],
    "scatter": [
        "<module> train.py",
        "_call_impl torch/nn/modules/module.py",
        "foreach_reduce torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
        f"reduce_scatter_tensor {C10D}",
    ],
    "tensor": [
        "<module> train.py",
        "forward megatron/core/tensor_parallel/layers.py",
        "_reduce megatron/core/tensor_parallel/mappings.py",
        f"all_reduce {C10D}",
    ],
    "stage": [
        "<module> train.py",
        "forward_backward_pipelining_without_interleaving megatron/core/pipeline_parallel/schedules.py",
        "recv_forward megatron/core/pipeline_parallel/p2p_communication.py",
        "_communicate megatron/core/pipeline_parallel/p2p_communication.py",
    ],
    "user": ["<module> train.py", "step train.py", "augment data.py"],
    "upload": ["<module> train.py", "save checkpoint.py", "send http/client.py"],
    "other": ["<module> train.py", "step train.py", "tokenize text.py"],
    "average": ["<module> train.py", "average train.py", "synchronize torch/cuda/__init__.py"],
    "item": ["<module> train.py", "report train.py", "synchronize torch/cuda/__init__.py"],
    "write": ["<module> train.py", "save train.py", "save torch/serialization.py", "_save torch/serialization.py"],
    "start": ["<module> train.py", f"init_process_group {C10D}", f"_new_process_group_helper {C10D}"],
}


def frames(stack: str | Sequence[str], shift: int = 0) -> tuple[Frame, ...]:
    """The frames of a named stack; `shift` moves the innermost line, as a rank that goes on would."""
    lines = STACKS[stack] if isinstance(stack, str) else stack
    calls = [line.rsplit(" ", 1) for line in lines]
    last = len(calls) - 1
    return tuple(
        Frame(function, file, 10 + at + (shift if at == last else 0)) for at, (function, file) in enumerate(calls)
    )


def trace(
    rank: int, stack: str | Sequence[str], *, state: str = "", wchan: str = "", shift: int = 0, **more: bool
) -> ProcessTrace:
    """A rank's trainer in a named stack. `stack` may be a reason (`timed out`): then nothing was captured.

    Whoever is at its `disk` is stuck there by the kernel's word, unless another state is given.
    """
    if stack == "disk" and not state:
        state, wchan = "D", "io_schedule"
    kernel = ProcessState(1000 + rank, state, wchan) if state else None
    if isinstance(stack, str) and stack in set(Reason):
        return ProcessTrace(Rank(rank), pid=1000 + rank, state=kernel, missing=Missing(Reason(stack), ""))
    main = Thread("MainThread", 1000 + rank, frames(stack, shift), more.get("active", False), more.get("gil", False))
    return ProcessTrace(Rank(rank), pid=1000 + rank, threads=(main,), state=kernel)


def look(story: Mapping[str, str], **changes: ProcessTrace) -> list[ProcessTrace]:
    """Traces from `{"0-2,5": "backward", "3": "loader"}`."""
    return [trace(rank, stack) for ranks, stack in story.items() for rank in parse_ranks(ranks)]


def snapshot(*rounds: Sequence[ProcessTrace]) -> Snapshot:
    return Snapshot(Job("story"), tuple(Round(number, tuple(traces)) for number, traces in enumerate(rounds)), 1.0)


def job(per_machine: int = 2, world: int | None = None, **sizes: int) -> Topology:
    """A topology such as `job(tp=2, dp=2, pp=2)` on machines `node-0`, `node-1`, ..."""
    topology, notes = build(Layout(world_size=world, sizes=sizes, ranks_per_machine=per_machine), None)
    assert not notes
    return topology


def twice(traces: list[ProcessTrace]) -> Snapshot:
    """A job that looks the same in two looks."""
    return snapshot(traces, traces)


def first(verdict: Verdict) -> tuple[int, ...]:
    """The ranks of the first suspect."""
    return verdict.suspects[0].ranks if verdict.suspects else ()
