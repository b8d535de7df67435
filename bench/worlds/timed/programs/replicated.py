"""Data parallelism with buckets of gradients (DistributedDataParallel), on devices or over gloo."""

from collections.abc import Iterator

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position, asleep, device_wait, working
from worlds.timed.engine.steps import Collective, HostCollective, Join, Kernel, Payload, Program, Run, Synchronise
from worlds.timed.engine.work import Work
from worlds.timed.jobs.job import Job
from worlds.timed.programs.phases import end_step, gloo_wait, load_batch, log, start_up
from worlds.timed.scenarios.scenario import Scenario


def on_devices(job: Job, scene: Scenario, rank: Rank) -> Program:
    """Forward, backward with all-reduces beside it, optimizer, loss."""
    yield from start_up(job, scene, rank)
    rng = job.rng(rank, "kernels")
    for step in steps(job, scene, rank):
        yield from scene.before(rank, step)
        yield from load_batch(job, scene, rank, step)
        yield Kernel(0.001, working(f"{job.places['step']} to_device@code/data/move.py@19"), 0.001)
        if job.habits.sparse:
            exchange = job.places["exchange"]
            payload = Payload("nccl:all_to_all", ((65536,),), ((65536,),))
            work = yield Collective("world", payload, working(exchange), 0.004)
            if job.habits.syncs_sparse:
                yield Synchronise(device_wait(exchange), work)
        yield from scene.at(rank, "forward", step)
        layers = [working(f"{job.places['layer']} {inner}") for inner in job.places.inner]
        for chunk in range(job.pace.chunks):
            seconds = job.pace.kernel_s * rng.uniform(0.95, 1.05) * scene.effort(rank, step)
            yield Kernel(seconds, layers[chunk % len(layers)], job.pace.host_s)
        if job.habits.syncs_loss:
            yield Synchronise(device_wait(f"{job.places['step']} check_loss@code/guards.py@22"))
        yield from scene.at(rank, "backward", step)
        yield from _backward(job, scene, rank, step)
        if job.habits.clips:
            yield Kernel(0.001, working(job.places["norm"]), 0.002)
        yield from scene.at(rank, "optimizer", step)
        yield Kernel(job.pace.kernel_s * 0.5, working(job.places["optimizer"]), 0.004)
        if step % job.habits.log_every == 0:
            yield from _loss(job, scene, rank, step)
        yield from end_step(job, scene, rank, step)
    yield from scene.end(rank)


def over_gloo(job: Job, scene: Scenario, rank: Rank) -> Program:
    """The same on hosts alone, which wait in the collectives themselves."""
    yield from start_up(job, scene, rank)
    rng = job.rng(rank, "kernels")
    for step in steps(job, scene, rank):
        yield from scene.before(rank, step)
        yield from load_batch(job, scene, rank, step)
        yield from scene.at(rank, "forward", step)
        effort = job.pace.kernel_s * rng.uniform(0.8, 1.2) * scene.effort(rank, step)
        yield Run(8 * effort, Position(job.places["layer"], "openmp", cpu=4.0, inner=job.places.inner))
        yield from scene.at(rank, "backward", step)
        yield Run(12 * effort, asleep(job.places["backward"], "backward", 4.0))
        for bucket in range(2):
            size = job.pace.bucket + bucket
            payload = scene.payload(rank, step, f"bucket {bucket}", Payload("gloo:all_reduce", ((size,),), ((size,),)))
            if payload is not None:
                yield HostCollective("world", payload, gloo_wait(job.places["reduce"]), job.pace.collective_s)
        yield from scene.at(rank, "optimizer", step)
        yield Run(job.pace.kernel_s, working(job.places["optimizer"]))
        yield from scene.at(rank, "log", step)
        if rank == 0:
            yield from log(job)
        yield from end_step(job, scene, rank, step)
    yield from scene.end(rank)


def steps(job: Job, scene: Scenario, rank: Rank) -> Iterator[int]:
    """The steps for which a rank has data."""
    for step in range(job.steps):
        if not scene.has_batch(rank, step):
            return
        yield step


def backward_of(job: Job) -> Position:
    """A host whose autograd thread runs the backward pass."""
    return Position(job.places["backward"], "backward", "S", cpu=0.5, autograd=job.places.get("autograd", ""))


def _backward(job: Job, scene: Scenario, rank: Rank, step: int) -> Program:
    rng, at = job.rng(rank, f"backward {step}"), backward_of(job)
    reduced: list[Work | None] = []
    for chunk in range(job.pace.chunks):
        seconds = 2 * job.pace.kernel_s * rng.uniform(0.95, 1.05) * scene.effort(rank, step)
        yield Kernel(seconds, at, job.pace.host_s)
        if chunk % 2 == 0:
            continue
        size = job.pace.bucket + chunk
        payload = scene.payload(rank, step, f"bucket {chunk // 2}", Payload("nccl:all_reduce", ((size,),), ((size,),)))
        if payload is not None:
            reduced.append((yield Collective("world", payload, at, job.pace.collective_s, 0.0003, apart=True)))
    for work in reduced:
        yield Join(work)


def _loss(job: Job, scene: Scenario, rank: Rank, step: int) -> Program:
    yield from scene.at(rank, "log", step)
    if job.name == "transformers" and not job.newer:
        gathered = Payload("nccl:all_gather", ((1,),), ((job.layout.world_size,),))
        work = yield Collective("world", gathered, working(job.places["loss_gather"]), 0.001)
        yield Synchronise(device_wait(job.places["loss_gathered"]), work)
    else:
        yield Synchronise(device_wait(job.places["loss"]))
    if rank == 0:
        yield from log(job)
