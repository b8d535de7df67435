"""What the programs of all frameworks share: how they start, load data, meet in a barrier, and end a step."""

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position, asleep, device_wait, working
from worlds.timed.engine.steps import Collective, HostCollective, Payload, Program, Run, StepDone, Synchronise
from worlds.timed.jobs.job import Job
from worlds.timed.scenarios.scenario import Scenario

#: One number, as norms and losses are reduced.
SCALAR = Payload("nccl:all_reduce")
#: Modules that take long to import.
_IMPORTS = (
    "",
    "<module>@site/torch/_dynamo/utils.py@59 imp.load",
    "<module>@site/pandas/core/api.py@28 imp.load",
    "<module>@site/scipy/stats/__init__.py@606 imp.load",
)


def start_up(job: Job, scene: Scenario, rank: Rank) -> Program:
    """From the start of the process to its first step; nothing of it where the job has long been running."""
    if not scene.starts_up:
        return
    rng = job.rng(rank, "start")
    imports = f"{job.places['setup']} <module>@site/transformers/__init__.py@26 imp.load"
    slow = 1 if rng.random() < 0.85 else 3
    yield Run(rng.uniform(6, 30) * slow, working(imports, *_IMPORTS, cpu=0.8))
    yield from scene.at(rank, "init", scene.step)
    if job.name == "jax":
        yield HostCollective(
            "world", Payload("jax:connect"), asleep(job.places["init"], "jax_connect", 0.01, waits=True), 0.2
        )
    elif job.name != "ray":
        meets = asleep(f"{job.places['init']} {job.places['store_rendezvous']}", "store", 0.01, waits=True)
        yield HostCollective("world", Payload("store:rendezvous"), meets, 0.05)
        yield Run(rng.uniform(0.5, 2), working(f"{job.places['init']} c.wrap c.init c.npgh"))
    yield from scene.set_up(rank)


def load_batch(job: Job, scene: Scenario, rank: Rank, step: int) -> Program:
    """The rank takes its next batch, for which it waits at times."""
    rng = job.rng(rank, f"batch {step}")
    yield from scene.at(rank, "data", step)
    waits = asleep(job.places["data"], "lock" if job.pinned else "poll", 0.02)
    if step == 0 and not scene.starts_up:
        yield Run(rng.uniform(0.2, 1.5), waits)
    elif rng.random() < 0.12:
        yield Run(rng.uniform(0.01, 0.15), waits)
    else:
        yield Run(0.002, working(job.places.point("data")))


def barrier(job: Job, frames: str, dim: str = "world") -> Program:
    """All ranks of a group meet."""
    if job.gloo:
        yield HostCollective(dim, Payload("gloo:barrier", ((),), ((),)), gloo_wait(frames), 0.01)
        return
    waits = device_wait(frames, "xla_wait" if job.name == "jax" else "work_wait")
    work = yield Collective(dim, SCALAR, waits, 0.001, 0.002)
    yield Synchronise(waits, work)


def reduce_scalar(frames: str, waits: str, dim: str = "world") -> Program:
    """One number is reduced over a group, and each host waits for it."""
    work = yield Collective(dim, SCALAR, working(frames), 0.0005)
    yield Synchronise(device_wait(waits, "work_wait"), work)


def gloo_wait(frames: str) -> Position:
    """A host within a collective of gloo."""
    return asleep(frames, "gloo", 0.02, waits=True)


def log(job: Job) -> Program:
    """A rank writes its metrics."""
    yield Run(0.01, working(f"{job.places['log']} {job.places['tensorboard']}"))


def end_step(job: Job, scene: Scenario, rank: Rank, step: int) -> Program:
    """A step is done, and what is due behind it happens."""
    yield StepDone(step)
    yield from scene.at(rank, "after", step)
