"""What can happen to a job at each point of its programs; a plain one leaves it alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hangdog_models.ranks import Rank
from worlds.timed.engine.engine import Engine
from worlds.timed.engine.position import Position
from worlds.timed.engine.steps import Forever, Payload, Program
from worlds.timed.jobs.job import Job

#: Points of a step at which user code, a loader or a logger is called.
POINTS = ("data", "forward", "backward", "optimizer")
#: A phase of a healthy job lasts between its two marks.
BEGINS, ENDS = "begins", "ends"
#: What a process that sleeps uninterruptibly for its storage waits in: functions of kernels 5.15 to 6.8.
STORAGE_CALLS = (
    "rpc_wait_bit_killable",
    "nfs_start_io_read",
    "folio_wait_bit_common",
    "request_wait_answer",
    "cl_sync_io_wait",
)


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread beside the main one, while it is there."""

    rank: Rank
    begins: float
    ends: float
    name: str
    frames: str
    native: str


class Scenario:
    """Nothing happens. `ranks` are the guilty ones, `step` is when; `starts_up`: the job is seen as it starts."""

    #: Whether what happens is long before the first step.
    starts_up = False
    #: The marks between which a healthy phase is seen; without them it is seen at any time.
    marks = (BEGINS, ENDS)

    def __init__(self, kind: str, job: Job, rng: Random) -> None:
        self.kind = kind
        self.job = job
        self.rng = rng
        self.ranks: Sequence[Rank] = ()
        self._began: float | None = None
        self.threads: list[Thread] = []
        self.step = rng.randint(2, max(2, min(4, job.steps - 2))) if job.name != "ray" else 1
        self.engine: Engine

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines of the guilty ranks."""
        return tuple(sorted({self.job.layout.machine(rank) for rank in self.ranks}))

    def begin(self) -> None:
        """Notes when it began, at its first sign."""
        if self._began is None:
            self._began = self.engine.now

    def began(self) -> float | None:
        """When it began; None where it has not, or never began as the job is slow from the start."""
        return self._began

    def forever(self, at: Position) -> Program:
        """A host that never gets on."""
        self.begin()
        yield Forever(at)

    def install(self, engine: Engine) -> None:
        """Prepares what happens from outside."""
        self.engine = engine

    def set_up(self, rank: Rank) -> Program:
        """Between the meeting of all ranks and the first step."""
        yield from ()

    def before(self, rank: Rank, step: int) -> Program:
        """Before a step."""
        yield from ()

    def at(self, rank: Rank, point: str, step: int) -> Program:
        """At a point of a step (POINTS, `log`), behind it (`after`), or as the process starts (`init`)."""
        yield from ()

    def end(self, rank: Rank) -> Program:
        """Behind the last step."""
        yield from ()

    def has_batch(self, rank: Rank, step: int) -> bool:
        """Whether a rank has data left for a step."""
        return True

    def effort(self, rank: Rank, step: int) -> float:
        """How much work a step is to a rank, beside its like."""
        return 1.0

    def payload(self, rank: Rank, step: int, tag: str, payload: Payload) -> Payload | None:
        """What a rank's collective moves; None where it skips it."""
        return payload

    def generation_s(self, rank: Rank, step: int) -> float:
        """How long the inference engine of a rank generates."""
        engine = Rank(rank // self.job.layout.sizes.get("tp", 1))
        return self.job.rng(engine, f"generation {step}").uniform(3, 8)

    def driver_s(self, phase: str) -> float:
        """How long the driver of actors thinks between two phases."""
        return self.job.rng(self.job.layout.ranks[0], phase).uniform(0.3, 3)
