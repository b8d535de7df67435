"""The program of each rank of a job."""

from collections.abc import Mapping

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import device_wait
from worlds.timed.engine.steps import Collective, Program, Synchronise
from worlds.timed.engine.work import Work
from worlds.timed.jobs.job import Job
from worlds.timed.programs import compiled, pipelined, replicated, rollouts, sharded
from worlds.timed.scenarios.scenario import Scenario

_OF = {
    "megatron": pipelined.program,
    "fsdp": sharded.program,
    "deepspeed": sharded.program,
    "transformers": replicated.on_devices,
    "lightning": replicated.on_devices,
    "inhouse": replicated.on_devices,
    "inhouse-gloo": replicated.over_gloo,
    "jax": compiled.program,
}


def programs(job: Job, scene: Scenario) -> Mapping[Rank, Program]:
    """What each rank runs."""
    if job.name == "ray":
        driver = rollouts.Driver(job, scene)
        made = {rank: rollouts.program(job, driver, scene, rank) for rank in job.layout.ranks}
    else:
        made = {rank: _OF[job.name](job, scene, rank) for rank in job.layout.ranks}
    return {rank: _blocking(one) for rank, one in made.items()} if job.habits.blocking else made


def _blocking(program: Program) -> Program:
    """A program whose host waits for each collective, as with TORCH_NCCL_BLOCKING_WAIT."""
    sent: Work | None = None
    while True:
        try:
            step = program.send(sent)
        except StopIteration:
            return
        sent = yield step
        if isinstance(step, Collective) and not step.apart:
            yield Synchronise(device_wait(step.at.frames, "backward" if step.at.native == "backward" else "sync"), sent)
