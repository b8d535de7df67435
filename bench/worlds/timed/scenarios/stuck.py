"""Hosts that never get on from a place in their code."""

from collections.abc import Callable, Sequence
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position, asleep
from worlds.timed.engine.steps import Program, Run
from worlds.timed.jobs.job import Job
from worlds.timed.scenarios.scenario import POINTS, STORAGE_CALLS, Scenario


class Stuck(Scenario):
    """Some ranks get stuck at one point of one step, each in its `place`; before it they are there for up to `within` seconds."""

    def __init__(
        self,
        kind: str,
        job: Job,
        rng: Random,
        ranks: Sequence[Rank],
        point: str,
        place: Callable[[Rank], Position],
        within: float = 0.0,
    ) -> None:
        super().__init__(kind, job, rng)
        self.ranks = ranks
        #: Who gets stuck, which are more than the guilty where a service is.
        self.affected = frozenset(ranks)
        self.point = point
        self.starts_up = point == "init"
        self._place = place
        self._within = within

    def at(self, rank: Rank, point: str, step: int) -> Program:
        if rank not in self.affected or point != self.point or step != self.step:
            return
        at = self._place(rank)
        if self._within:
            yield Run(self.job.rng(rank, "stuck").uniform(0, self._within), at)
        yield from self.forever(at)


def point_of(job: Job, rng: Random) -> str:
    """A point of a step."""
    return rng.choice(("forward", "optimizer") if job.name in ("jax", "ray") else POINTS)


def reader(job: Job, rng: Random) -> Rank:
    """A rank that has a data loader."""
    return rng.choice([rank for rank in job.layout.ranks if job.name == "ray" or job.has_loader(rank)])


def in_loader(job: Job) -> Callable[[Rank], Position]:
    """A host that waits for the workers of its data loader."""
    at = asleep(job.places["data"], "lock" if job.pinned else "poll", 0.002)
    return lambda rank: at


def in_storage(frames: str, call: str) -> Callable[[Rank], Position]:
    """A host that sleeps uninterruptibly in a call of its storage."""
    at = Position(frames, "file_write", "D", call, 0.0)
    return lambda rank: at


def storage_call(rng: Random) -> str:
    return rng.choice(STORAGE_CALLS)
