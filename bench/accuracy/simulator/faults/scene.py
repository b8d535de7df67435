"""What a fault is planted into, and what it leaves for those who look at the job."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from accuracy.simulator.faults.stalls import Stall
from accuracy.simulator.job import Job
from accuracy.simulator.phases.phase import Part
from accuracy.simulator.phases.timeline import Timeline
from accuracy.simulator.process import Process
from accuracy.simulator.program import Code, Op
from hangdog_models.ranks import Rank
from hangdog_models.stack import Reason
from hangdog_models.verdict import Kind

#: Seconds between two looks at a job that may hang.
INTERVAL_S = 1.0
#: All ranks have been looked at so much later than the first one, and a time that is none.
LATER_S, LEAST_S = 0.35, 1e-9


@dataclass(frozen=True, slots=True)
class Duty:
    """One rank's part in a phase: operation `at` of its program, which lasts for `seconds`."""

    at: int
    parts: tuple[Part, ...]
    seconds: float


@dataclass
class Scene:
    """A job about to run. `marks`: for each rank where its steps begin; `span`: seconds until its last step begins.

    A fault writes down what it planted: `stalls` and `gone` (processes nobody can see any more) by rank, `blamed`
    and `guilty`. `looks`: when the job is looked at, in seconds, every `gap` seconds; a hang when all is still.
    `duties` are the parts of ranks in a phase, which has lasted `since` seconds at the first look, and `timelines` where they are
    in it. `stated`: for how many seconds nothing has moved, as its collector says. `fresh`: it has not trained yet. What comes
    after the `end` of what is simulated is like what comes after `trains`, when its last step begins.
    """

    rng: Random
    job: Job
    processes: list[Process]
    marks: list[tuple[int, ...]]
    span: float
    cuts: Callable[[tuple[int, ...], float], bool] | None = None
    stalls: dict[int, Stall] = field(default_factory=dict)
    gone: dict[int, Reason] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    blamed: tuple[int, ...] = ()
    guilty: tuple[str, ...] = ()
    looks: tuple[float, ...] = (inf, inf)
    salt: int = 0
    gap: float = INTERVAL_S
    duties: dict[int, Duty] = field(default_factory=dict)
    timelines: dict[int, Timeline] = field(default_factory=dict)
    since: float = 0.0
    stated: float | None = None
    fresh: bool = False
    trains: float = 0.0
    end: float = inf

    def machine(self, rank: int) -> str:
        return self.job.topology.machine(Rank(rank)) or ""

    def instant(self, time: float, later: float = 0.0) -> float:
        """The instant of the simulation that shows a living job so much `later` than a time.

        All ranks are shown the same step of training: who is looked at somewhat later is not a step behind.
        """
        if time == inf:
            return inf
        span = self.end - self.trains
        if time >= self.end:
            time = self.trains + (time - self.trains) % (span - min(LATER_S, span / 2))
        return min(time + later, self.end - LEAST_S)

    def blame(self, *ranks: int) -> None:
        """These ranks, on these machines, are the fault."""
        self.blamed = tuple(sorted({*self.blamed, *ranks}))
        self.guilty = self.job.topology.machines_of(Rank(rank) for rank in self.blamed)

    def anchors(self, rank: int, kind: str) -> list[int]:
        """Where in the program of a rank, before its last step, it does host work of a kind (empty: computes)."""
        process = self.processes[rank]
        end = self.marks[rank][-1]
        return [
            at
            for at, op in enumerate(process.ops[:end])
            if (op.kind == kind if kind else op.code is Code.KERNEL and op.place.autograd is None)
        ]

    def insert(self, rank: int, at: int, op: Op) -> None:
        ops = self.processes[rank].ops
        self.processes[rank].ops = (*ops[:at], op, *ops[at:])

    def change(self, rank: int, at: int, *ops: Op) -> None:
        """Puts others in the place of operation `at`."""
        before = self.processes[rank].ops
        self.processes[rank].ops = (*before[:at], *ops, *before[at + 1 :])

    def hidden(self, rank: int, share: float) -> bool:
        """Whether this rank's stack cannot be taken, which is so in `share` of such cases and in every look alike."""
        return Random(self.salt + 7919 * rank).random() < share

    def moment(self) -> float:
        """An instant at which something physical breaks."""
        return self.rng.uniform(0.08, 0.92) * self.span


@dataclass(frozen=True)
class Fault:
    """One row of the matrix: how it is planted, and which verdicts are then right. `steps`: what the job must run."""

    name: str
    family: str
    kinds: tuple[Kind, ...]
    plant: Callable[[Scene], bool]
    steps: tuple[str, ...] = ()
    gloo: bool | None = None
    faults: int = 1
