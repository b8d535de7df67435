"""One incident: a job, what happens to it, and when somebody looks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.engine import Engine
from worlds.timed.engine.host import Host
from worlds.timed.engine.position import Position
from worlds.timed.jobs import draw
from worlds.timed.jobs.job import Job
from worlds.timed.layout import Layout
from worlds.timed.programs.program import programs
from worlds.timed.scenarios.kinds import Kind
from worlds.timed.scenarios.scenario import Scenario

#: A job that will stand does so by then; a slow one has settled long before.
_HORIZON_S, _SLOW_S = 6000.0, 75.0
#: In a slow job looks follow each other like this, and there are so many.
_SLOW_GAP_S, _SLOW_LOOKS = 5.0, 10
#: All ranks are looked at within so many seconds.
_LOOK_S = 2.5


@dataclass(frozen=True)
class Incident:
    """A job after something happened to it. `looks` are the times at which each rank is looked at, `gap_s` apart."""

    kind: Kind
    job: Job
    scene: Scenario
    engine: Engine
    looks: Sequence[Mapping[Rank, float]]
    gap_s: float
    #: When the last host got anywhere.
    settled: float

    @property
    def layout(self) -> Layout:
        return self.job.layout

    @property
    def looked(self) -> float:
        """When the first look began."""
        return min(self.looks[0].values())

    @property
    def ended(self) -> float:
        """When the last look ended."""
        return max(self.looks[-1].values())

    @property
    def stalled_s(self) -> float:
        """For how long the job as a whole had finished no step when it was first looked at."""
        return self.looked - self.engine.last_step(self.looked)

    def host(self, rank: Rank) -> Host:
        return self.engine.hosts[rank]

    def seen(self, rank: Rank, look: int = -1) -> Position | None:
        """Where a look finds a rank."""
        return self.host(rank).seen(self.looks[look][rank])

    def frozen(self, rank: Rank) -> bool:
        """Whether a rank's machine answers nobody."""
        return self.layout.machine(rank) in self.engine.devices.frozen


def incident(kind: Kind, name: str, seed: str) -> Incident:
    """Simulates one."""
    rng, slow = Random(seed), kind.family == "slow"
    job = draw.job(name, seed, rng, slow=slow, experts=kind.name == "uneven-experts", stages=kind.name == "slow-stage")
    scene = kind.make(kind.name, job, rng)
    engine = Engine(job.layout, Random(f"{seed} engine"))
    late = 1.5 if scene.starts_up else 0.05
    for rank, program in programs(job, scene).items():
        engine.start(rank, program, rng.uniform(0, late), job.pace.queue)
    scene.install(engine)
    engine.run(_SLOW_S if slow else _HORIZON_S)
    settled = max((host.times[-1] for host in engine.hosts.values() if host.times), default=0.0)
    gap = _SLOW_GAP_S if slow else round(rng.uniform(2, 5), 1)
    looks = _SLOW_LOOKS if slow else rng.choice((1, 1, 1, 1, 2, 2, 3, 3, 3, 5))
    if job.layout.world_size >= 128:
        looks = min(looks, 3)
    if slow:
        begins = rng.uniform(12, 18)
    elif kind.family == "healthy":
        begins, looks = _in_phase(scene, engine, rng, gap, looks, settled)
    else:
        begins = _behind(job, scene, engine, rng, settled)
    return Incident(kind, job, scene, engine, _times(job.layout, rng, begins, gap, looks), gap, settled)


def _in_phase(
    scene: Scenario, engine: Engine, rng: Random, gap: float, looks: int, settled: float
) -> tuple[float, int]:
    """A time within the phase, and as many looks as fit into it; without a phase, within the steps."""
    begun = [time for time, _, name in engine.marks if name == scene.marks[0]]
    ended = [time for time, _, name in engine.marks if name == scene.marks[1]]
    steps = sorted(min(times.values()) for times in engine.step_times.values())
    if begun and ended and ended[-1] > begun[0] + 0.5:
        first, last = begun[0] + 0.3, min(ended[-1], settled)
    else:
        first, last = (steps[0] if len(steps) > 1 else 0.1), (engine.last_step(settled) or settled) * 0.95
    while looks > 1 and gap * (looks - 1) + _LOOK_S > last - first:
        looks -= 1
    lasts = gap * (looks - 1) + _LOOK_S
    return first + rng.random() * max(0.1, last - first - lasts), looks


def _behind(job: Job, scene: Scenario, engine: Engine, rng: Random, settled: float) -> float:
    """A time at which the fault has lasted for a while, in some jobs for longer than the watchdog's time-out."""
    began = scene.began()
    lasted = rng.uniform(90, min(1500, job.timeout_s * 0.95)) if rng.random() < 0.85 else rng.uniform(25, 70)
    if rng.random() < 0.2 and not job.gloo and not scene.starts_up and job.name != "jax":
        lasted = rng.uniform(job.timeout_s + 15, job.timeout_s + 120)
    return max(settled + 5, (engine.last_step(settled) if began is None else began) + lasted)


def _times(layout: Layout, rng: Random, begins: float, gap: float, looks: int) -> list[Mapping[Rank, float]]:
    late = {machine: rng.uniform(0, 1.2) for machine in layout.machines}
    each = rng.uniform(0.05, 0.35)
    return [
        {
            rank: begins
            + look * gap
            + late[layout.machine(rank)]
            + each * (rank % layout.per_machine) * rng.uniform(0.8, 1.2)
            for rank in layout.ranks
        }
        for look in range(looks)
    ]
