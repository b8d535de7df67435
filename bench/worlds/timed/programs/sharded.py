"""Sharded parameters (FSDP2, ZeRO-3): gathered layer by layer, gradients scattered."""

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import device_wait, working
from worlds.timed.engine.steps import Collective, Join, Kernel, Payload, Program, Synchronise
from worlds.timed.jobs.job import Job
from worlds.timed.programs.phases import SCALAR, end_step, load_batch, log, reduce_scalar, start_up
from worlds.timed.programs.replicated import backward_of, steps
from worlds.timed.scenarios.scenario import Scenario

_GATHER, _SCATTER = "nccl:_all_gather_base", "nccl:_reduce_scatter_base"


def program(job: Job, scene: Scenario, rank: Rank) -> Program:
    """Forward and backward with gathers before each layer, a norm, the optimizer, the loss."""
    yield from start_up(job, scene, rank)
    for step in steps(job, scene, rank):
        yield from scene.before(rank, step)
        yield from load_batch(job, scene, rank, step)
        yield from scene.at(rank, "forward", step)
        yield from forward(job, scene, rank, step)
        yield from scene.at(rank, "backward", step)
        yield from backward(job, scene, rank, step)
        norm = yield Collective("dp", SCALAR, working(job.places["norm"]), 0.0005)
        if job.habits.syncs_norm:
            yield Synchronise(device_wait(job.places["norm_sync"], "work_wait"), norm)
        yield from scene.at(rank, "optimizer", step)
        yield Kernel(job.pace.kernel_s * 0.5, working(job.places["optimizer"]), 0.004)
        if step % job.habits.log_every == 0:
            yield from scene.at(rank, "log", step)
            if job.name == "fsdp":
                yield from reduce_scalar(job.places["loss"], job.places["loss"], "dp")
            else:
                yield Synchronise(device_wait(job.places["loss"]))
            if rank == 0:
                yield from log(job)
        yield from end_step(job, scene, rank, step)
    yield from scene.end(rank)


def forward(job: Job, scene: Scenario, rank: Rank, step: int, tag: str = "", model: str = "") -> Program:
    """A forward pass; `model` is where it is seen if not in training."""
    rng = job.rng(rank, f"forward {tag} {step}")
    layer = model or job.places["layer"]
    gathers = working(model or job.places["gather"])
    for chunk in range(job.pace.chunks):
        payload = scene.payload(rank, step, f"{tag}gather {chunk}", gathered(job))
        if payload is not None:
            work = yield Collective("dp", payload, gathers, job.pace.collective_s, 0.0004, apart=True)
            yield Join(work)
            if job.habits.syncs_gather:
                yield Synchronise(device_wait(job.places["gather_wait"]), work)
        inner = job.places.inner
        at = working(f"{layer} {inner[chunk % len(inner)]}")
        yield Kernel(job.pace.kernel_s * rng.uniform(0.95, 1.05) * scene.effort(rank, step), at, job.pace.host_s)


def backward(job: Job, scene: Scenario, rank: Rank, step: int, tag: str = "") -> Program:
    """A backward pass, in the autograd thread."""
    rng, at = job.rng(rank, f"backward {tag} {step}"), backward_of(job)
    size = job.pace.bucket
    scattered = Payload(_SCATTER, ((size * job.layout.size("dp"),),), ((size,),))
    last = None
    for _ in range(job.pace.chunks):
        yield Join((yield Collective("dp", gathered(job), at, job.pace.collective_s, 0.0004, apart=True)))
        seconds = 2 * job.pace.kernel_s * rng.uniform(0.95, 1.05) * scene.effort(rank, step)
        yield Kernel(seconds, at, job.pace.host_s)
        last = yield Collective("dp", scattered, at, job.pace.collective_s, 0.0004, apart=True)
    yield Join(last)


def gathered(job: Job) -> Payload:
    """The gather of one layer's parameters."""
    size = job.pace.bucket
    return Payload(_GATHER, ((size,),), ((size * job.layout.size("dp"),),), "BFloat16")
