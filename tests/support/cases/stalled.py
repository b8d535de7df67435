"""Stuck jobs of any size for the pages: one rank outside, whole stages waiting, some of what else a page shows."""

from dataclasses import replace

from msgspec import structs

from hangdog_models.collectives import CollectiveRecord, RankCounters
from hangdog_models.diagnosis.judge import investigate
from hangdog_models.diagnosis.verdict.conclude import conclude
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Reason, Thread
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Verdict
from hangdog_models.views import incident_view
from support.cases.stories import C10D, frames

#: A trainer begins like this on every rank.
TRUNK = [
    "<module> train.py",
    "main train.py",
    "train megatron/training/training.py",
    "train_step megatron/training/training.py",
]
PIPELINE = "megatron/core/pipeline_parallel/p2p_communication.py"
SCHEDULE = "forward_backward_pipelining_without_interleaving megatron/core/pipeline_parallel/schedules.py"
REDUCE = frames([
    *TRUNK, "finalize_model_grads megatron/core/distributed/finalize_model_grads.py",
    "finish_grad_sync megatron/core/distributed/param_and_grad_buffer.py",
    "start_grad_sync megatron/core/distributed/param_and_grad_buffer.py", f"all_reduce {C10D}",
])  # fmt: skip
RECEIVE = frames([*TRUNK, SCHEDULE, f"recv_forward {PIPELINE}", f"_communicate {PIPELINE}", f"wait {C10D}"])
LOADER = frames([
    *TRUNK, "get_batch pretrain_gpt.py", "__next__ torch/utils/data/dataloader.py",
    "_next_data torch/utils/data/dataloader.py", "_get_data torch/utils/data/dataloader.py", "get queue.py", "wait threading.py",
])  # fmt: skip
HELPER = frames(["_bootstrap threading.py", "run threading.py", "_loop torch/utils/data/_utils/pin_memory.py"])
POLL = Frame("poll", "", module="/usr/lib/x86_64-linux-gnu/libc.so.6")


def stalled(
    ranks: int, tensor: int = 8, stages: int = 8, per_machine: int = 8, switches: int = 0
) -> tuple[Snapshot, Topology]:
    """A job in which one rank of the first stage waits for its data loader and everybody else for it.

    Its machines hang behind so many `switches`, one by one.
    """
    of_stage = ranks // stages
    culprit = of_stage // 2 // tensor * tensor + min(5, tensor - 1)
    missing = ranks - 3 if ranks > 64 else None

    def trace(rank: int, deep: bool) -> ProcessTrace:
        stack = LOADER if rank == culprit else RECEIVE if rank // of_stage else REDUCE
        stack = (*stack, POLL) if deep else stack
        threads = (Thread("MainThread", 0, stack, False, False), Thread("pin_memory", 0, HELPER, False, False))
        return ProcessTrace(
            Rank(rank), pid=4000 + rank % 997, threads=threads, state=ProcessState(0, "S", "futex_wait")
        )

    def look(number: int) -> Round:
        traces = [trace(rank, deep=number == 1 and rank in (culprit, 0)) for rank in range(ranks) if rank != missing]
        if missing is not None:
            traces.append(
                ProcessTrace(Rank(missing), missing=Missing(Reason.TIMED_OUT, "py-spy: no answer within 8 s"))
            )
        return Round(number, tuple(traces))

    counters = tuple(
        RankCounters(
            Rank(rank), {"tp": 811 - (rank == culprit)}, {"tp": 810 - (rank == culprit)},
            (CollectiveRecord("tp", 811, "all_reduce", False),),
            {"tp": tuple(Rank(one) for one in range(culprit // tensor * tensor, culprit // tensor * tensor + tensor))},
            {"tp": "tensor model parallel group"}, {},
        )
        for rank in range(culprit // tensor * tensor, culprit // tensor * tensor + tensor)
    )  # fmt: skip
    finding = Finding(
        "kernel",
        "NFS",
        Impact.SUSPECTS,
        "server filer-3 not responding, still trying",
        f"node-{culprit // per_machine}",
    )
    sizes = {"tp": tensor, "dp": ranks // tensor // stages, "pp": stages}
    names = [f"node-{number}" for number in range(ranks // per_machine)]
    each = -(-len(names) // switches) if switches else 1
    behind = {f"leaf-{at}": tuple(names[at * each : (at + 1) * each]) for at in range(switches)}
    topology, _ = build(Layout(sizes=sizes, ranks_per_machine=per_machine, switches=behind), Rank(ranks - 1))
    snapshot = Snapshot(Job("llama-70b-run7", "megatron"), (look(0), look(1)), 2.0, counters, findings=(finding,))
    return snapshot, topology


def judged(snapshot: Snapshot, topology: Topology) -> tuple[Verdict, incident_view.IncidentView]:
    """The verdict on a job, and what is shown of it."""
    case = investigate(snapshot, topology)
    verdict = conclude(case)
    return verdict, incident_view.of(case, verdict)


def renamed(snapshot: Snapshot, function: str) -> Snapshot:
    """The same job with another name for the frames that its stacks end in."""

    def other(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
        return (*stack[:-1], structs.replace(stack[-1], function=function)) if stack else stack

    rounds = tuple(
        replace(one, traces=tuple(
            structs.replace(trace, threads=tuple(structs.replace(thread, frames=other(thread.frames)) for thread in trace.threads))
            for trace in one.traces
        ))
        for one in snapshot.rounds
    )  # fmt: skip
    return replace(snapshot, rounds=rounds)
