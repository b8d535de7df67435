"""Ten failures of a job, at given steps, on ranks that a seed chooses: the same for whoever restarts it."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

#: Machines and ranks of the job.
MACHINES, RANKS_EACH = 2, 2
WORLD = MACHINES * RANKS_EACH
#: A machine with a fault that stays stops the rank there again at each start, until so long after it began. Seconds.
STAYS_S = 900.0

#: What is done, in words. The first ones are done from outside, by signals; the others by the job's own code.
FROM_OUTSIDE: Mapping[str, str] = {
    "killed": "a rank is killed, as by the kernel where memory ran out",
    "segfault": "a rank ends by SIGSEGV",
    "stopped": "a rank stops (SIGSTOP)",
    "machine-stops": f"a rank stops, and again at each start on its machine for {STAYS_S / 60:.0f} min",
    "machine-gone": "all processes of a machine are killed",
}
BY_ITS_CODE: Mapping[str, str] = {
    "exception": "a rank raises an exception",
    "exit": "a rank calls os._exit",
    "loop": "a rank loops in Python without an end",
    "locks": "two threads of a rank wait for each other's lock",
    "skipped": "a rank skips a collective",
}
WHAT = {**FROM_OUTSIDE, **BY_ITS_CODE}
#: Those after which the job stands still. After the others some process has ended.
HANGS = ("stopped", "machine-stops", "loop", "locks", "skipped")


@dataclass(frozen=True, slots=True)
class Failure:
    """`what` happens to a rank once the job has made that step."""

    what: str
    rank: int
    step: int

    @property
    def machine(self) -> str:
        """Where the rank is at first; after an eviction the job is elsewhere, and the fault is not."""
        return f"node-{self.rank // RANKS_EACH}"


def drawn(seed: int, steps: int) -> tuple[Failure, ...]:
    """All failures, in an order that the seed chooses, each about in the middle of its share of the steps."""
    chance = random.Random(seed)
    kinds = chance.sample(sorted(WHAT), len(WHAT))
    share = steps / (len(kinds) + 1)
    moments = [int(share * (number + 1 + chance.uniform(-0.2, 0.2))) for number in range(len(kinds))]
    return tuple(Failure(what, chance.randrange(WORLD), step) for what, step in zip(kinds, moments, strict=True))
