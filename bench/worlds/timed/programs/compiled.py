"""JAX: a compiled step that is handed to the devices whole, one process on each machine."""

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position, asleep, working
from worlds.timed.engine.steps import Collective, Kernel, Payload, Program, Run, Synchronise
from worlds.timed.jobs.job import Job
from worlds.timed.programs.phases import end_step, load_batch, start_up
from worlds.timed.programs.replicated import steps
from worlds.timed.scenarios.scenario import Scenario


def program(job: Job, scene: Scenario, rank: Rank) -> Program:
    """Dispatch, and wait for the loss now and then."""
    yield from start_up(job, scene, rank)
    rng, pace = job.rng(rank, "kernels"), job.pace
    dispatch = Position(job.places["dispatch"], "xla_dispatch")
    for step in steps(job, scene, rank):
        yield from load_batch(job, scene, rank, step)
        yield from scene.at(rank, "forward", step)
        yield Run(0.003, dispatch)
        for chunk in range(pace.chunks):
            seconds = 3 * pace.kernel_s * rng.uniform(0.97, 1.03) * scene.effort(rank, step)
            yield Kernel(seconds, dispatch, 0.0005)
            name = "xla:all-gather" if chunk % 2 else "xla:all-reduce"
            size = ((pace.bucket,),)
            payload = scene.payload(rank, step, f"computation {chunk}", Payload(name, size, size, "BF16"))
            if payload is not None:
                yield Collective("world", payload, dispatch, pace.collective_s, 0.0002)
        yield from scene.at(rank, "optimizer", step)
        yield Kernel(pace.kernel_s, dispatch, 0.0005)
        yield from scene.at(rank, "log", step)
        if step % job.habits.log_every == 0:
            yield Synchronise(asleep(job.places["loss"], "xla_wait", 0.02, waits=True))
        if rank == 0:
            yield Run(0.01, working(job.places["log"]))
        yield from end_step(job, scene, rank, step)
    yield from scene.end(rank)
