"""Tensor, pipeline and expert parallelism with data parallelism: one forward, one backward, as Megatron-Core schedules them."""

from functools import partial

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position, device_wait, working
from worlds.timed.engine.steps import Collective, Exchange, Kernel, Payload, Program, Run, Synchronise
from worlds.timed.jobs.job import Job
from worlds.timed.programs.phases import end_step, load_batch, reduce_scalar, start_up
from worlds.timed.programs.replicated import steps
from worlds.timed.scenarios.scenario import Scenario


def program(job: Job, scene: Scenario, rank: Rank) -> Program:
    """All of a rank's steps."""
    yield from start_up(job, scene, rank)
    for step in steps(job, scene, rank):
        yield from scene.before(rank, step)
        if job.layout.sizes["pp"] > 1:
            yield from _schedule(job, scene, rank, step)
        else:
            for batch in range(job.pace.microbatches):
                yield from _forward(job, scene, rank, step, batch)
                yield from _backward(job, scene, rank, step, batch)
        yield from _finish(job, scene, rank, step)
        yield from end_step(job, scene, rank, step)
    yield from scene.end(rank)


def _schedule(job: Job, scene: Scenario, rank: Rank, step: int) -> Program:
    stage, stages, batches = job.layout.place(rank)[2], job.layout.sizes["pp"], job.pace.microbatches
    later, earlier = job.layout.stage(rank, 1), job.layout.stage(rank, -1)
    send = partial(_exchange, job)
    ahead = min(stages - 1 - stage, batches)
    for batch in range(ahead):
        yield from send("receive_forward", receives=earlier)
        yield from _forward(job, scene, rank, step, batch)
        yield from send("send_forward", sends=later)
    if batches > ahead:
        yield from send("receive_forward", receives=earlier)
    for batch in range(batches - ahead):
        yield from _forward(job, scene, rank, step, batch + ahead)
        yield from send("send_forward_receive_backward", sends=later, receives=later)
        yield from _backward(job, scene, rank, step, batch)
        if batch == batches - ahead - 1:
            yield from send("send_backward", sends=earlier)
        else:
            yield from send("send_backward_receive_forward", sends=earlier, receives=earlier)
    for batch in range(batches - ahead, batches):
        yield from send("receive_backward", receives=later)
        yield from _backward(job, scene, rank, step, batch)
        yield from send("send_backward", sends=earlier)


def _exchange(job: Job, name: str, sends: Rank | None = None, receives: Rank | None = None) -> Program:
    if sends is None and receives is None:
        return
    frames = f"{job.places['step']} {job.places.schedule(name)}"
    shape = (job.pace.sequence, 1, job.pace.hidden)
    payload = Payload("nccl:coalesced", (shape,), (shape,), "BFloat16")
    waits = f"{frames} m.commsync cu.sync" if job.habits.syncs_messages else f"{frames} m.comm"
    work = yield Exchange(
        "pp",
        payload,
        working(waits),
        0.003,
        () if sends is None else (sends,),
        () if receives is None else (receives,),
    )
    if job.habits.syncs_messages:
        yield Synchronise(device_wait(waits, "device_sync"), work)
    elif job.habits.blocking:
        yield Synchronise(device_wait(waits, "work_wait"), work)


def _in_step(job: Job, schedule: str, place: str = "") -> str:
    return f"{job.places['step']} {job.places.schedule(schedule)} {place}"


def _forward(job: Job, scene: Scenario, rank: Rank, step: int, batch: int) -> Program:
    rng, pace = job.rng(rank, f"forward {step} {batch}"), job.pace
    if job.layout.reads_data(rank) and batch == 0:
        yield from load_batch(job, scene, rank, step)
    elif batch == 0:
        yield from scene.at(rank, "data", step)
    if job.layout.has("tp") and job.layout.place(rank)[2] in (0, job.layout.sizes["pp"] - 1):
        frames = job.places["data_broadcast"]
        tokens = Payload("nccl:broadcast", ((pace.sequence,),), ((pace.sequence,),), "Long")
        work = yield Collective("tp", tokens, working(frames), 0.0005, 0.0004)
        if job.habits.syncs_broadcast:
            yield Synchronise(device_wait(frames, "work_wait"), work)
    if batch == 0:
        yield from scene.at(rank, "forward", step)
    layer = _in_step(job, "forward", job.places["layer"])
    for chunk in range(pace.chunks):
        at = working(f"{layer} {job.places['attention' if chunk % 2 else 'mlp']}")
        yield Kernel(pace.kernel_s * rng.uniform(0.97, 1.03) * scene.effort(rank, step), at, pace.host_s)
        if job.layout.has("ep"):
            if job.habits.syncs_experts:
                yield Synchronise(device_wait(f"{layer} {job.places['experts_sync']}"))
            yield _to_experts(job, working(f"{layer} {job.places['experts']}"))
        if job.layout.has("tp"):
            payload = scene.payload(rank, step, f"tensor {batch} {chunk}", _activations(job))
            if payload is not None:
                yield Collective("tp", payload, at, pace.collective_s * 0.3, 0.0003)


def _backward(job: Job, scene: Scenario, rank: Rank, step: int, batch: int) -> Program:
    rng, pace = job.rng(rank, f"backward {step} {batch}"), job.pace
    at = Position(_in_step(job, "backward", job.places["backward"]), "backward", "S", cpu=0.5)
    for _ in range(pace.chunks):
        yield Kernel(2 * pace.kernel_s * rng.uniform(0.97, 1.03) * scene.effort(rank, step), at, pace.host_s)
        if job.layout.has("ep"):
            yield _to_experts(job, at)
        if job.layout.has("tp"):
            yield Collective("tp", _activations(job), at, pace.collective_s * 0.3, 0.0003)
    if batch == 0:
        yield from scene.at(rank, "backward", step)


def _activations(job: Job) -> Payload:
    shape = (job.pace.sequence, 1, job.pace.hidden)
    return Payload("nccl:all_reduce", (shape,), (shape,), "BFloat16")


def _to_experts(job: Job, at: Position) -> Collective:
    shape = (job.pace.sequence, job.pace.hidden)
    payload = Payload("nccl:all_to_all", (shape,), (shape,), "BFloat16")
    return Collective("ep", payload, at, job.pace.collective_s, 0.0004)


def _finish(job: Job, scene: Scenario, rank: Rank, step: int) -> Program:
    places, pace, data = job.places, job.pace, job.layout.size("dp")
    last, shards = job.layout.sizes["pp"] - 1, job.habits.sharded_optimizer
    stage = job.layout.place(rank)[2]
    finish = _in_step(job, "finish")
    if data > 1:
        name = "nccl:_reduce_scatter_base" if shards else "nccl:all_reduce"
        gradients = Payload(name, ((pace.bucket,),), ((pace.bucket // data if shards else pace.bucket,),))
        payload = scene.payload(rank, step, "gradients", gradients)
        if payload is not None:
            reduces = places["reduce_scatter" if shards else "all_reduce"]
            at = working(f"{finish} {places['gradients']} {reduces}")
            yield Collective("dp", payload, at, pace.collective_s * 2, 0.001)
    if last > 0 and stage in (0, last) and job.habits.tied_embedding:
        size = pace.hidden * 8
        tied = Payload("nccl:all_reduce", ((size,),), ((size,),))
        yield Collective("emb", tied, working(f"{finish} {places['embedding']}"), pace.collective_s)
    yield from scene.at(rank, "optimizer", step)
    yield from reduce_scalar(places["norm"], places["norm_sync"], "mp" if job.layout.has("mp") else "world")
    yield Kernel(pace.kernel_s, working(places["optimizer"]), 0.004)
    if shards and data > 1:
        parameters = Payload("nccl:_all_gather_base", ((pace.bucket // data,),), ((pace.bucket,),), "BFloat16")
        yield Collective("dp", parameters, working(places["parameters"]), pace.collective_s)
    yield from scene.at(rank, "log", step)
    if stage == last:
        yield Synchronise(device_wait(places["loss"]))
    if rank == job.layout.world_size - 1:
        yield Run(0.008, working(f"{places['log']} {places['tensorboard']}"))
    if job.habits.timers and step % 2 == 0:
        timers = Payload("nccl:_all_gather_base", ((12,),), ((12 * job.layout.world_size,),))
        work = yield Collective("world", timers, working(f"{places['timers']} {places['all_gather']}"), 0.0005)
        yield Synchronise(device_wait(places["timers"]), work)
