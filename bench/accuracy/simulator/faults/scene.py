"""What a fault is planted into, and what it leaves for those who look at the job."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from accuracy.simulator.faults.stalls import Stall
from accuracy.simulator.job import Job
from accuracy.simulator.process import Process
from accuracy.simulator.program import Code, Op
from hangdog_models.ranks import Rank
from hangdog_models.stack import Reason
from hangdog_models.verdict import Kind


@dataclass
class Scene:
    """A job about to run. `marks`: for each rank where its steps begin; `span`: seconds until its last step begins.

    A fault writes down what it planted: `stalls` and `gone` (processes nobody can see any more) by rank, `blamed`
    and `guilty`. `looks`: when the job is looked at, in seconds; a hang when all is still.
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

    def machine(self, rank: int) -> str:
        return self.job.topology.machine(Rank(rank)) or ""

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
