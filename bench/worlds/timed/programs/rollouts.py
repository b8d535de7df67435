"""Reinforcement learning on Ray: actors that hold the trainer and an inference engine, and a driver that hands out phases."""

from collections import defaultdict

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import asleep, device_wait, working
from worlds.timed.engine.steps import Await, Collective, Forever, Kernel, Mark, Payload, Program, Run, Step, Synchronise
from worlds.timed.jobs.job import Job
from worlds.timed.programs import sharded
from worlds.timed.programs.phases import SCALAR, end_step, start_up
from worlds.timed.scenarios.scenario import Scenario


class Driver:
    """Starts the next phase when all actors ended the last one."""

    def __init__(self, job: Job, scene: Scenario) -> None:
        self.job = job
        self._scene = scene
        self._done: defaultdict[str, set[Rank]] = defaultdict(set)
        self.idle = asleep(job.places["idle"], "ray_idle", 0.02, waits=True)

    def meet(self, rank: Rank, phase: str) -> Step:
        """An actor has ended a phase, and waits for the driver."""
        self._done[phase].add(rank)
        if len(self._done[phase]) == self.job.layout.world_size:
            engine = self._scene.engine
            engine.clock.at(engine.now + self._scene.driver_s(phase), lambda: engine.raise_flag(phase))
        return Await(phase, self.idle)


def program(job: Job, driver: Driver, scene: Scenario, rank: Rank) -> Program:
    """Rollouts, log probabilities, updates."""
    yield from start_up(job, scene, rank)
    for step in range(job.steps):
        if step:
            yield Await(f"step {step}", driver.idle)
        yield from _generate(job, scene, rank, step)
        if step == scene.step and rank == 0:
            yield Mark("generated")
        yield driver.meet(rank, f"generated {step}")
        yield from scene.at(rank, "forward", step)
        yield from sharded.forward(job, scene, rank, step, "probability ", job.places["log_probability"])
        yield Synchronise(device_wait(job.places["log_probability_sync"]))
        if step == scene.step and rank == 0:
            yield Mark("scored")
        yield driver.meet(rank, f"scored {step}")
        if step == scene.step and rank == 0:
            yield Mark("rewarded")
        for batch in range(job.pace.microbatches):
            if batch == 0:
                yield from scene.at(rank, "backward", step)
            yield from sharded.forward(job, scene, rank, step, f"update {batch} ")
            yield from sharded.backward(job, scene, rank, step, f"update {batch}")
            yield Collective("dp", SCALAR, working(job.places["norm"]), 0.0005)
            if batch == 0:
                yield from scene.at(rank, "optimizer", step)
            yield Kernel(job.pace.kernel_s * 0.5, working(job.places["optimizer"]), 0.004)
            yield Synchronise(device_wait(job.places["loss"]))
        yield from scene.at(rank, "log", step)
        yield from end_step(job, scene, rank, step)
        driver.meet(rank, f"step {step + 1}")
    yield Forever(driver.idle)


def _generate(job: Job, scene: Scenario, rank: Rank, step: int) -> Program:
    """Weights go into the engine; then tokens come, for a time that differs much from engine to engine."""
    size = job.pace.bucket
    weights = Payload("nccl:_all_gather_base", ((size,),), ((size * job.layout.size("dp"),),), "BFloat16")
    work = yield Collective("dp", weights, working(job.places["weights"]), job.pace.collective_s * 4, 0.001)
    yield Synchronise(device_wait(job.places["weights"]), work)
    yield from scene.at(rank, "generation", step)
    if step == scene.step and rank == 0:
        yield Mark("generates")
    engine = job.layout.sizes.get("tp", 1)
    rng, lasts, past = job.rng(Rank(rank // engine), f"tokens {step}"), scene.generation_s(rank, step), 0.0
    at = working(job.places["generation"])
    while past < lasts:
        seconds = rng.uniform(0.2, 0.6) if lasts < 60 else rng.uniform(0.8, 2.0)
        work = None
        for _ in range(2):
            work = yield Kernel(seconds / 2, at, 0.003)
        if engine > 1:
            hidden = Payload("nccl:all_reduce", ((job.pace.hidden,),), ((job.pace.hidden,),), "BFloat16")
            work = yield Collective("tp", hidden, at, 0.001)
        yield Synchronise(device_wait(job.places["generation_sync"]), work)
        yield Run(0.02, working(job.places["generation_output"]))
        past += seconds
