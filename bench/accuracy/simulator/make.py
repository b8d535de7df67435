"""Makes incidents: draws a job, plants a fault, runs it to quiescence and looks at it; and lists the default set."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

from accuracy.simulator import ras, recorder, run, shapes
from accuracy.simulator.engine import Engine
from accuracy.simulator.faults import living, phases
from accuracy.simulator.faults.matrix import BESIDE, MATRIX, PHASES
from accuracy.simulator.faults.scene import Fault, Scene
from accuracy.simulator.incident import Evidence, Incident, Truth
from accuracy.simulator.job import Job
from accuracy.simulator.look import Habits, traces
from accuracy.simulator.wording import Wording
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job as Named
from hangdog_models.snapshot import Round, Snapshot
from hangdog_models.topology import build

#: Draws of a job until the fault fits it: a link fault needs two machines, a checkpoint fault one that saves.
_ATTEMPTS = 200
#: Above this many ranks native stacks are left out: py-spy stops a process for the time it unwinds, and nobody does that to all.
NATIVE_UP_TO = 1024
LIVING = ("healthy", "slow")
#: Training steps simulated of a job that lives: recorders hold many of them, and what repeats is told from what happens once.
LIVED_STEPS, LIVED_STEPS_LARGE = 6, 4
#: Where the seeds of the held-out set begin: diagnosis is tuned on the default set, and measured once on this one.
HELD_OUT = 2_000_000


def incident(seed: int, ranks: int | None = None, fault: str | None = None) -> Incident:
    """The incident of these arguments: equal ones give equal incidents. `ranks`: a power of two, 16 or more."""
    rng = Random(f"{seed} {ranks} {fault}")
    size = ranks or rng.choice((64, 128, 256, 512))
    row = (MATRIX | BESIDE)[fault or rng.choice(list(MATRIX))]
    with _uncollected():
        return _seen(_shown(rng, size, row), row, rng, seed)


def scene_of(seed: int, ranks: int, fault: str) -> Scene:
    """The run behind the incident of these arguments, at rest: for tests, and to look into a single case."""
    with _uncollected():
        return _shown(Random(f"{seed} {ranks} {fault}"), ranks, (MATRIX | BESIDE)[fault])


@contextmanager
def _uncollected() -> Iterator[None]:
    """A run makes millions of objects and no cycles: the collector would visit all of them again and again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _shown(rng: Random, ranks: int, fault: Fault) -> Scene:
    for _ in range(_ATTEMPTS):
        scene = _scene(rng, ranks, fault)
        if scene is not None:
            return scene
    raise LookupError(f"no job of {ranks} ranks shows {fault.name!r}")


def _scene(rng: Random, ranks: int, fault: Fault) -> Scene | None:
    """Draws a job, plants the fault and runs; None where the fault does not fit this job, or does not stop it."""
    job = shapes.draw(rng, ranks, _plan(rng, ranks, fault), gloo=fault.gloo)
    processes, marks = run.processes(job)
    span = _span(job) if fault.family in ("host", "device", "link") else 0.0
    scene = Scene(rng, job, processes, marks, span, salt=rng.randrange(1 << 30))
    if not fault.plant(scene):
        return None
    engine = Engine(processes, gloo=job.gloo, blocking=job.blocking, cuts=scene.cuts)
    engine.run()
    scene.cuts = None  # it holds the scene, which would never be freed
    ended = sum(process.why == "end" for process in processes)
    if fault.family in LIVING:
        if ended < len(processes):
            return None
        if scene.duties:
            phases.look(scene)
        else:
            scene.end = min(process.times[-1] for process in processes)
            scene.looks = living.instants(rng, scene.end, slow=fault.family == "slow")
        return scene
    stalled = all(processes[rank].why == "stall" for rank in (*scene.stalls, *scene.duties))
    return scene if not ended and stalled else None


def _plan(rng: Random, ranks: int, fault: Fault) -> tuple[str, ...]:
    if fault.family == "healthy" and fault.steps[:1] == ("start",):
        return ("start", "train")
    if fault.family in LIVING and not fault.steps:
        return ("train",) * (LIVED_STEPS if ranks <= NATIVE_UP_TO else LIVED_STEPS_LARGE)
    if fault.steps or ranks >= shapes.LARGE:
        return ("train", *fault.steps, "train")
    return rng.choices(
        (("train", "train", "train"), ("train", "eval", "train"), ("train", "save", "train")), (6, 2, 1)
    )[0]


def _span(job: Job) -> float:
    """Seconds until the last step begins, measured on the job with few replicas: all replicas take equally long."""
    sizes = dict(job.layout.sizes)
    sizes["dp"] = min(sizes.get("dp", 1), max(2, sizes.get("ep", 1)))
    layout = replace(job.layout, sizes=sizes, world_size=None, switches={})
    twin = replace(job, layout=layout, topology=build(layout, None)[0])
    processes, marks = run.processes(twin)
    Engine(processes, gloo=job.gloo, blocking=job.blocking).run()
    return max(process.times[begins[-1] - 1] for process, begins in zip(processes, marks, strict=True))


def _seen(scene: Scene, fault: Fault, rng: Random, seed: int) -> Incident:
    job, alive = scene.job, fault.family in LIVING
    unknown = rng.random() < 0.12
    habits = Habits(
        spins=rng.random() < 0.85,
        proc=rng.random() < 0.85,
        missing=rng.choice((0.0, 0.0, 0.005, 0.01, 0.03)),
        wording=Wording(rng, jitter=rng.choice((0.0, 0.0, 0.05, 0.3)), unknown=unknown),
    )
    looks = len(scene.looks) if fault.family == "slow" or rng.random() < 0.85 else 1
    if alive or scene.duties:
        scene.looks = scene.looks[-looks:]
    seeds = [rng.randrange(1 << 30) for _ in range(looks)]
    steps_before = 0 if "start" in job.plan or fault.name == "store" or scene.fresh else rng.randint(20, 20_000)

    def rounds(*, native: bool) -> tuple[Round, ...]:
        return tuple(Round(at, traces(scene, habits, Random(one), at, native=native)) for at, one in enumerate(seeds))

    plain = Snapshot(
        Named(f"run-{seed}", "" if unknown else _hint(job.framework), scene.stated),
        rounds(native=False),
        scene.gap if looks > 1 else None,
    )
    snapshots = {Evidence.STACKS: plain}
    if fault.name != "store":
        records = recorder.counters(scene, Random(seeds[0]), steps_before, habits.missing)
        snapshots[Evidence.RECORDER] = replace(plain, counters=records)
        if not job.gloo:
            snapshots[Evidence.RAS] = replace(plain, ras=(ras.report(scene, steps_before),))
    if len(scene.processes) <= NATIVE_UP_TO:
        snapshots[Evidence.NATIVE] = replace(plain, rounds=rounds(native=True))
    sound = fault.family == "own work"
    truth = Truth(
        fault.name, fault.family, fault.kinds, tuple(Rank(rank) for rank in scene.blamed), () if sound else scene.guilty,
        fault.faults if scene.guilty or fault.family in ("software", "dependency") else 0, scene.guilty if sound else (),
        tuple(Rank(rank) for rank in sorted(scene.duties)) if fault.family == "healthy" else (),
    )  # fmt: skip
    shape = "-".join(f"{dim}{size}" for dim, size in job.layout.sizes.items())
    name = f"{fault.name.replace(' ', '-')}-{job.topology.world_size}-{job.framework}-{shape}-{seed}"
    framework = "unknown" if unknown else job.framework
    return Incident(name, seed, framework, job.topology, job.layout, truth, snapshots)


def _hint(framework: str) -> str:
    """What a launcher would call it; torch's own pipelines have no word of theirs."""
    return {"megatron-interleaved": "megatron", "pipelining": "other"}.get(framework, framework)


#: How many incidents of each fault the default set holds at each size: most where jobs are small enough to be cheap.
_SIZES = {64: 17, 128: 13, 256: 12, 512: 8, 1024: 6}
#: Faults shown at the two largest sizes: one of each family and its most telling variants.
_LARGE_FAULTS = (
    "dataloader", "garbage collection", "storage", "native deadlock", "stopped process", "dead process", "frozen machine",
    "device hang", "link", "nic", "switch", "size mismatch", "skipped collective", "uneven data", "data service",
    "healthy training", "slow machine", "two hosts",
)  # fmt: skip
_LARGEST_FAULTS = (
    "dataloader", "endless compute", "frozen machine", "device hang", "link", "size mismatch", "uneven data",
    "storage storm", "healthy training", "slow machine", "two hosts", "stopped process",
)  # fmt: skip


#: How many of each phase it holds beside them.
_PHASE_SIZES = {64: 6, 128: 4, 256: 3, 512: 2, 1024: 1}


def default_set(first: int = 0, beside: str = "") -> Iterator[tuple[int, int, str]]:
    """(seed, ranks, fault) of every incident of the default set, or of its like with seeds from `first` on.

    `beside`: a fault beside the matrix, of which there are then as many as of one in it, and no others.
    """
    seed = first
    for ranks, count in _SIZES.items():
        for fault in (beside,) if beside else (name for name in MATRIX if name not in PHASES):
            for _ in range(count):
                yield seed, ranks, fault
                seed += 1
    if beside:
        return
    more = [(4096, _LARGE_FAULTS, 2), (16384, _LARGEST_FAULTS, 1)]
    for ranks, faults, count in (*more, *((ranks, tuple(PHASES), count) for ranks, count in _PHASE_SIZES.items())):
        for fault in faults:
            for _ in range(count):
                yield seed, ranks, fault
                seed += 1
