"""Jobs that get on, but slowly."""

from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.engine import Engine
from worlds.timed.engine.position import asleep
from worlds.timed.engine.steps import Program, Run
from worlds.timed.jobs.job import Job
from worlds.timed.scenarios.scenario import Scenario


class Slow(Scenario):
    """One device, one machine, or the network of one machine is slow."""

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        super().__init__(kind, job, rng)
        one = rng.choice(job.layout.ranks)
        self.ranks = [one] if kind == "slow-device" else job.layout.ranks_on(job.layout.machine(one))

    def install(self, engine: Engine) -> None:
        super().install(engine)
        if self.kind == "slow-link":
            engine.devices.slow[self.machines[0]] = self.rng.uniform(8, 40)
            return
        slower = self.rng.uniform(1.5, 3.0)
        for rank in self.ranks:
            host = engine.hosts[rank]
            host.device_slower = slower
            if self.kind == "slow-machine" or self.job.gloo:
                host.host_slower = slower


class SlowStage(Scenario):
    """The last stage of a pipeline has more to do than the others: nobody is to blame."""

    def effort(self, rank: Rank, step: int) -> float:
        last = self.job.layout.place(rank)[2] == self.job.layout.sizes["pp"] - 1
        return 2.2 if last else 1.0


class SlowData(Scenario):
    """Loading a batch takes all ranks longer than computing it: nobody is to blame."""

    def at(self, rank: Rank, point: str, step: int) -> Program:
        if point == "data" and self.job.has_loader(rank):
            waits = asleep(self.job.places["data"], "lock" if self.job.pinned else "poll", 0.02)
            computes = self.job.pace.kernel_s * 3 * self.job.pace.chunks
            yield Run(self.job.rng(rank, f"slow batch {step}").uniform(0.8, 1.6) * computes, waits)
