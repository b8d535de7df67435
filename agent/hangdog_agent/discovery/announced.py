"""A rank that is told elsewhere than in its process's environment, and by what."""

from dataclasses import dataclass

from hangdog_models.ranks import Rank


@dataclass(frozen=True, slots=True)
class Announced:
    """The rank of a process; `world_size` 0 and `run` (its job's name) empty where nobody tells them.

    `source` is what told it, in words. `presumed`: the rank is not certain, only that the process is one of the job's.
    `port`: where the ranks of the job meet, 0 where that is not known; it tells jobs apart that nobody named.
    """

    rank: Rank
    world_size: int
    run: str
    source: str = "Ray's log"
    presumed: bool = False
    port: int = 0
