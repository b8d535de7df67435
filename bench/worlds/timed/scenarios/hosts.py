"""Faults of one machine: its processes, its storage, its devices, its network."""

from collections.abc import Callable, Sequence
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.engine import Engine
from worlds.timed.engine.position import Position
from worlds.timed.engine.steps import Program
from worlds.timed.jobs.job import Job
from worlds.timed.scenarios.scenario import Scenario
from worlds.timed.scenarios.stuck import Stuck, in_loader, in_storage, point_of, reader, storage_call

#: Calls of libraries in which a process waits for a lock of its own for ever.
_LIBRARIES = (
    ("pad_collate@code/data/collate.py@41 fast_pad@site/acme_native/pad.py@18", "library_lock"),
    ("augment@code/data/aug.py@77 decode@site/turbo_jpeg/codec.py@203", "library_lock"),
    ("TokenBatcher.pack@code/data/pack.py@95", "library_lock"),
    ("fused_rope@site/acme_kernels/rope.py@33 call@site/acme_kernels/_ffi.py@12", "library_lock"),
    ("record_stats@code/utils/prof.py@52 nvmlDeviceGetPowerUsage@site/pynvml.py@3074", "driver_call"),
)


class Injected(Scenario):
    """Something happens from outside in the middle of a step: a signal, a dead machine, a hung device, a broken network."""

    def __init__(
        self, kind: str, job: Job, rng: Random, ranks: Sequence[Rank], strike: Callable[[Engine, Rank], None]
    ) -> None:
        super().__init__(kind, job, rng)
        self.ranks = ranks
        self._strike = strike

    def install(self, engine: Engine) -> None:
        super().install(engine)
        engine.on_step.append(self._when_due)

    def _when_due(self, rank: Rank, step: int) -> None:
        if rank != self.ranks[0] or step != self.step - 1:
            return
        a_step = self.engine.now / self.step
        self.engine.clock.at(self.engine.now + self.rng.uniform(0.02, 0.95) * a_step, self._strikes)

    def _strikes(self) -> None:
        self.begin()
        self._strike(self.engine, self.ranks[0])


class TwoFaults(Scenario):
    """Two hosts of different machines, each with a fault of its own."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        one = rng.choice(job.layout.ranks)
        others = [rank for rank in job.layout.ranks if job.layout.machine(rank) != job.layout.machine(one)]
        self.ranks = (one, rng.choice(others))
        may = ["stopped", "library-lock"] if job.gloo else ["stopped", "library-lock", "dead", "hung-device"]
        if all(job.has_loader(rank) for rank in self.ranks):
            may.append("stuck-loader")
        self.parts = [single(name, job, rng, rank) for name, rank in zip(rng.sample(may, 2), self.ranks, strict=True)]
        for part in self.parts:
            part.step = self.step

    def began(self) -> float | None:
        return min((time for part in self.parts if (time := part.began()) is not None), default=None)

    def install(self, engine: Engine) -> None:
        super().install(engine)
        for part in self.parts:
            part.install(engine)

    def at(self, rank: Rank, point: str, step: int) -> Program:
        for part in self.parts:
            yield from part.at(rank, point, step)


def single(kind: str, job: Job, rng: Random, rank: Rank | None = None) -> Scenario:
    """A fault of one process or one device."""
    one = rng.choice(job.layout.ranks) if rank is None else rank
    if kind in _STRIKES:
        return Injected(kind, job, rng, [one], _STRIKES[kind])
    if kind == "library-lock":
        point = point_of(job, rng)
        frames, native = rng.choice(_LIBRARIES)
        at = Position(f"{job.places.point(point)} {frames}", native, "S", cpu=0.0, gil=rng.random() < 0.6)
        return Stuck(kind, job, rng, [one], point, lambda rank: at)
    if kind == "stuck-loader":
        return Stuck(kind, job, rng, [reader(job, rng) if rank is None else rank], "data", in_loader(job))
    journal = f"{job.places['train']} append_journal@code/utils/journal.py@33"
    frames = job.places["checkpoint_write"] if job.name in ("megatron", "fsdp", "jax") or one == 0 else journal
    return Stuck(kind, job, rng, [one], "after", in_storage(frames, storage_call(rng)))


def whole(kind: str, job: Job, rng: Random) -> Scenario:
    """A fault of a machine with all of its ranks."""
    ranks = job.layout.ranks_on(rng.choice(job.layout.machines))
    if kind in _STRIKES:
        return Injected(kind, job, rng, ranks, _STRIKES[kind])
    reads = job.loads_data and (job.name in ("transformers", "lightning") or rng.random() < 0.6)
    if reads:
        return Stuck(kind, job, rng, ranks, "data", in_loader(job), 0.3)
    return Stuck(kind, job, rng, ranks, "after", in_storage(job.places["checkpoint_write"], storage_call(rng)), 3.0)


def _hang(engine: Engine, rank: Rank) -> None:
    engine.hosts[rank].device_hangs = True


def _cut(engine: Engine, rank: Rank) -> None:
    engine.devices.broken.add(engine.layout.machine(rank))


_STRIKES: dict[str, Callable[[Engine, Rank], None]] = {
    "stopped": lambda engine, rank: engine.stop(rank),
    "dead": lambda engine, rank: engine.kill(rank),
    "out-of-memory": lambda engine, rank: engine.kill(rank),
    "frozen-machine": lambda engine, rank: engine.freeze(engine.layout.machine(rank)),
    "hung-device": _hang,
    "dead-nic": _cut,
}
