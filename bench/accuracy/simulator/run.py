"""Builds the processes of a job and runs them."""

from collections.abc import Callable

from accuracy.simulator.engine import Engine
from accuracy.simulator.groups import of_job
from accuracy.simulator.job import Job, Role
from accuracy.simulator.process import Process
from accuracy.simulator.program import Op, Writer
from accuracy.simulator.schedules import ddp, deepspeed, fsdp, megatron, pipelining

_SCHEDULES: dict[str, Callable[[Job, Role], Writer]] = {
    "megatron": megatron.write,
    "megatron-interleaved": megatron.write,
    "fsdp": fsdp.write,
    "ddp": ddp.write,
    "deepspeed": deepspeed.write,
    "pipelining": pipelining.write,
}


def processes(job: Job) -> tuple[list[Process], list[tuple[int, ...]]]:
    """A process for each rank, and for each where in its program the training steps begin."""
    groups = of_job(job.topology, job.framework)
    written: dict[Role, tuple[tuple[Op, ...], tuple[int, ...]]] = {}
    made, marks = [], []
    for rank in range(job.topology.world_size):
        role = job.role(rank, frozenset(groups[rank]))
        if role not in written:
            writer = _SCHEDULES[job.framework](job, role)
            written[role] = writer.finished(), tuple(writer.marks)
        ops, begins = written[role]
        made.append(Process(rank, ops, groups[rank]))
        marks.append(begins)
    return made, marks


def engine(job: Job, made: list[Process]) -> Engine:
    return Engine(made, gloo=job.gloo, blocking=job.blocking)
